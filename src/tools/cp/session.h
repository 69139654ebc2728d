// The conversation around a transfer: what client and server say to each other before one of them
// becomes the sender and the other the receiver.
#pragma once

#include <functional>

#include "farverbs/base/result.h"
#include "farverbs/verbs/rendezvous.h"
#include "tools/cp/link.h"
#include "tools/cp/messages.h"

namespace farverbs::tools::copy {

inline Result<void> send_message(verbs::Rendezvous& rendezvous, const Message& message) {
  return rendezvous.send(encode(message));
}

// The message that `text` is, which must be a T.
template <typename T>
Result<T> message_of(const std::string& text) {
  FV_ASSIGN(Message message, decode_message(text));
  T* wanted = std::get_if<T>(&message);
  if (wanted == nullptr) return Error{EPROTO, "the peer sent a message that is not its turn"};
  return std::move(*wanted);
}

// The next message, which must be a T.
template <typename T>
Result<T> receive_message(verbs::Rendezvous& rendezvous, Duration timeout) {
  FV_ASSIGN(const std::string text, rendezvous.receive(timeout));
  return message_of<T>(text);
}

// Runs one end of a transfer; if it fails, the peer hears why before the connection goes.
template <typename End>
Result<void> run_end(End& end, Link& link, const std::function<bool()>& stop) {
  Result<void> result = end.run(stop);
  if (!result.ok() && result.error().code != EPIPE) {
    const bool stopped = result.error().code == ECANCELED;
    (void)link.send(encode(Goodbye{
        stopped ? ESHUTDOWN : result.error().code,
        stopped ? "the peer was told to end" : result.error().message.substr(0, kMaxTextBytes)}));
  }
  return result;
}

}  // namespace farverbs::tools::copy
