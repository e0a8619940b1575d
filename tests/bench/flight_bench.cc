// SPDX-License-Identifier: Apache-2.0
// The time that the flight recorder takes to note a collective, and that of the
// clocks that it could read.
#include <benchmark/benchmark.h>

#include <chrono>

#include "dtensor/comm/flight_ring.h"

namespace dtensor {
namespace {

void Entry(benchmark::State& state) {
  FlightRing ring;
  Buffer buffer{ReduceOp::kSum, DType::kF32, nullptr, 256};
  const Call call{StepKind::kAllReduce, "layer_norm_backward"};
  Collective c{
      .call = &call, .buffers = {&buffer, 1}, .group = ring.add_group({0, 1})};
  for (auto _ : state) {
    ++c.sequence;
    ring.begun(c);
    ring.agreed();
    ring.ended();
  }
}
BENCHMARK(Entry);

void CoarseClock(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(FlightRing::now());
}
BENCHMARK(CoarseClock);

void SteadyClock(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(std::chrono::steady_clock::now());
}
BENCHMARK(SteadyClock);

}  // namespace
}  // namespace dtensor
