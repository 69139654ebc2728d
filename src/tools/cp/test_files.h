// Files for tests: a directory that vanishes, and trees that are made and compared.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "farverbs/base/prng.h"
#include "tools/cp/tree.h"

namespace farverbs::tools::copy {

class TestDirectory {
 public:
  TestDirectory() {
    // In memory if possible: thousands of files on a busy disk take minutes.
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path parent =
        in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = parent / "farverbs-cp-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  explicit TestDirectory(std::string path) : path_(std::move(path)), borrowed_(true) {}
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  ~TestDirectory() {
    std::error_code ignored;
    if (!borrowed_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  bool borrowed_ = false;
};

inline std::string random_bytes(size_t count, uint64_t seed) {
  Prng prng(seed);
  std::string bytes(count + 8, '\0');
  for (size_t i = 0; i < count; i += 8) {
    const uint64_t word = prng.next();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  bytes.resize(count);
  return bytes;
}

inline void write_file(const std::string& path, const std::string& content) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  EXPECT_EQ(::write(file.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
}

inline std::string read_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return {};
  std::string content(static_cast<size_t>(status.st_size), '\0');
  EXPECT_EQ(::read(file.get(), content.data(), content.size()), status.st_size);
  return content;
}

inline bool exists(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

inline struct stat status_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status;
}

inline void set_mtime(const std::string& path, int64_t seconds, long ns) {
  const timespec times[2] = {{0, UTIME_OMIT}, {seconds, ns}};
  EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

// Everything that a copy keeps, by relative path.
inline std::map<std::string, std::string> describe_tree(const std::string& root) {
  std::map<std::string, std::string> tree;
  const auto add = [&](const std::string& path, const std::string& name) {
    const struct stat status = status_of(path);
    std::string text = fmt::format("{:o} {}", status.st_mode, mtime_ns(status));
    if (S_ISREG(status.st_mode)) text += " " + read_file(path);
    if (S_ISLNK(status.st_mode)) text += " -> " + std::filesystem::read_symlink(path).string();
    tree[name] = text;
  };
  add(root, "");
  if (!std::filesystem::is_directory(root)) return tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    add(entry.path(), entry.path().string().substr(root.size()));
  }
  return tree;
}

}  // namespace farverbs::tools::copy
