#include "tools/run/environment.h"

#include <filesystem>

namespace farverbs::tools::run {
namespace {

namespace fs = std::filesystem;

// `first`, then what of `rest`, separated by `separator`, is not `first` itself.
std::string in_front(const std::string& first, const std::string& rest, char separator) {
  std::string joined = first;
  size_t at = 0;
  while (at <= rest.size()) {
    const size_t end = std::min(rest.find(separator, at), rest.size());
    const std::string part = rest.substr(at, end - at);
    if (!part.empty() && part != first) joined += separator + part;
    at = end + 1;
  }
  return joined;
}

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found != environment.end() ? found->second : std::string();
}

}  // namespace

std::vector<std::string> library_folders(const std::string& binary) {
  const fs::path root = fs::path(binary).parent_path().parent_path();
  return {root / "lib/farverbs", root / FARVERBS_LIBDIR / "farverbs"};
}

Result<std::string> find_libraries(const std::vector<std::string>& folders) {
  std::string looked;
  for (const std::string& folder : folders) {
    std::error_code ignored;
    if (fs::exists(fs::path(folder) / "libibverbs.so.1", ignored)) return folder;
    if (looked.find(folder) == std::string::npos) looked += (looked.empty() ? "" : ", ") + folder;
  }
  return Error{ENOENT, "no libibverbs.so.1 in " + looked +
                           "; build with libibverbs-dev and librdmacm-dev installed, or name the "
                           "folder in FARVERBS_LIBRARIES"};
}

std::vector<std::string> preloads(const std::string& folder) {
  std::vector<std::string> files;
  for (const char* name : {"libibverbs.so.1", "librdmacm.so.1", "libfarverbs_paths.so"}) {
    const fs::path file = fs::path(folder) / name;
    std::error_code ignored;
    if (fs::exists(file, ignored)) files.push_back(file);
  }
  return files;
}

Environment environment_for(const std::string& folder, const std::vector<std::string>& preloaded,
                            const std::optional<std::string>& interface,
                            const Environment& before) {
  Environment set;
  set["LD_LIBRARY_PATH"] = in_front(folder, value_of(before, "LD_LIBRARY_PATH"), ':');
  std::string preload = value_of(before, "LD_PRELOAD");
  for (auto file = preloaded.rbegin(); file != preloaded.rend(); ++file) {
    // The loader takes spaces and colons alike.
    for (char& c : preload) c = c == ' ' ? ':' : c;
    preload = in_front(*file, preload, ':');
  }
  set["LD_PRELOAD"] = preload;
  if (interface.has_value()) set["FARVERBS_INTERFACE"] = *interface;
  return set;
}

}  // namespace farverbs::tools::run
