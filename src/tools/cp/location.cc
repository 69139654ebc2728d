#include "tools/cp/location.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace farverbs::tools::copy {
namespace {

constexpr std::string_view kScheme = "farverbs://";

bool is_plain(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("/._~+,=@:-").find(static_cast<char>(c)) != std::string_view::npos;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Length of the UTF-8 sequence that starts `bytes`; 0 if it is not one.
size_t utf8_length(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0 || length > bytes.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(bytes[i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// "a//b/./c/" -> "a/b/c"; ".." is refused, because what it means depends on links.
Result<std::string> normalize(const std::string& path, const std::string& text) {
  std::string out;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      return Error{EACCES, fmt::format("'{}': '..' is not allowed in a remote path", text)};
    }
    if (!out.empty()) out += '/';
    out += part;
  }
  return out;
}

Result<uint16_t> parse_port(std::string_view digits, const std::string& text) {
  unsigned port = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (code != std::errc() || end != digits.data() + digits.size() || port == 0 || port > 65535) {
    return invalid(fmt::format("'{}': '{}' is not a port (1 to 65535)", text, digits));
  }
  return static_cast<uint16_t>(port);
}

}  // namespace

Result<Location> parse_location(const std::string& text, uint16_t default_port) {
  Location location;
  if (text.empty()) return invalid("an empty path names nothing");
  if (text.rfind(kScheme, 0) != 0) {
    if (text.rfind("farverbs:", 0) == 0) {
      return invalid(fmt::format(
          "'{0}': a remote location is written farverbs://host/path (for a local file: './{0}')",
          text));
    }
    location.path = text;
    location.wants_directory = text.size() > 1 && text.back() == '/';
    while (location.path.size() > 1 && location.path.back() == '/') location.path.pop_back();
    return location;
  }
  location.remote = true;
  location.port = default_port;
  const std::string_view rest = std::string_view(text).substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view port;
  if (!authority.empty() && authority.front() == '[') {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) {
      return invalid(fmt::format("'{}': the ']' of the IPv6 address is missing", text));
    }
    location.host = authority.substr(1, close - 1);
    authority.remove_prefix(close + 1);
    if (!authority.empty() && authority.front() != ':') {
      return invalid(fmt::format("'{}': after ']' only ':port' or '/' may follow", text));
    }
    if (!authority.empty()) port = authority.substr(1);
  } else {
    const size_t colon = authority.find(':');
    if (colon != std::string_view::npos && authority.find(':', colon + 1) != std::string::npos) {
      return invalid(
          fmt::format("'{}': an IPv6 address is written in brackets, farverbs://[::1]/path", text));
    }
    location.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon + 1);
    if (colon != std::string_view::npos && port.empty()) {
      return invalid(fmt::format("'{}': the port after ':' is missing", text));
    }
  }
  if (location.host.empty()) {
    return invalid(fmt::format("'{}': the host is missing (farverbs://host/path)", text));
  }
  if (!port.empty()) {
    FV_ASSIGN(location.port, parse_port(port, text));
  }
  const std::string_view encoded = rest.substr(slash);
  FV_ASSIGN(const std::string decoded, percent_decode(encoded));
  FV_ASSIGN(location.path, normalize(decoded, text));
  location.wants_directory = encoded.size() > 1 && encoded.back() == '/';
  return location;
}

std::string percent_encode(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char c : bytes) {
    if (is_plain(static_cast<unsigned char>(c))) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Result<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || hex_digit(text[i + 1]) < 0 || hex_digit(text[i + 2]) < 0) {
      return invalid(fmt::format("'{}': '%' begins %XX; a percent sign itself is %25", text));
    }
    const int byte = hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]);
    if (byte == 0) return invalid(fmt::format("'{}': %00 cannot be part of a name", text));
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::string printable(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    const auto lead = static_cast<unsigned char>(bytes[0]);
    if (length == 0 || lead < 0x20 || lead == 0x7F) {
      out += fmt::format("\\x{:02x}", lead);
      bytes.remove_prefix(1);
    } else {
      out += bytes.substr(0, length);
      bytes.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace farverbs::tools::copy
