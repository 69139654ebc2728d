#include "tools/common/json_fields.h"

namespace farverbs::tools {
namespace {

constexpr int kMaxNesting = 16;

Error bad_field(const char* field, const std::string& why) {
  return Error{EPROTO, "the peer sent a message whose field '" + std::string(field) + "' " + why};
}

Result<const Json*> find(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return bad_field(field, "is missing");
  return &*found;
}

}  // namespace

Result<Json> parse_json_object(const std::string& text) {
  bool too_deep = false;
  const auto limit_nesting = [&](int depth, nlohmann::detail::parse_event_t, Json&) {
    if (depth > kMaxNesting) too_deep = true;
    return depth <= kMaxNesting;
  };
  Json parsed = Json::parse(text, limit_nesting, /*allow_exceptions=*/false);
  if (parsed.is_discarded() || too_deep || !parsed.is_object()) {
    return Error{EPROTO, "the peer sent something else than a Farverbs message"};
  }
  return parsed;
}

Result<uint64_t> json_unsigned(const Json& object, const char* field, uint64_t minimum,
                               uint64_t maximum) {
  FV_ASSIGN(const Json* value, find(object, field));
  if (!value->is_number_unsigned()) return bad_field(field, "is not a whole number");
  const auto number = value->get<uint64_t>();
  if (number < minimum || number > maximum) {
    return bad_field(field, "is " + std::to_string(number) + ", outside " +
                                std::to_string(minimum) + " to " + std::to_string(maximum));
  }
  return number;
}

Result<double> json_number(const Json& object, const char* field) {
  FV_ASSIGN(const Json* value, find(object, field));
  if (!value->is_number()) return bad_field(field, "is not a number");
  return value->get<double>();
}

Result<std::string> json_string(const Json& object, const char* field) {
  FV_ASSIGN(const Json* value, find(object, field));
  if (!value->is_string()) return bad_field(field, "is not a text");
  return value->get<std::string>();
}

Result<bool> json_bool(const Json& object, const char* field) {
  FV_ASSIGN(const Json* value, find(object, field));
  if (!value->is_boolean()) return bad_field(field, "is neither true nor false");
  return value->get<bool>();
}

Result<Json> json_array(const Json& object, const char* field) {
  FV_ASSIGN(const Json* value, find(object, field));
  if (!value->is_array()) return bad_field(field, "is not a list");
  return *value;
}

Result<Json> json_object(const Json& object, const char* field) {
  FV_ASSIGN(const Json* value, find(object, field));
  if (!value->is_object()) return bad_field(field, "is not an object");
  return *value;
}

Result<void> json_no_error(const Json& object) {
  if (const auto found = object.find("error"); found != object.end()) {
    return Error{EREMOTEIO, "the peer refused: " +
                                (found->is_string() ? found->get<std::string>() : found->dump())};
  }
  return {};
}

std::string json_error_message(const std::string& text) {
  return Json{{"error", text}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace farverbs::tools
