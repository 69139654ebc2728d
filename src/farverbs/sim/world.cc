#include "farverbs/sim/world.h"

#include <algorithm>

namespace farverbs::sim {

Host::Host(Network& network, Endpoint address, uint64_t seed, const engine::LoopConfig& config)
    : network_(network), address_(address), entropy_(seed), memory_(entropy_) {
  port_ = network.open(address);
  loop_ = std::make_unique<engine::Loop>(*port_, memory_, entropy_, config, /*slot=*/0);
}

Host::~Host() {
  // A process that dies sends nothing: first its port goes, then its QPs.
  network_.close(*port_);
  loop_.reset();
}

engine::LoopQp& Host::create_qp(const model::QpInit& init) {
  auto qp = loop_->create_qp(init, &events_);
  FV_CHECK(qp.ok());
  return **qp;
}

namespace {

void must(const Result<void>& result) {
  if (!result.ok()) {
    std::fprintf(stderr, "simulation: %s\n", result.error().message.c_str());
    FV_CHECK(result.ok());
  }
}

void to_rts(Time now, Host& host, engine::LoopQp& qp, const Endpoint& peer, Qpn peer_qpn, Psn first,
            Psn peer_first, const ConnectSpec& spec) {
  using namespace model;
  const bool rc = qp.pair.qp().type == QpType::kRc;
  QpAttributes a;
  a.state = QpState::kInit;
  a.access_flags = spec.access;
  must(host.loop().modify(now, qp, a, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags));
  if (rc && !spec.far) must(qp.pair.use_standard());
  if (rc && spec.far && !spec.in_band) must(qp.pair.use_far());
  a.state = QpState::kRtr;
  a.path_mtu = spec.path_mtu;
  a.destination_qpn = peer_qpn;
  a.rq_psn = peer_first;
  a.address_vector.destination_gid = peer.address.to_gid();
  a.address_vector.service_level = service_level_of(spec.traffic);
  a.max_dest_rd_atomic = spec.max_rd_atomic;
  a.min_rnr_timer = spec.min_rnr_timer;
  must(host.loop().modify(now, qp, a,
                          kAttrState | kAttrAddressVector | kAttrPathMtu | kAttrDestinationQpn |
                              kAttrRqPsn | (rc ? kAttrMaxDestRdAtomic | kAttrMinRnrTimer : 0)));
  a.state = QpState::kRts;
  a.sq_psn = first;
  a.timeout = spec.timeout;
  a.retry_count = spec.retry_count;
  a.rnr_retry = spec.rnr_retry;
  a.max_rd_atomic = spec.max_rd_atomic;
  must(host.loop().modify(
      now, qp, a,
      kAttrState | kAttrSqPsn |
          (rc ? kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxRdAtomic : 0)));
}

}  // namespace

void connect(Time now, Host& a, engine::LoopQp& qp_a, Host& b, engine::LoopQp& qp_b,
             const ConnectSpec& spec) {
  connect(now, a, qp_a, a.address(), b, qp_b, b.address(), spec);
}

void connect(Time now, Host& a, engine::LoopQp& qp_a, const Endpoint& at_a, Host& b,
             engine::LoopQp& qp_b, const Endpoint& at_b, const ConnectSpec& spec) {
  to_rts(now, a, qp_a, at_b, qp_b.pair.qp().qpn, spec.first_psn_a, spec.first_psn_b, spec);
  to_rts(now, b, qp_b, at_a, qp_a.pair.qp().qpn, spec.first_psn_b, spec.first_psn_a, spec);
}

Host& World::add_host(const std::string& address, const engine::LoopConfig& config) {
  const Endpoint endpoint{*IpAddress::parse(address), kRoceUdpPort};
  hosts_.push_back(std::make_unique<Host>(network, endpoint, prng_.next(), config));
  return *hosts_.back();
}

void World::kill(Host& host) {
  std::erase_if(hosts_, [&](const auto& h) { return h.get() == &host; });
}

Time World::next_event() const {
  Time next = network.next_arrival();
  for (const auto& host : hosts_) {
    Time due = host->loop_->next_deadline();
    if (host->port_->has_arrivals()) due = Time();
    next = std::min(next, std::max(due, host->stalled_until_));
  }
  return std::max(next, network.now());
}

void World::step_ready_hosts() {
  const Time now = network.now();
  for (const auto& host : hosts_) {
    if (now < host->stalled_until_) continue;
    if (!host->port_->has_arrivals() && host->loop_->next_deadline() > now) continue;
    if (lateness > 0 && prng_.chance(lateness)) {
      host->stalled_until_ = now + Duration::nanoseconds(static_cast<int64_t>(
                                       prng_.below(static_cast<uint64_t>(max_lateness.ns())) + 1));
      continue;
    }
    // Pollers and sleepers take turns, so that both kinds of step are exercised.
    host->loop_->step(now,
                      prng_.chance(0.5) ? engine::StepKind::kPolling : engine::StepKind::kLeaving);
    ++steps_;
    // A loop is not infinitely fast.
    host->stalled_until_ = now + Duration::microseconds(1);
  }
}

bool World::run(Duration limit, Duration act_every, const std::function<void()>& act,
                const std::function<bool()>& done) {
  const Time end = network.now() + limit;
  Time next_act = network.now();
  while (!done()) {
    const Time next = std::min({next_event(), next_act, end});
    network.advance(next);
    if (next >= end) return done();
    step_ready_hosts();
    act();
    if (next >= next_act) next_act = next + act_every;
  }
  return true;
}

}  // namespace farverbs::sim
