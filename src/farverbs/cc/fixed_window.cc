#include "farverbs/cc/fixed_window.h"

namespace farverbs::cc {

void FixedWindow::on_sent(Time, uint64_t, uint64_t) {}
void FixedWindow::on_feedback(const Sample&) {}
void FixedWindow::on_timeout(Time) {}
Allowance FixedWindow::allowance() const { return {window_bytes_, BitRate{}}; }

}  // namespace farverbs::cc
