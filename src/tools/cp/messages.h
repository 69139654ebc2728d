// The control messages of a copy: JSON over the rendezvous connection. A session is
//   client: Hello            server: Welcome (or a refusal)        both: their queue pairs
//   sender of files: Entries ...   receiver: Answers ... with finished at the end
// and whoever cannot go on says Goodbye.
// Whoever has the files is the sender: the client for a put, the server for a get. Every field of a
// peer is checked here for type and range; what a name may do to a file system is checked in
// tree.h.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "farverbs/base/result.h"
#include "farverbs/model/traffic_class.h"
#include "tools/cp/plan.h"

namespace farverbs::tools::copy {

inline constexpr unsigned kProtocolVersion = 1;
// What the sender may have announced and the receiver has not settled: a bound on memory.
inline constexpr size_t kMaxOutstandingFiles = 2048;
inline constexpr size_t kMaxEntriesPerMessage = 256;
inline constexpr size_t kMaxAnswersPerMessage = 4096;
inline constexpr size_t kMaxPathBytes = 4096;
inline constexpr size_t kMaxTextBytes = 4096;

struct Hello {
  unsigned version = kProtocolVersion;
  bool put = false;  // false: get
  std::string path;  // in the server's root
  bool wants_directory = false;
  std::string name;        // put: the source's own name
  bool directory = false;  // put: the source is a directory
  bool recursive = false;  // get
  bool always = false;     // put: also what looks unchanged
  bool sync = false;       // put: reach the disk before the final name appears
  model::TrafficClass traffic = model::TrafficClass::kBulk;  // of both ends
};

struct Welcome {
  unsigned version = kProtocolVersion;
  int error = 0;  // errno value of a refusal, with its message
  std::string message;
  std::string name;        // get: the source's own name
  bool directory = false;  // get: the source is a directory
};

enum class EntryKind : uint8_t { kFile, kDirectory, kLink };

// Something to create at the receiver. Paths are relative to the copied thing, "" is that itself.
struct Entry {
  uint32_t id = 0;  // unique among the unsettled
  EntryKind kind = EntryKind::kFile;
  std::string path;
  uint32_t mode = 0;     // permission bits
  int64_t mtime_ns = 0;  // since 1970
  uint64_t size = 0;     // file
  std::string identity;  // file: changes when the file is another one, or changed
  bool sparse = false;   // file: `extents` say where data is; otherwise it is everywhere
  std::vector<Extent> extents;
  std::string target;  // link

  std::vector<Extent> data_extents() const {
    if (sparse) return extents;
    return size == 0 ? std::vector<Extent>{} : std::vector<Extent>{{0, size}};
  }
};

// Something that is not copied, and why.
struct Note {
  std::string path;
  std::string message;
};

struct Entries {
  std::vector<Entry> entries;
  std::vector<Note> notes;
  bool last = false;  // nothing follows
};

// Memory of the receiver for a window of a file, and the pieces that are missing in it.
struct Grant {
  uint32_t file = 0;
  uint64_t offset = 0;  // of the window in the file
  uint64_t length = 0;
  uint64_t address = 0;  // of the window's first byte at the receiver
  uint32_t key = 0;
  std::vector<std::pair<uint64_t, uint64_t>> pieces;  // first, count
};

struct Settled {
  uint32_t file = 0;
  bool ok = true;
  bool unchanged = false;      // it was there already
  uint64_t resumed_bytes = 0;  // bytes that an earlier attempt had brought
  std::string message = {};    // if not ok
};

struct Answers {
  std::vector<Grant> grants;
  std::vector<Settled> settled;
  bool finished = false;
};

// The last word of an end that cannot go on.
struct Goodbye {
  int error = EIO;  // errno value
  std::string message;
};

using Message = std::variant<Hello, Welcome, Entries, Answers, Goodbye>;

std::string encode(const Message& message);
// EPROTO: not a message of this protocol; names the field.
Result<Message> decode_message(const std::string& text);

}  // namespace farverbs::tools::copy
