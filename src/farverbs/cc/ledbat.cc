#include "farverbs/cc/ledbat.h"

namespace farverbs::cc {

void Ledbat::on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) {
  core_.on_sent(now, bytes, inflight_bytes);
}
void Ledbat::on_feedback(const Sample& sample) { core_.on_feedback(sample); }
void Ledbat::on_timeout(Time now) { core_.on_timeout(now); }
Allowance Ledbat::allowance() const { return core_.allowance(); }

}  // namespace farverbs::cc
