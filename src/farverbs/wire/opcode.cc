#include "farverbs/wire/opcode.h"

#include <cstdio>
#include <string>

namespace farverbs::wire {
namespace {

constexpr const char* kServiceNames[] = {"RC", "UC", "RD", "UD", "CNP", "XRC", "MANUFACTURER", ""};

std::string describe(size_t opcode) {
  const OpcodeInfo& info = kOpcodeTable[opcode];
  char number[8];
  std::snprintf(number, sizeof number, "0x%02zx", opcode);
  if (!info.known()) return std::string("UNKNOWN ") + number;
  std::string service = kServiceNames[static_cast<size_t>(info.service)];
  std::string kind;
  bool positioned = true;
  switch (info.kind) {
    case OpKind::send:
      kind = "SEND";
      break;
    case OpKind::write:
      kind = "WRITE";
      break;
    case OpKind::read_response:
      kind = "READ_RESPONSE";
      break;
    case OpKind::read_request:
      kind = "READ_REQUEST", positioned = false;
      break;
    case OpKind::ack:
      kind = "ACK", positioned = false;
      break;
    case OpKind::atomic_ack:
      kind = "ATOMIC_ACK", positioned = false;
      break;
    case OpKind::compare_swap:
      kind = "COMPARE_SWAP", positioned = false;
      break;
    case OpKind::fetch_add:
      kind = "FETCH_ADD", positioned = false;
      break;
    case OpKind::resync:
      kind = "RESYNC", positioned = false;
      break;
    case OpKind::probe:
      kind = "PROBE";
      break;
    case OpKind::path_challenge:
      kind = "PATH_CHALLENGE";
      break;
    case OpKind::path_response:
      kind = "PATH_RESPONSE";
      break;
    case OpKind::repair:
      kind = "REPAIR";
      break;
    case OpKind::manufacturer:
      return service + " " + number;
    case OpKind::notification:
    case OpKind::unknown:
      return service;
  }
  if (info.has(Extension::far_base)) service = "FAR", positioned = false;
  if (positioned) {
    constexpr const char* kPositions[] = {"_MIDDLE", "_FIRST", "_LAST", "_ONLY"};
    kind += kPositions[static_cast<size_t>(info.position)];
  }
  if (info.has(Extension::imm)) kind += "_IMM";
  if (info.has(Extension::ieth)) kind += "_INVALIDATE";
  return service + " " + kind;
}

struct Names {
  std::array<std::string, 256> text;
  Names() {
    for (size_t op = 0; op < text.size(); ++op) text[op] = describe(op);
  }
};

}  // namespace

const char* opcode_name(uint8_t opcode) {
  static const Names names;
  return names.text[opcode].c_str();
}

}  // namespace farverbs::wire
