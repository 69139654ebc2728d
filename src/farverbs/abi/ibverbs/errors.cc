#include "farverbs/abi/ibverbs/errors.h"

#include <cstdio>
#include <cstdlib>

namespace farverbs::abi {

int refuse(const char* call, const Error& error) {
  static const bool explains = [] {
    const char* wish = std::getenv("FARVERBS_EXPLAIN");
    return wish != nullptr && *wish != '\0' && *wish != '0';
  }();
  if (explains) {
    std::fprintf(stderr, "farverbs: %s: %s (%s)\n", call, error.message.c_str(),
                 std::strerror(error.code));
  }
  return error.code;
}

std::nullptr_t refuse_null(const char* call, const Error& error) {
  const int code = refuse(call, error);
  errno = code;
  return nullptr;
}

}  // namespace farverbs::abi
