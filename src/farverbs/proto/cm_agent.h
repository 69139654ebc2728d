// CmAgent: the connection manager of one process (IBTA volume 1, chapter 12: communication
// management; annex A11: its use between IP addresses), sans-IO. Datagrams and time go in;
// datagrams, events and a deadline come out:
//
//   connect(), accept(), ...   commands of the application
//   on_request()               a REQ or SIDR_REQ, with the listener whose service it names
//   on_message()               any other message
//   on_timer()                 the deadline that next_timer() named has come
//   poll_transmit()            the next datagram to send
//   poll_event()               what the application should know next
//
// After any call both polls are asked until they have nothing more. A connection is known by its
// local communication identifier until it is destroyed. Who waits sends again at growing intervals,
// for as long in all as the timeouts and retries in the messages say.
//
// Between ends of this code a connection is also watched: ends that have heard nothing for a while
// ask each other. The question is a message that standard peers know as a repeated one, REP or RTU,
// and an end that is not of this code (kMark was not in its REQ or REP) is never asked.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/prng.h"
#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "farverbs/wire/cm_messages.h"

namespace farverbs::proto {

// Where a connection's datagrams go, and its packets.
struct CmPath {
  IpAddress local;
  IpAddress remote;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint8_t service_level = 0;
  uint32_t flow_label = 0;
};

// The application's bytes that travel with a message.
struct CmPrivateData {
  std::array<std::byte, wire::CmRtu::kPrivateBytes> bytes{};
  uint8_t size = 0;
  std::span<const std::byte> view() const { return std::span(bytes).first(size); }
};

// What an end says of itself in REQ and REP.
struct CmEnd {
  Qpn qpn;
  Psn starting_psn;  // at which the other end shall begin to send
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  bool flow_control = false;
  uint8_t retry_count = 0;  // REQ only
  uint8_t rnr_retry_count = 0;
  bool srq = false;
  uint32_t qkey = 0;         // SIDR_REP
  uint8_t path_mtu = 3;      // REQ: a model::PathMtu's code
  uint8_t ack_timeout = 19;  // REQ: 4.096 us * 2^n
  uint8_t transport = 0;     // REQ: wire::CmTransport
  uint8_t extended_transport = 0;
  uint64_t guid = 0;
};

struct CmConnect {
  CmPath path;
  uint64_t service_id = 0;
  uint16_t source_port = 0;
  CmEnd end;                                // only the GUID for a datagram service (SIDR)
  std::span<const std::byte> private_data;  // kCmReqUserBytes or kSidrReqUserBytes at most
  bool datagram = false;
};

enum class CmEventType : uint8_t {
  kRequest,       // a connection is wanted: accept(), reject() or destroy() it
  kReply,         // connect() was accepted: establish(), reject() or destroy()
  kEstablished,   // the active end has confirmed (passive end)
  kRejected,      // by the peer; `reason`
  kUnreachable,   // no answer
  kDisconnected,  // by the peer, because disconnect() is done, or because the peer is gone
  kTimewaitExit,  // nothing of the connection can come any more
};

struct CmEvent {
  CmEventType type = CmEventType::kRequest;
  uint32_t id = 0;
  uint64_t listener = 0;   // kRequest
  bool datagram = false;   // about a datagram service
  bool timed_out = false;  // kDisconnected: no answer, or the peer is gone
  uint16_t reason = 0;     // kRejected: REJ's reason; of a datagram service, SIDR_REP's status
  uint64_t service_id = 0;
  CmPath path;
  uint16_t remote_port = 0;  // kRequest
  CmEnd peer;                // kRequest, kReply
  // All that the message has room for, as other implementations give it.
  CmPrivateData private_data;
};

struct CmOutgoing {
  CmPath path;
  wire::Mad mad;
};

struct CmConfig {
  uint16_t agent = 0;             // in the top 12 bits of identifiers
  uint8_t response_timeout = 20;  // 4.096 us * 2^n: 4.3 s
  uint8_t max_retries = 15;
  Duration first_retry = Duration::milliseconds(250);
  Duration longest_retry = Duration::seconds(1);
  Duration disconnect_give_up = Duration::seconds(10);
  Duration timewait = Duration::milliseconds(500);
  // Watching: ask after so long without a word, and give up after so long.
  Duration ask_after = Duration::seconds(5);
  Duration gone_after = Duration::seconds(30);
  // Requests beyond these are dropped; who means it asks again.
  size_t most_connections = 65'536;
  size_t most_half_open = 8'192;
};

struct CmCounters {
  uint64_t received = 0;
  uint64_t dropped = 0;     // malformed, unknown, out of place
  uint64_t overflowed = 0;  // requests beyond the limits
  uint64_t repeated = 0;    // sent again
};

class CmAgent {
 public:
  // In REQ's and REP's attribute modifier, where other implementations send zero and do not look:
  // this end answers when it is asked. In RTU's: it asks.
  static constexpr uint32_t kMark = 0x4676'0001;

  CmAgent(const CmConfig& config, Entropy& entropy) : config_(config), entropy_(entropy) {}

  // A listener is a number of the caller's. Of its requests `backlog` may wait for an answer.
  void listen(uint64_t listener, size_t backlog);
  // Its requests that nobody has answered are rejected.
  void stop_listening(Time now, uint64_t listener);

