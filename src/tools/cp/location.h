// Where a copy comes from or goes to: a local path, or farverbs://host[:port]/path. In a remote
// path %XX stands for a byte, as in any URL (RFC 3986 section 2.1), so that every name can be
// written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "farverbs/base/result.h"

namespace farverbs::tools::copy {

struct Location {
  bool remote = false;
  std::string host;   // remote only; an IPv6 address without its brackets
  uint16_t port = 0;  // remote only
  std::string path;   // local: as given; remote: decoded, relative to the served root, "" for it
  bool wants_directory = false;  // it was written with a final slash
};

// The error says what is wrong with `text` and how to write it.
Result<Location> parse_location(const std::string& text, uint16_t default_port);

// Bytes that are not letters, digits or one of "/._~+,=@:-" become %XX, so any name is valid in
// JSON and in a URL. Decoding refuses a % without two hex digits, and %00.
std::string percent_encode(std::string_view bytes);
Result<std::string> percent_decode(std::string_view text);

// A name for people: control bytes and invalid UTF-8 do not reach the terminal.
std::string printable(std::string_view bytes);

}  // namespace farverbs::tools::copy
