// What FarController makes of steady lines: goodput, queue, the first seconds, and transfers.
#include <gtest/gtest.h>

#include "farverbs/cc/far_testing.h"

namespace farverbs::cc {
namespace {

struct Cell {
  double rate, rtt, loss;
};

double goodput_floor(double loss) {
  if (loss <= 1) return 0.98;
  if (loss <= 2) return 0.98;
  return loss <= 5 ? 0.97 : 0.93;
}

double first_floor(const Cell& cell) {
  // The train of large packets is too short to show such a rate: startup has to double all the way.
  if (cell.rate > 5000) return cell.rtt < 50 ? 0.85 : 0.38;
  if (cell.rtt < 200) return 0.9;
  return 0.7;
}

void measure(const Cell& cell) {
  SCOPED_TRACE(testing::Message() << cell.rate << " Mb/s, " << cell.rtt << " ms, " << cell.loss
                                  << " %");
  FarRun run(line(cell.rate, cell.rtt, cell.loss));
  const double first = run.share(seconds(5));
  run.link.take_queue_delay(0.5);
  // Long rounds need long to settle.
  const double steady = run.share(seconds(cell.rate > 5000 ? 4 : 10));
  const Duration p95 = run.link.take_queue_delay(0.95);
  row("%6.0f Mb/s %5.1f ms %4.1f %% | goodput %.3f first 5 s %.3f | queue p95 %5.1f ms | floor "
      "%.4f "
      "%s",
      cell.rate, cell.rtt, cell.loss, steady, first, to_ms(p95), run.controller.loss_floor(),
      run.controller.phase_name());
  EXPECT_GE(steady, goodput_floor(cell.loss));
  EXPECT_GE(first, first_floor(cell));
  // A tenth of few packets lost is noise to any estimate.
  EXPECT_LE(to_ms(p95), std::max(cell.loss > 5 ? 20.0 : 15.0, 0.15 * cell.rtt));
  EXPECT_EQ(run.link.flow(run.flow).timeouts, 0u);
}

TEST(FarMatrix, LinesAreFullWithoutAQueue) {
  for (const double rate : {10., 200., 1000.}) {
    for (const double rtt : {10., 100., 300.}) {
      for (const double loss : {0., 0.1, 1., 2., 5., 10.}) {
        if (!table_wanted() && rate > 500 && loss != 1 && loss != 5) continue;
        measure({rate, rtt, loss});
      }
    }
  }
}

TEST(FarMatrix, TenGigabits) {
  for (const double rtt : {10., 100., 300.}) {
    for (const double loss : {0., 0.1, 1., 2., 5., 10.}) {
      if (!table_wanted() && loss != 1) continue;
      measure({10'000, rtt, loss});
    }
  }
}

TEST(FarMatrix, LocalPathsAreNotPaced) {
  for (const double rate : {200., 1000., 10'000.}) {
    for (const double loss : {0., 1.}) {
      FarLinkSpec spec = line(rate, 0.1, loss);
      spec.queue_bytes = 400'000;
      FarRun run(spec);
      const double first = run.share(seconds(1));
      const double steady = run.share(seconds(2));
      row("%6.0f Mb/s local %4.1f %% | goodput %.3f first %.3f | window %llu", rate, loss, steady,
          first, static_cast<unsigned long long>(run.controller.allowance().window_bytes));
      EXPECT_GE(steady, 0.98);
      EXPECT_TRUE(run.controller.local());
      EXPECT_TRUE(run.controller.allowance().rate.is_zero());
    }
  }
}

TEST(FarMatrix, TransfersFromConnectToTheLastByte) {
  const struct {
    double rate, megabytes, most;
  } rows[] = {{200, 1, 0.75}, {200, 10, 1.0}, {1000, 1, 0.75}, {1000, 10, 0.8}, {1000, 100, 1.8}};
  for (const auto& transfer : rows) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      FarLinkSpec spec = line(transfer.rate, 100, 1);
      spec.seed = seed;
      // The connection's set-up takes a round trip.
      FarRun run(spec, known(spec), static_cast<uint64_t>(transfer.megabytes * 1e6), ms(100));
      run.link.run_for(seconds(5));
      const double took = static_cast<double>(run.link.flow(run.flow).completed.ns()) * 1e-9;
      row("%4.0f MB at %4.0f Mb/s, 100 ms, 1 %%, seed %llu: %.3f s", transfer.megabytes,
          transfer.rate, static_cast<unsigned long long>(seed), took);
      EXPECT_LE(took, transfer.most) << transfer.megabytes << " MB at " << transfer.rate;
    }
  }
}

TEST(FarMatrix, ARememberedPathIsFullAtOnce) {
  for (const double rate : {200., 1000.}) {
    FarLinkSpec spec = line(rate, 300, 1);
    FarConfig config = known(spec);
    config.remembered = RememberedPath{spec.rate, spec.round_trip};
    FarRun run(spec, config);
    const double first = run.share(seconds(5));
    row("%4.0f Mb/s 300 ms remembered: first 5 s %.3f", rate, first);
    EXPECT_GE(first, 0.80);
  }
}

TEST(FarMatrix, AWrongMemoryIsLeftWithoutHarm) {
  FarLinkSpec spec = line(50, 100);
  FarConfig config = known(spec);
  config.remembered = RememberedPath{mbps(1000), spec.round_trip};
  FarRun run(spec, config);
  EXPECT_GE(run.share(seconds(5)), 0.85);
  run.link.take_queue_delay(0.5);
  EXPECT_GE(run.share(seconds(5)), 0.98);
  EXPECT_LE(to_ms(run.link.take_queue_delay(0.95)), 15);
}

}  // namespace
}  // namespace farverbs::cc
