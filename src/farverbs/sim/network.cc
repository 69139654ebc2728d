#include "farverbs/sim/network.h"

#include <algorithm>

namespace farverbs::sim {

// --- SimPort ---

SimPort::SimPort(Network& network, Endpoint local) : network_(network), local_(local) {
  limits_.max_datagrams_per_burst = 64;
  limits_.max_burst_bytes = 65'507;
  limits_.max_datagram = 65'507;
  limits_.receives_merged = true;
}

io::SendStatus SimPort::send(const io::TxFlow& flow, const wire::TxBurst& burst) {
  const std::span<const std::byte> bytes = burst.bytes();
  for (size_t at = 0; at < bytes.size(); at += burst.segment_size()) {
    network_.transmit(local_, flow,
                      bytes.subspan(at, std::min(burst.segment_size(), bytes.size() - at)));
  }
  ++counters_.sent_bursts;
  counters_.sent_datagrams += burst.count();
  counters_.sent_bytes += bytes.size();
  return io::SendStatus::kSent;
}

void SimPort::arrive(Datagram datagram) {
  if (inbox_bytes_ + datagram.bytes.size() > receive_buffer_) {
    ++counters_.receive_overflows;
    return;
  }
  inbox_bytes_ += datagram.bytes.size();
  inbox_.push_back(std::move(datagram));
}

size_t SimPort::receive(std::span<io::RxBurst> bursts) {
  handed_out_.clear();
  size_t n = 0;
  while (n < bursts.size() && !inbox_.empty()) {
    Datagram first = std::move(inbox_.front());
    inbox_.pop_front();
    const size_t segment = first.bytes.size();
    inbox_bytes_ -= segment;
    std::vector<std::byte> merged = std::move(first.bytes);
    size_t last = segment;
    size_t count = 1;
    while (merging_ && !inbox_.empty() && last == segment && count < 64) {
      Datagram& next = inbox_.front();
      if (next.source != first.source || next.traffic_class != first.traffic_class ||
          next.bytes.size() > segment || merged.size() + next.bytes.size() > 65'507) {
        break;
      }
      merged.insert(merged.end(), next.bytes.begin(), next.bytes.end());
      last = next.bytes.size();
      inbox_bytes_ -= last;
      inbox_.pop_front();
      ++count;
    }
    counters_.received_bytes += merged.size();
    counters_.received_datagrams += count;
    ++counters_.received_bursts;
    handed_out_.push_back(std::move(merged));
    bursts[n++] = {handed_out_.back(), segment, first.source, local_, first.traffic_class};
  }
  return n;
}

// --- Network ---

std::unique_ptr<SimPort> Network::open(Endpoint local) {
  auto port = std::make_unique<SimPort>(*this, local);
  FV_CHECK(ports_.emplace(local, port.get()).second);
  return port;
}

void Network::close(SimPort& port) { ports_.erase(port.local()); }

void Network::rebind(const Endpoint& host, const Endpoint& seen_as) {
  behind_.erase(seen(host));
  seen_as_[host] = seen_as;
  behind_[seen_as] = host;
}

void Network::pair(const Endpoint& host, const Endpoint& alias, const Endpoint& other,
                   const Endpoint& other_alias) {
  behind_[alias] = host;
  behind_[other_alias] = other;
  twins_[alias] = other_alias;
  twins_[other_alias] = alias;
}

const Endpoint& Network::seen(const Endpoint& host) const {
  const auto found = seen_as_.find(host);
  return found != seen_as_.end() ? found->second : host;
}

Network::Link& Network::find_link(const IpAddress& from, const IpAddress& to) {
  return links_[{from, to}];
}

LinkSpec& Network::link(const IpAddress& from, const IpAddress& to) {
  return find_link(from, to).spec;
}

const LinkCounters& Network::counters(const IpAddress& from, const IpAddress& to) {
  return find_link(from, to).counters;
}

bool Network::lose(Link& link) {
  const LinkSpec& spec = link.spec;
  if (spec.down) return true;
  if (spec.loss <= 0) return false;
  if (spec.burst_loss_length <= 1) return prng_.chance(spec.loss);
  // Gilbert: leaves a burst with 1/length, enters it so that the mean loss is as asked.
  const double leave = 1 / spec.burst_loss_length;
  const double enter = leave * spec.loss / (1 - spec.loss);
  link.in_loss_burst = prng_.chance(link.in_loss_burst ? 1 - leave : enter);
  return link.in_loss_burst;
}

void Network::transmit(const Endpoint& host, const io::TxFlow& flow,
                       std::span<const std::byte> bytes) {
  const auto twin = twins_.find(flow.destination);
  const Endpoint& from = twin != twins_.end() ? twin->second : seen(host);
  Link& link = find_link(from.address, flow.destination.address);
  const LinkSpec& spec = link.spec;
  ++link.counters.offered;
  // The queue is what has not left by now.
  Time& busy_until = spec.bottleneck != nullptr ? *spec.bottleneck : link.busy_until;
  const Time start = std::max(now_, busy_until);
  const uint64_t queued = spec.rate.bytes_for(start - now_);
  if (bytes.size() > spec.max_datagram || queued + bytes.size() > spec.queue_bytes) {
    ++link.counters.queue_dropped;
    return;
  }
  busy_until = start + spec.rate.time_for(bytes.size() + kWireOverhead);
  if (lose(link)) {
    ++link.counters.lost;
    return;
  }
  SimPort::Datagram datagram{from, flow.traffic_class, {bytes.begin(), bytes.end()}};
  if (spec.mark_bytes > 0 && queued > spec.mark_bytes && (flow.traffic_class & 3) != 0) {
    ++link.counters.marked;
    datagram.traffic_class |= 3;
  }
  if (prng_.chance(spec.corrupt)) {
    ++link.counters.corrupted;
    const uint64_t bit = prng_.below(bytes.size() * 8);
    datagram.bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  Time at = busy_until + spec.delay;
  if (spec.jitter.ns() > 0) {
    at = at + Duration::nanoseconds(
                  static_cast<int64_t>(prng_.below(static_cast<uint64_t>(spec.jitter.ns()))));
  }
  at = std::max(at, link.last_arrival);
  if (prng_.chance(spec.reorder)) {
    ++link.counters.reordered;
    Duration late = spec.reorder_delay;
    if (spec.reorder_up_to) {
      late = Duration::nanoseconds(static_cast<int64_t>(
          prng_.between(1, static_cast<uint64_t>(std::max<int64_t>(late.ns(), 1)))));
    }
    at = at + late;
  } else {
    link.last_arrival = at;
  }
  if (prng_.chance(spec.duplicate)) {
    ++link.counters.duplicated;
    schedule(link, at + Duration::microseconds(static_cast<int64_t>(prng_.below(500))),
             flow.destination, datagram);
  }
  schedule(link, at, flow.destination, std::move(datagram));
}

void Network::schedule(Link& link, Time at, const Endpoint& to, SimPort::Datagram datagram) {
  ++link.counters.delivered;
  arrivals_.push({at, order_++, to, std::make_shared<SimPort::Datagram>(std::move(datagram))});
}

void Network::advance(Time to) {
  FV_CHECK(to >= now_);
  while (!arrivals_.empty() && arrivals_.top().at <= to) {
    Arrival arrival = arrivals_.top();
    arrivals_.pop();
    const auto behind = behind_.find(arrival.to);
    auto port = ports_.find(behind != behind_.end() ? behind->second : arrival.to);
    const bool known = behind != behind_.end() || !seen_as_.contains(arrival.to);
    if (known && port != ports_.end()) port->second->arrive(std::move(*arrival.datagram));
  }
  now_ = to;
}

}  // namespace farverbs::sim
