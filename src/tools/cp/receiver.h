// Receiver: the end of a session that gets the files. It creates what is announced beneath its
// target, never outside of it and never through a link; grants the memory of the files' own pages,
// within a budget; verifies each piece right after it arrived, while it is in the cache; and gives
// a file its name when all of it is verified.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tools/cp/link.h"
#include "tools/cp/mapping.h"
#include "tools/cp/messages.h"
#include "tools/cp/observer.h"
#include "tools/cp/partial.h"
#include "tools/cp/prefaulter.h"

namespace farverbs::tools::copy {

struct ReceiverOptions {
  bool always = false;                        // also what is there with the same size and time
  bool sync = false;                          // reach the disk before the final names appear
  std::string source_name;                    // put into the marker of an unfinished directory
  uint64_t mapped_bytes = UINT64_C(1) << 30;  // budget of granted memory
  size_t open_files = 512;
};

// Where the copied thing goes: `name` beneath `parent`.
struct Target {
  Fd parent;
  std::string name;
};

class Receiver {
 public:
  Receiver(Link& link, Target target, ReceiverOptions options, Observer& observer);

  // Until everything that was announced is settled. As Sender::run.
  Result<void> run(const std::function<bool()>& stop);

 private:
  struct Memory {
    Fd file;  // if its space is still to be allocated
    Mapping mapping;
    Region region;  // goes before the mapping does
  };
  struct Window {
    uint64_t offset = 0;  // in the file
    uint64_t first_piece = 0;
    std::vector<bool> missing;  // by piece, from first_piece on
    uint64_t missing_count = 0;
    bool populating = false;  // pages are made ahead of the data
    uint64_t populated = 0;   // bytes of the window that have, or get, their pages
    std::shared_ptr<Memory> memory;
  };
  struct File {
    Entry entry;
    PiecePlan plan;
    std::shared_ptr<Fd> directory;
    std::optional<PartialFile> partial;
    uint64_t cursor = 0;  // pieces below are in a window, or done
    std::list<Window> windows;
    std::map<uint64_t, unsigned> attempts;  // pieces that failed to verify
    uint64_t resumed_bytes = 0;
    bool granted = false;
    bool failed = false;
  };
  struct Directory {
    std::string path;
    uint32_t mode;
    int64_t mtime_ns;
  };

  Result<void> handle(const LinkEvent& event);
  Result<void> on_entries(Entries entries);
  Result<void> on_record(const Record& record);
  Result<void> on_piece(File& file, const Record& record);
  Result<void> on_abort(File& file, AbortReason reason);

  Result<bool> start_pending();
  Result<void> start(Entry entry);
  Result<void> make_directory(const Entry& entry, int parent, const std::string& name);
  Result<void> make_link(const Entry& entry, int parent, const std::string& name);
  Result<void> start_file(Entry entry, std::shared_ptr<Fd> directory, const std::string& name);
  Result<bool> is_unchanged(const Entry& entry, int parent, const std::string& name) const;
  Result<bool> grant_windows();
  Result<void> open_window(File& file);
  void populate_ahead(Window& window, uint64_t arrived);
  void finish_if_complete(File& file);
  void fail(File& file, std::string message);
  void release(File& file);
  void settle(const Entry& entry, Settled settled);
  Result<void> flush(bool force);
  void finish_directories();
  Result<std::shared_ptr<Fd>> parent_of(const std::string& path);
  std::string full_path(const std::string& path) const;

  Link& link_;
  Target target_;
  ReceiverOptions options_;
  Observer& observer_;
  std::deque<Entry> pending_;
  std::unordered_map<uint32_t, File> files_;
  std::deque<uint32_t> wanting_;        // files with windows to grant, in order
  std::vector<Directory> directories_;  // parents first
  size_t directory_bytes_ = 0;
  std::string cached_parent_path_;
  std::shared_ptr<Fd> cached_parent_;
  Answers answers_;
  uint64_t mapped_bytes_ = 0;
  bool all_announced_ = false;
  bool any_failed_ = false;
  bool made_root_ = false;
  Prefaulter prefaulter_;
};

}  // namespace farverbs::tools::copy