  // ENOMEM: too many connections; EINVAL: the private data is too long.
  Result<uint32_t> connect(Time now, const CmConnect& request);
  // EINVAL in all of these: the connection is not in a state for it.
  Result<void> accept(Time now, uint32_t id, const CmEnd& end,
                      std::span<const std::byte> private_data);
  Result<void> reject(Time now, uint32_t id, wire::CmReject reason,
                      std::span<const std::byte> private_data);
  // A SIDR_REP that refuses, or gives a QP.
  Result<void> answer_datagram(Time now, uint32_t id, wire::SidrStatus status, const CmEnd& end,
                               std::span<const std::byte> private_data);
  // After kReply: RTU.
  Result<void> establish(Time now, uint32_t id);
  // Passive end: data came before the RTU did.
  Result<void> on_data(Time now, uint32_t id);
  Result<void> disconnect(Time now, uint32_t id);
  // Says farewell in whatever state it is; nothing is told of it any more.
  void destroy(Time now, uint32_t id);
  // One farewell to every peer: the process ends.
  void shut_down(Time now);

  void on_request(Time now, uint64_t listener, const CmPath& path, std::span<const std::byte> mad);
  void on_message(Time now, const CmPath& path, std::span<const std::byte> mad);
  void on_timer(Time now);
  Time next_timer() const { return timers_.empty() ? Time::never() : timers_.begin()->first; }
  std::optional<CmOutgoing> poll_transmit();
  std::optional<CmEvent> poll_event();

  size_t connection_count() const { return connections_.size(); }
  const CmCounters& counters() const { return counters_; }

 private:
  enum class State : uint8_t {
    kReqSent,
    kReqReceived,
    kRepSent,
    kRepReceived,
    kEstablished,
    kDreqSent,
    kTimeWait,
    kSidrSent,
    kSidrReceived,
    kSidrAnswered,
    kClosed,  // nothing more to say until it is destroyed
  };
  struct PeerKey {
    IpAddress address;
    uint32_t number;  // its communication identifier, request identifier or QPN
    auto operator<=>(const PeerKey&) const = default;
  };
  struct Connection {
    uint32_t id = 0;
    uint32_t remote_id = 0;
    State state = State::kClosed;
    bool active = false;
    bool datagram = false;
    bool marked = false;     // the peer answers when asked
    bool orphan = false;     // destroyed; stays until the farewell is through
    bool half_open = false;  // counted as such
    CmPath path;
    uint64_t service_id = 0;
    uint64_t transaction = 0;
    uint64_t listener = 0;
    uint32_t remote_qpn = 0;
    // Sent again until it is answered, or as the answer to what comes again.
    wire::Mad message;
    Time give_up = Time::never();
    Duration interval;
    Time heard;
    Time timer = Time::never();
  };

  Connection* find(uint32_t id);
  Connection* find_from(uint32_t id, const CmPath& path);
  Connection& create(const CmPath& path);
  uint32_t draw_id();
  void forget_peer(const Connection& c);
  void forget_qpn(const Connection& c);
  void erase(Connection& c);
  void set_timer(Connection& c, Time at);
  void set_state(Connection& c, State state);
  void send(const Connection& c, const wire::Mad& mad);
  void send_until_answered(Time now, Connection& c, const wire::Mad& mad, Duration give_up);
  void repeat(Time now, Connection& c);
  void send_rejection(const Connection& c, wire::CmRejected message, wire::CmReject reason,
                      std::span<const std::byte> private_data);
  CmEvent& tell(CmEventType type, const Connection& c);
  // The connection ends; the application is told so.
  void end(Time now, Connection& c, bool timed_out);
  void close(Connection& c);
  void give_up(Time now, Connection& c);
  void watch(Time now, Connection& c);
  Duration response_time() const;

  void on_req(Time now, uint64_t listener, const CmPath& path, const wire::MadHeader& header,
              const wire::CmReq& req);
  void on_req_again(const Connection& c);
  void on_sidr_req(Time now, uint64_t listener, const CmPath& path, const wire::MadHeader& header,
                   const wire::CmSidrReq& req);
  void on_rep(Time now, const CmPath& path, const wire::MadHeader& header, const wire::CmRep& rep);
  void on_rtu(Time now, const CmPath& path, const wire::MadHeader& header, const wire::CmRtu& rtu);
  void on_rej(Time now, const CmPath& path, const wire::CmRej& rej);
  void on_mra(Time now, const CmPath& path, const wire::CmMra& mra);
  void on_dreq(Time now, const CmPath& path, const wire::MadHeader& header,
               const wire::CmDreq& dreq);
  void on_drep(Time now, const CmPath& path, const wire::CmDrep& drep);
  void on_lap(const CmPath& path, const wire::MadHeader& header, const wire::CmLap& lap);
  void on_sidr_rep(Time now, const CmPath& path, const wire::CmSidrRep& rep);
  // To who speaks of a connection that this end does not know.
  void tell_unknown(const CmPath& path, const wire::MadHeader& header, uint32_t peer,
                    wire::CmRejected message);
  // Room for one more of the listener's; nullptr if there is none.
  Connection* admit(uint64_t listener, const CmPath& path);

  struct Listener {
    size_t backlog = 0;
    size_t pending = 0;
  };

  CmConfig config_;
  Entropy& entropy_;
  std::unordered_map<uint32_t, Connection> connections_;
  std::unordered_map<uint64_t, Listener> listeners_;
  std::map<PeerKey, uint32_t> by_remote_id_;   // passive ends
  std::map<PeerKey, uint32_t> by_remote_qpn_;  // passive ends
  std::set<std::pair<Time, uint32_t>> timers_;
  size_t half_open_ = 0;
  std::deque<CmOutgoing> outgoing_;
  std::deque<CmEvent> events_;
  CmCounters counters_;
};

}  // namespace farverbs::proto
