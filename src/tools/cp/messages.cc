#include "tools/cp/messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/cp/location.h"

namespace farverbs::tools::copy {
namespace {

using Json = nlohmann::json;

// Reads fields of one object and remembers the first thing that is wrong.
class Fields {
 public:
  Fields(const Json& object, std::string& problem) : object_(object), problem_(problem) {
    if (!object_.is_object()) blame("(message)", "is not an object");
  }

  uint64_t number(const char* key, uint64_t most) {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    if (!value->is_number_unsigned() || value->get<uint64_t>() > most) {
      blame(key, "is not a number in range");
      return 0;
    }
    return value->get<uint64_t>();
  }
  int64_t signed_number(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    const bool fits = value->is_number_unsigned()
                          ? value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                          : value->is_number_integer();
    if (!fits) blame(key, "is not a number in range");
    return fits ? value->get<int64_t>() : 0;
  }
  bool flag(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) blame(key, "is not true or false");
    return value->is_boolean() && value->get<bool>();
  }
  std::string text(const char* key, size_t most) {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string() || value->get_ref<const std::string&>().size() > most) {
      blame(key, "is not a text in range");
      return {};
    }
    return value->get<std::string>();
  }
  // A text whose bytes may be anything but 0.
  std::string bytes(const char* key, size_t most) {
    Result<std::string> decoded = percent_decode(text(key, 3 * most));
    if (!decoded.ok() || decoded->size() > most) {
      blame(key, "is not a percent-encoded name in range");
      return {};
    }
    return std::move(decoded).value();
  }
  const Json::array_t& list(const char* key, size_t most) {
    static const Json::array_t kNone;
    const Json* value = find(key);
    if (value == nullptr) return kNone;
    if (!value->is_array() || value->size() > most) {
      blame(key, "is not a list in range");
      return kNone;
    }
    return value->get_ref<const Json::array_t&>();
  }
  // A list of pairs of numbers.
  std::vector<std::pair<uint64_t, uint64_t>> pairs(const char* key, size_t most) {
    std::vector<std::pair<uint64_t, uint64_t>> out;
    for (const Json& pair : list(key, most)) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
          !pair[1].is_number_unsigned()) {
        blame(key, "is not a list of pairs of numbers");
        return {};
      }
      out.emplace_back(pair[0].get<uint64_t>(), pair[1].get<uint64_t>());
    }
    return out;
  }
  void blame(const char* key, const char* what) {
    if (problem_.empty()) problem_ = fmt::format("'{}' {}", key, what);
  }

 private:
  // Absent fields have their default, which keeps messages short.
  const Json* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto at = object_.find(key);
    return at == object_.end() ? nullptr : &*at;
  }
  const Json& object_;
  std::string& problem_;
};

Json to_json(const Hello& m) {
  return {{"farverbs-copy", m.version},
          {"operation", m.put ? "put" : "get"},
          {"path", percent_encode(m.path)},
          {"wants_directory", m.wants_directory},
          {"name", percent_encode(m.name)},
          {"directory", m.directory},
          {"recursive", m.recursive},
          {"always", m.always},
          {"sync", m.sync},
          {"class", model::to_string(m.traffic)}};
}

Json to_json(const Welcome& m) {
  return {{"welcome", m.version},
          {"error", m.error},
          {"message", percent_encode(m.message)},
          {"name", percent_encode(m.name)},
          {"directory", m.directory}};
}

Json to_json(const Goodbye& m) {
  return {{"goodbye", m.error}, {"message", percent_encode(m.message)}};
}

Json to_json(const Entry& e) {
  static constexpr const char* kKinds[] = {"file", "directory", "link"};
  Json json = {{"id", e.id},
               {"kind", kKinds[static_cast<size_t>(e.kind)]},
               {"path", percent_encode(e.path)},
               {"mode", e.mode},
               {"mtime", e.mtime_ns}};
  if (e.kind == EntryKind::kLink) json["target"] = percent_encode(e.target);
  if (e.kind == EntryKind::kFile) {
    json["size"] = e.size;
    json["identity"] = e.identity;
  }
  if (e.sparse) {
    Json extents = Json::array();
    for (const Extent& extent : e.extents) extents.push_back({extent.offset, extent.length});
    json["extents"] = std::move(extents);
  }
  return json;
}

Json to_json(const Entries& m) {
  Json entries = Json::array();
  for (const Entry& entry : m.entries) entries.push_back(to_json(entry));
  Json json = {{"entries", std::move(entries)}};
  for (const Note& note : m.notes) {
    json["notes"].push_back(
        {{"path", percent_encode(note.path)}, {"message", percent_encode(note.message)}});
  }
  if (m.last) json["last"] = true;
  return json;
}

Json to_json(const Answers& m) {
  Json grants = Json::array();
  for (const Grant& grant : m.grants) {
    grants.push_back({{"file", grant.file},
                      {"offset", grant.offset},
                      {"length", grant.length},
                      {"address", grant.address},
                      {"key", grant.key},
                      {"pieces", grant.pieces}});
  }
  Json json = {{"grants", std::move(grants)}};
  for (const Settled& settled : m.settled) {
    Json one = {{"file", settled.file}};
    if (!settled.ok) one["failed"] = percent_encode(settled.message);
    if (settled.unchanged) one["unchanged"] = true;
    if (settled.resumed_bytes != 0) one["resumed"] = settled.resumed_bytes;
    json["settled"].push_back(std::move(one));
  }
  if (m.finished) json["finished"] = true;
  return json;
}

