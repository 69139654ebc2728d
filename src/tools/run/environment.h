// What a program's environment must hold so that the loader takes the drop-in libraries: a search
// path for whoever opens them by name, preloading for programs that carry a path of their own
// (DT_RPATH goes before LD_LIBRARY_PATH). docs/drop-in.md has the table.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farverbs/base/result.h"

namespace farverbs::tools::run {

using Environment = std::map<std::string, std::string>;

// Where the libraries of a binary are, of the build or the installed tree that it belongs to.
std::vector<std::string> library_folders(const std::string& binary);
// The first of them that has libibverbs.so.1; ENOENT names all that were looked at.
Result<std::string> find_libraries(const std::vector<std::string>& folders);

// Files in `folder` to preload, of those that are there.
std::vector<std::string> preloads(const std::string& folder);

// What to set, given what is set already (`before` for LD_LIBRARY_PATH and LD_PRELOAD). Running it
// again changes nothing more.
Environment environment_for(const std::string& folder, const std::vector<std::string>& preloaded,
                            const std::optional<std::string>& interface, const Environment& before);

}  // namespace farverbs::tools::run
