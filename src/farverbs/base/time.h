// Time and Duration: points and spans on a monotonic clock with nanosecond steps. Nothing below the
// engine reads a clock: `now` is passed in, so that the simulator can run years in seconds.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace farverbs {

class Duration {
 public:
  constexpr Duration() = default;
  static constexpr Duration nanoseconds(int64_t n) { return Duration(n); }
  static constexpr Duration microseconds(int64_t n) { return Duration(n * 1'000); }
  static constexpr Duration milliseconds(int64_t n) { return Duration(n * 1'000'000); }
  static constexpr Duration seconds(int64_t n) { return Duration(n * 1'000'000'000); }
  static constexpr Duration from_seconds(double s) {
    return Duration(static_cast<int64_t>(s * 1e9));
  }
  static constexpr Duration max() { return Duration(std::numeric_limits<int64_t>::max()); }

  constexpr int64_t ns() const { return ns_; }
  constexpr double to_seconds() const { return static_cast<double>(ns_) * 1e-9; }
  constexpr double to_microseconds() const { return static_cast<double>(ns_) * 1e-3; }

  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator-() const { return Duration(-ns_); }
  constexpr Duration& operator+=(Duration d) {
    ns_ += d.ns_;
    return *this;
  }
  constexpr Duration& operator-=(Duration d) {
    ns_ -= d.ns_;
    return *this;
  }
  friend constexpr Duration operator+(Duration a, Duration b) { return Duration(a.ns_ + b.ns_); }
  friend constexpr Duration operator-(Duration a, Duration b) { return Duration(a.ns_ - b.ns_); }
  friend constexpr Duration operator*(Duration a, int64_t n) { return Duration(a.ns_ * n); }
  friend constexpr Duration operator/(Duration a, int64_t n) { return Duration(a.ns_ / n); }

 private:
  constexpr explicit Duration(int64_t n) : ns_(n) {}
  int64_t ns_ = 0;
};

class Time {
 public:
  constexpr Time() = default;  // the clock's zero
  static constexpr Time from_ns(int64_t n) { return Time(n); }
  static constexpr Time never() { return Time(std::numeric_limits<int64_t>::max()); }

  constexpr int64_t ns() const { return ns_; }
  constexpr bool is_never() const { return *this == never(); }

  constexpr auto operator<=>(const Time&) const = default;
  // never() plus or minus anything stays never().
  friend constexpr Time operator+(Time t, Duration d) {
    return t.is_never() || d == Duration::max() ? never() : Time(t.ns_ + d.ns());
  }
  friend constexpr Time operator-(Time t, Duration d) {
    return t.is_never() ? never() : Time(t.ns_ - d.ns());
  }
  friend constexpr Duration operator-(Time a, Time b) {
    return Duration::nanoseconds(a.ns_ - b.ns_);
  }

 private:
  constexpr explicit Time(int64_t n) : ns_(n) {}
  int64_t ns_ = 0;
};

}  // namespace farverbs