Hello read_hello(Fields fields) {
  Hello m;
  m.version = static_cast<unsigned>(fields.number("farverbs-copy", UINT16_MAX));
  const std::string operation = fields.text("operation", 8);
  m.put = operation == "put";
  if (!m.put && operation != "get") fields.blame("operation", "is neither put nor get");
  m.path = fields.bytes("path", kMaxPathBytes);
  m.wants_directory = fields.flag("wants_directory");
  m.name = fields.bytes("name", 255);
  m.directory = fields.flag("directory");
  m.recursive = fields.flag("recursive");
  m.always = fields.flag("always");
  m.sync = fields.flag("sync");
  if (const std::string name = fields.text("class", 16); !name.empty()) {
    const auto traffic = model::parse_traffic_class(name);
    if (!traffic.has_value()) fields.blame("class", "is no traffic class");
    m.traffic = traffic.value_or(model::TrafficClass::kBulk);
  }
  return m;
}

Welcome read_welcome(Fields fields) {
  Welcome m;
  m.version = static_cast<unsigned>(fields.number("welcome", UINT16_MAX));
  m.error = static_cast<int>(fields.number("error", 4096));
  m.message = fields.bytes("message", kMaxTextBytes);
  m.name = fields.bytes("name", 255);
  m.directory = fields.flag("directory");
  return m;
}

Entry read_entry(Fields fields) {
  Entry e;
  e.id = static_cast<uint32_t>(fields.number("id", UINT32_MAX));
  const std::string kind = fields.text("kind", 16);
  if (kind == "directory") {
    e.kind = EntryKind::kDirectory;
  } else if (kind == "link") {
    e.kind = EntryKind::kLink;
  } else if (kind != "file") {
    fields.blame("kind", "is unknown");
  }
  e.path = fields.bytes("path", kMaxPathBytes);
  e.mode = static_cast<uint32_t>(fields.number("mode", 07777));
  e.mtime_ns = fields.signed_number("mtime");
  e.size = fields.number("size", kMaxFileBytes);
  e.identity = fields.text("identity", 64);
  e.target = fields.bytes("target", kMaxPathBytes);
  for (const auto& [offset, length] : fields.pairs("extents", kMaxExtents)) {
    e.extents.push_back({offset, length});
  }
  return e;
}

Entries read_entries(Fields fields, std::string& problem) {
  Entries m;
  for (const Json& entry : fields.list("entries", kMaxEntriesPerMessage)) {
    m.entries.push_back(read_entry(Fields(entry, problem)));
    m.entries.back().sparse = entry.is_object() && entry.contains("extents");
  }
  for (const Json& note : fields.list("notes", kMaxEntriesPerMessage)) {
    Fields one(note, problem);
    m.notes.push_back({one.bytes("path", kMaxPathBytes), one.bytes("message", kMaxTextBytes)});
  }
  m.last = fields.flag("last");
  return m;
}

Answers read_answers(Fields fields, std::string& problem) {
  Answers m;
  for (const Json& json : fields.list("grants", kMaxAnswersPerMessage)) {
    Fields one(json, problem);
    Grant grant;
    grant.file = static_cast<uint32_t>(one.number("file", UINT32_MAX));
    grant.offset = one.number("offset", kMaxFileBytes);
    grant.length = one.number("length", kWindowBytes);
    grant.address = one.number("address", UINT64_MAX);
    grant.key = static_cast<uint32_t>(one.number("key", UINT32_MAX));
    grant.pieces = one.pairs("pieces", kWindowBytes / kPieceBytes + kMaxExtents);
    m.grants.push_back(std::move(grant));
  }
  for (const Json& json : fields.list("settled", kMaxAnswersPerMessage)) {
    Fields one(json, problem);
    Settled settled;
    settled.file = static_cast<uint32_t>(one.number("file", UINT32_MAX));
    settled.ok = !(json.is_object() && json.contains("failed"));
    settled.message = one.bytes("failed", kMaxTextBytes);
    settled.unchanged = one.flag("unchanged");
    settled.resumed_bytes = one.number("resumed", kMaxFileBytes);
    m.settled.push_back(std::move(settled));
  }
  m.finished = fields.flag("finished");
  return m;
}

}  // namespace

std::string encode(const Message& message) {
  // Every text above is ASCII by then, so that dump() cannot throw.
  return std::visit([](const auto& m) { return to_json(m).dump(); }, message);
}

Result<Message> decode_message(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return Error{EPROTO, "the peer sent something that is not a message of farverbs cp"};
  }
  std::string problem;
  Message message;
  if (json.contains("farverbs-copy")) {
    message = read_hello(Fields(json, problem));
  } else if (json.contains("welcome")) {
    message = read_welcome(Fields(json, problem));
  } else if (json.contains("entries")) {
    message = read_entries(Fields(json, problem), problem);
  } else if (json.contains("goodbye")) {
    Fields fields(json, problem);
    message = Goodbye{static_cast<int>(fields.number("goodbye", 4096)),
                      fields.bytes("message", kMaxTextBytes)};
  } else if (json.contains("grants")) {
    message = read_answers(Fields(json, problem), problem);
  } else {
    problem = "unknown kind";
  }
  if (!problem.empty()) {
    return Error{EPROTO, fmt::format("the peer sent a malformed message: {}", problem)};
  }
  return message;
}

}  // namespace farverbs::tools::copy
