#include "tools/lab/state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

namespace farverbs::tools::lab {
namespace {

using nlohmann::json;

Result<void> make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error::from_errno("cannot make the folder " + part);
    }
    if (at == std::string::npos) break;
  }
  struct stat status {};
  // Whoever can write here can have a process of ours enter a namespace of theirs.
  if (::stat(path.c_str(), &status) != 0 || status.st_uid != ::geteuid()) {
    return Error{EPERM, path + " belongs to somebody else: remove it or set XDG_RUNTIME_DIR"};
  }
  return {};
}

std::string read_all(int fd) {
  std::string text;
  char part[4096];
  for (ssize_t n; (n = ::read(fd, part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(n));
  }
  return text;
}

json side_json(const SideState& side) {
  return {{"netns_fd", side.netns_fd}, {"address", side.address}};
}

SideState side_of(const json& value) {
  return {value.at("netns_fd").get<int>(), value.at("address").get<std::string>()};
}

}  // namespace

Result<std::string> state_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string folder = "/run/farverbs/lab";
  if (::geteuid() != 0) {
    folder = runtime != nullptr && *runtime == '/'
                 ? std::string(runtime) + "/farverbs/lab"
                 : "/tmp/farverbs-" + std::to_string(::geteuid()) + "/lab";
  }
  FV_TRY(make_folders(folder));
  return folder;
}

std::string state_file(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".json";
}

std::string stats_file(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".stats";
}

std::string control_file(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".control";
}

Result<void> check_name(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  };
  if (name.empty() || name.size() > 64 || !std::all_of(name.begin(), name.end(), allowed)) {
    return invalid("'" + name + "' cannot name a lab: use letters, digits, '-' and '_'");
  }
  if (name == "a" || name == "b") return invalid("'" + name + "' names a side, not a lab");
  return {};
}

Result<int> claim_state(const std::string& folder, const std::string& name) {
  const std::string path = state_file(folder, name);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Error::from_errno("cannot open " + path);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    ::close(fd);
    if (code != EWOULDBLOCK) return Error::from_errno("cannot lock " + path, code);
    return Error{EEXIST, "the lab '" + name + "' is already up: `farverbs lab down " + name +
                             "` ends it, another name makes another lab"};
  }
  return fd;
}

Result<void> write_state(int fd, const LabState& state) {
  const std::string text = json{{"name", state.name},
                                {"pid", state.pid},
                                {"user_namespace", state.user_namespace},
                                {"description", state.description},
                                {"a", side_json(state.a)},
                                {"b", side_json(state.b)}}
                               .dump(2) +
                           "\n";
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return Error::from_errno("cannot write the record of the lab");
  }
  return {};
}

Result<LabState> read_state(const std::string& folder, const std::string& name) {
  const std::string path = state_file(folder, name);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return Error{ENODEV, "there is no lab '" + name + "': `farverbs lab up` makes one"};
  }
  const bool alive = ::flock(fd, LOCK_SH | LOCK_NB) != 0;
  const std::string text = read_all(fd);
  ::close(fd);
  if (!alive) {
    return Error{ESRCH, "the lab '" + name + "' is gone, its emulator ended: `farverbs lab up " +
                            name + "` makes it anew"};
  }
  try {
    const json value = json::parse(text);
    return LabState{value.at("name").get<std::string>(),
                    value.at("pid").get<pid_t>(),
                    value.at("user_namespace").get<bool>(),
                    value.at("description").get<std::string>(),
                    side_of(value.at("a")),
                    side_of(value.at("b"))};
  } catch (const json::exception&) {
    return Error{EAGAIN, "the lab '" + name + "' is just being made: try again"};
  }
}

void remove_state(const std::string& folder, const std::string& name) {
  ::unlink(state_file(folder, name).c_str());
  ::unlink(stats_file(folder, name).c_str());
  ::unlink(control_file(folder, name).c_str());
}

}  // namespace farverbs::tools::lab
