#include "tools/ping/responder.h"

#include <array>
#include <cstring>

#include "tools/common/process_usage.h"

namespace farverbs::tools::ping {
namespace {

constexpr Duration kLook = Duration::milliseconds(100);
constexpr uint64_t kSendTag = UINT64_C(1) << 63;

// The slot that a message came into is sent from, and receives again once it has left.
Result<void> answer(EchoEnd& end, const verbs::WorkCompletion& completion) {
  const auto qp = static_cast<uint32_t>((completion.wr_id & ~kSendTag) >> 32);
  const auto slot = static_cast<uint32_t>(completion.wr_id);
  if ((completion.wr_id & kSendTag) != 0) return end.post_receive(qp, slot);
  if (completion.status != verbs::CompletionStatus::kSuccess) return {};  // flushed: the QP is dead
  const verbs::ScatterGatherElement sge = end.receive_slot(qp, slot, completion.byte_length);
  verbs::SendWorkRequest request;
  request.wr_id = completion.wr_id | kSendTag;
  request.opcode = verbs::SendOpcode::kSend;
  request.flags = model::kSignaled;
  request.sges = {&sge, 1};
  return end.qps[qp].post_send(request);
}

Result<void> converse(verbs::Device& device, verbs::Rendezvous& connection, const Json& hello,
                      const std::function<bool()>& stopping) {
  FV_ASSIGN(const uint64_t version, json_unsigned(hello, "version", 0, UINT32_MAX));
  if (version != kSessionVersion) {
    return Error{EPROTO, "the two sides have different versions of ping: use the same farverbs"};
  }
  FV_ASSIGN(const Json description, json_object(hello, "endpoint"));
  FV_ASSIGN(EchoEnd end, make_echo_end(device, device.port().max_path_mtu));
  FV_TRY(connect(end, description, connection.peer_address()));
  FV_TRY(connection.send(Json{{"endpoint", describe(end)}}.dump()));

  Time next_look = clock_now() + kLook;
  std::array<verbs::WorkCompletion, kSlots> completions;
  for (;;) {
    const size_t count = end.cq.wait(completions, kLook);
    for (size_t i = 0; i < count; ++i) FV_TRY(answer(end, completions[i]));
    if (const Time now = clock_now(); now >= next_look) {
      next_look = now + kLook;
      if (stopping && stopping()) return Error{ECANCELED, "the server ends"};
      const Result<std::string> said = connection.receive(Duration());
      if (said.ok() || said.error().code == ETIMEDOUT) continue;
      if (said.error().code == EPIPE) return {};
      return said.error();
    }
  }
}

}  // namespace

std::optional<Json> ping_hello(const std::string& first_message) {
  Result<Json> hello = parse_json_object(first_message);
  if (!hello.ok()) return {};
  const Result<std::string> kind = json_string(*hello, "farverbs");
  if (!kind.ok() || *kind != kSessionKind) return {};
  return std::move(hello).value();
}

Result<void> respond(verbs::Device& device, verbs::Rendezvous& connection, const Json& hello,
                     const std::function<bool()>& stopping) {
  Result<void> done = converse(device, connection, hello, stopping);
  if (!done.ok()) (void)connection.send(json_error_message(done.error().message));
  return done;
}

}  // namespace farverbs::tools::ping
