#include "farverbs/io/fault_port.h"

#include <algorithm>
#include <utility>

namespace farverbs::io {

size_t FaultPort::receive(std::span<RxBurst> bursts) {
  kept_.clear();
  if (bursts.empty()) return 0;
  bool idle = false;
  if (!repeats_ && next_ == taken_count_) {
    taken_count_ = inner_->receive(std::span(taken_).first(std::min(bursts.size(), taken_.size())));
    next_ = offset_ = 0;
    idle = taken_count_ == 0;
  }
  size_t count = 0;
  while (count < bursts.size() && (release_held(bursts[count], idle) || take_next(bursts[count]))) {
    ++count;
  }
  return count;
}

FaultPort::Fate FaultPort::draw() {
  if (std::exchange(has_fate_, false)) return fate_;
  // Every datagram takes the same numbers, so that a rate of 0 does not shift what follows.
  const bool lost = prng_.chance(rates_.loss);
  const bool duplicated = prng_.chance(rates_.duplication);
  const bool corrupted = prng_.chance(rates_.corruption);
  const bool reordered = prng_.chance(rates_.reordering);
  if (lost) return Fate::kLost;
  if (duplicated) return Fate::kDuplicated;
  if (corrupted) return Fate::kCorrupted;
  return reordered ? Fate::kReordered : Fate::kUnharmed;
}

namespace {

RxBurst part_of(const RxBurst& burst, size_t from, size_t to) {
  RxBurst run = burst;
  run.bytes = burst.bytes.subspan(from, to - from);
  run.segment_size = std::min(burst.segment_size, run.bytes.size());
  return run;
}

}  // namespace

// The next run of unharmed datagrams, or one that is not.
bool FaultPort::take_next(RxBurst& out) {
  if (std::exchange(repeats_, false)) {
    out = repeat_;
    return true;
  }
  while (next_ < taken_count_) {
    const RxBurst& burst = taken_[next_];
    const size_t size = burst.bytes.size();
    if (offset_ == size) {
      offset_ = 0;
      ++next_;
      continue;
    }
    const size_t start = offset_;
    const size_t limit = until_next_held();
    size_t count = 0;
    Fate fate = draw();
    while (fate == Fate::kUnharmed) {
      offset_ = std::min(offset_ + burst.segment_size, size);
      if (++count == limit || offset_ == size) break;
      fate = draw();
    }
    if (count > 0) {
      has_fate_ = fate != Fate::kUnharmed;  // of the datagram that ended the run
      fate_ = fate;
      out = part_of(burst, start, offset_);
      pass(count);
      return true;
    }
    offset_ = std::min(offset_ + burst.segment_size, size);
    if (suffer(fate, part_of(burst, start, offset_), out)) return true;
  }
  return false;
}

// Lets one datagram have its fate; false if there is nothing to deliver now.
bool FaultPort::suffer(Fate fate, const RxBurst& datagram, RxBurst& out) {
  Held copy{{datagram.bytes.begin(), datagram.bytes.end()}, datagram, 0};
  switch (fate) {
    case Fate::kUnharmed:
    case Fate::kLost:
      ++faults_.lost;
      return false;
    case Fate::kDuplicated:
      ++faults_.duplicated;
      out = repeat_ = datagram;
      repeats_ = true;
      break;
    case Fate::kCorrupted:
      ++faults_.corrupted;
      for (uint64_t flips = prng_.between(1, 3); flips > 0; --flips) {
        const uint64_t bit = prng_.below(copy.bytes.size() * 8);
        copy.bytes[bit / 8] ^= std::byte(1u << (bit % 8));
      }
      keep(std::move(copy), out);
      break;
    case Fate::kReordered:
      ++faults_.reordered;
      copy.after = static_cast<unsigned>(prng_.between(1, std::max(rates_.reorder_distance, 1u)));
      held_.push_back(std::move(copy));
      return false;
  }
  pass(1);
  return true;
}

// How many datagrams may pass before one that is held back is due.
size_t FaultPort::until_next_held() const {
  size_t least = SIZE_MAX;
  for (const Held& held : held_) least = std::min<size_t>(least, held.after);
  return least;
}

void FaultPort::pass(size_t datagrams) {
  for (Held& held : held_)
    held.after -= static_cast<unsigned>(std::min<size_t>(held.after, datagrams));
}

bool FaultPort::release_held(RxBurst& out, bool all) {
  for (auto held = held_.begin(); held != held_.end(); ++held) {
    if (held->after > 0 && !all) continue;
    Held due = std::move(*held);
    held_.erase(held);
    keep(std::move(due), out);
    return true;
  }
  return false;
}

void FaultPort::keep(Held held, RxBurst& out) {
  kept_.push_back(std::move(held));  // a vector's memory stays in place when it is moved
  out = kept_.back().burst;
  out.bytes = kept_.back().bytes;
}

}  // namespace farverbs::io
