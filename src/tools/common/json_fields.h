// JSON of a peer, read with suspicion: text that is no JSON, fields that are missing, of another
// type or out of range give an Error that names the field, never an exception.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "farverbs/base/result.h"

namespace farverbs::tools {

using Json = nlohmann::ordered_json;

// EPROTO unless `text` is a JSON object. Nesting is limited, so that no text exhausts the stack.
Result<Json> parse_json_object(const std::string& text);

// EPROTO when the field is absent, of another type, or a number outside minimum to maximum.
Result<uint64_t> json_unsigned(const Json& object, const char* field, uint64_t minimum,
                               uint64_t maximum);
Result<double> json_number(const Json& object, const char* field);
Result<std::string> json_string(const Json& object, const char* field);
Result<bool> json_bool(const Json& object, const char* field);
Result<Json> json_array(const Json& object, const char* field);
Result<Json> json_object(const Json& object, const char* field);

// A message {"error": text} of a peer as an Error; ok when it is none.
Result<void> json_no_error(const Json& object);
std::string json_error_message(const std::string& text);

}  // namespace farverbs::tools
