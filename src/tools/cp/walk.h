// Walk: the entries of what is to be copied, one at a time, parents before children, names in
// order. Nothing is followed and nothing outside of the tree is opened. What cannot be copied (a
// device, a directory without permission) becomes a Note.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tools/cp/fd.h"
#include "tools/cp/messages.h"

namespace farverbs::tools::copy {

class Walk {
 public:
  // `base` is the directory that holds `name`; both make up the thing that is copied ("" paths).
  // An empty `name` is `base` itself. recursive: descend into it if it is a directory.
  Walk(int base, std::string name, bool recursive);

  // The next entry (its id is 0), or a note; nullopt at the end.
  std::optional<std::variant<Entry, Note>> next();

  // Opens a file of the walk for reading and checks that it still is what the entry says.
  // ESTALE: it changed meanwhile.
  Result<Fd> open_file(const Entry& entry) const;
  // Whether an open file still has the size, mtime and inode of the entry. (Its status may change
  // without its content: a new name, another mode.)
  static bool unchanged(int fd, const Entry& entry);

  // The path of an entry beneath `base`.
  std::string path_of(const std::string& relative) const;

 private:
  struct Level {
    std::string path;
    std::vector<std::string> names;  // in reverse order: the next one is the last
  };
  std::optional<std::variant<Entry, Note>> describe(const std::string& path);
  std::optional<Note> descend(const std::string& path);

  int base_;
  std::string name_;
  bool recursive_;
  bool started_ = false;
  std::vector<Level> levels_;
};

// Where the data of an open file is: everything, or its extents when it has holes.
std::vector<Extent> find_extents(int fd, uint64_t size);

std::string identity_of(const struct stat& status);

}  // namespace farverbs::tools::copy
