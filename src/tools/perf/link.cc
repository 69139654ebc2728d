#include "tools/perf/link.h"

#include <fmt/format.h>

namespace farverbs::tools::perf {

Result<void> Link::send(const Json& message) {
  Result<void> sent =
      connection_.send(message.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!sent.ok()) {
    return Error{sent.error().code, fmt::format("{} went away: {}", peer_, sent.error().message)};
  }
  return {};
}

Result<Json> Link::receive(Duration timeout) {
  Result<std::string> text = connection_.receive(timeout);
  if (!text.ok()) {
    const Error& error = text.error();
    const char* what = error.code == EPIPE ? "went away" : "cannot be understood";
    if (error.code == ETIMEDOUT) what = "does not answer";
    return Error{error.code, fmt::format("{} {}: {}", peer_, what, error.message)};
  }
  FV_ASSIGN(Json message, parse_json_object(*text));
  FV_TRY(json_no_error(message));
  return message;
}

Result<std::optional<Json>> Link::poll() {
  Result<Json> message = receive(Duration());
  if (message.ok()) return std::optional<Json>(std::move(message).value());
  if (message.error().code == ETIMEDOUT) return std::optional<Json>();
  return message.error();
}

Error Link::explain(Error error) {
  if (error.code == EPIPE || error.code == EREMOTEIO) return error;
  constexpr Duration kSoon = Duration::milliseconds(300);
  Result<Json> message = receive(kSoon);
  if (!message.ok() && message.error().code != ETIMEDOUT) return message.error();
  return error;
}

void Link::report(const Error& error) { (void)connection_.send(json_error_message(error.message)); }

}  // namespace farverbs::tools::perf
