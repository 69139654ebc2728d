// The two forms in which decode shows a packet.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "tools/decode/examine.h"

namespace farverbs::tools {

// One line without its end. `start` is the time that stamps are relative to.
std::string describe_line(const Examined& packet, Time start);

// `verified` adds "correct".
nlohmann::ordered_json describe_json(const Examined& packet, bool verified);

}  // namespace farverbs::tools
