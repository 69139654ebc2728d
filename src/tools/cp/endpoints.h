// What a copy starts from and where it goes, on the machine that has the path: the rules of cp(1)
// for files, directories and existing targets, with one addition. A directory that an interrupted
// copy created is recognized by its marker, so that the same command again continues in it instead
// of copying into it.
#pragma once

#include <functional>
#include <string>

#include "farverbs/base/result.h"
#include "tools/cp/receiver.h"
#include "tools/cp/walk.h"

namespace farverbs::tools::copy {

struct SourceRoot {
  Fd base;               // for Walk: the directory that holds `entry`
  std::string entry;     // "" if `base` is the copied directory itself
  std::string own_name;  // what it is called, one component
  bool directory = false;
};

// A link is followed, except that with `recursive` it is copied as a link. EISDIR: a directory
// without `recursive`; ENOENT, EACCES and others with the path.
Result<SourceRoot> resolve_local_source(const std::string& path, bool recursive);
// The same beneath `root`, which no link leads out of.
Result<SourceRoot> resolve_served_source(int root, const std::string& path, bool recursive);

struct TargetRequest {
  std::string path;
  bool wants_directory = false;
  std::string source_name;
  bool source_is_directory = false;
};
Result<Target> resolve_local_target(const TargetRequest& request);
Result<Target> resolve_served_target(int root, const TargetRequest& request);

}  // namespace farverbs::tools::copy
