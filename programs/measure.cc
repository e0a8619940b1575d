// SPDX-License-Identifier: Apache-2.0
#include "programs/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "dtensor/dist_tensor.h"
#include "dtensor/progress.h"
#include "dtensor/redistribute.h"

namespace dtensor::examples {
namespace {

constexpr int64_t kLeastBytes = 64, kGrowth = 4;

// Prices under which one collective of `kind` is cheaper than every other plan.
CostTable prices_for(StepKind kind, const Mesh& mesh) {
  AxisCost cost{{1'000'000'000'000, 1'000'000}, {}};
  cost.kinds[static_cast<size_t>(kind)] = LinkCost{1'000'000'000, 1};
  CostTable table;
  table.axes.assign(static_cast<size_t>(mesh.num_axes()), cost);
  table.block_bytes = int64_t{1} << 40;
  return table;
}

Layout split(const Shape& shape, int dim, const std::vector<int>& axes) {
  Layout layout = Layout::replicated(shape);
  layout.dims[static_cast<size_t>(dim)] = Dim(shape[dim], Split::over(axes));
  return layout;
}

// Two specs between which one collective of this kind over these axes moves a
// tensor; nullopt if there are none. The tensor is `scale` times as long in
// each dimension as the smallest one.
std::optional<Move> ends(StepKind kind, const Mesh& mesh,
                         const std::vector<int>& axes, int64_t scale) {
  int64_t p = 1;
  for (int a : axes) p *= mesh.axis_size(a);
  const Shape line = {p * scale}, square = {p * scale, p * scale};
  const auto move = [&](const Layout& from, const Layout& to) {
    const Shape shape = from.shape();
    return Move{Spec::get(mesh, shape, from, DType::kF32),
                Spec::get(mesh, shape, to, DType::kF32)};
  };
  Layout partial = Layout::replicated(line);
  for (int a : axes) partial.partials.push_back({a, ReduceOp::kSum});
  switch (kind) {
    case StepKind::kAllGather:
      return move(split(line, 0, axes), Layout::replicated(line));
    case StepKind::kAllReduce:
      return move(partial, Layout::replicated(line));
    case StepKind::kReduceScatter:
      return move(partial, split(line, 0, axes));
    case StepKind::kAllToAll:
      return move(split(square, 0, axes), split(square, 1, axes));
    case StepKind::kPermute: {
      if (axes.size() < 2) return std::nullopt;
      std::vector<int> backwards(axes.rbegin(), axes.rend());
      return move(split(line, 0, axes), split(line, 0, backwards));
    }
    case StepKind::kExchange: {
      // From equal parts to parts of growing sizes: 1, 3, 5, ... times `scale`.
      const Shape longer = {p * p * scale};
      std::vector<int64_t> points;
      for (int64_t i = 0; i <= p; ++i) points.push_back(i * i * scale);
      Layout to = Layout::replicated(longer);
      to.dims[0] = Dim(longer[0], Split::at(axes, points, mesh));
      return move(split(longer, 0, axes), to);
    }
    case StepKind::kReduceExchange: {
      if (axes.size() < 2) return std::nullopt;
      const std::vector<int> others(axes.begin() + 1, axes.end());
      Layout from = split(square, 0, others);
      from.partials = {{axes[0], ReduceOp::kSum}};
      Layout to = split(square, 1, others);
      to.dims[0] = Dim(square[0], Split::over({axes[0]}));
      return move(from, to);
    }
    case StepKind::kSlice:
    case StepKind::kFill:
    case StepKind::kBarrier:
    case StepKind::kAllGatherBytes:
      break;
  }
  return std::nullopt;
}

// Makes a probe of about this many bytes. Returns nullopt if the plan of such a
// move is not a single collective of this kind.
std::optional<Probe> probe(StepKind kind, const Mesh& mesh,
                           const std::vector<int>& axes, int64_t bytes) {
  const CostTable prices = prices_for(kind, mesh);
  AxisMask mask = 0;
  for (int a : axes) mask |= AxisMask{1} << a;
  const auto at_scale = [&](int64_t scale) -> std::optional<Probe> {
    const auto move = ends(kind, mesh, axes, scale);
    if (!move) return std::nullopt;
    const Plan p = plan(move->from, move->to, prices);
    if (p.steps.size() != 1 || p.chunks != 1 || p.steps[0].kind != kind ||
        p.steps[0].axes != mask || p.bytes == 0)
      return std::nullopt;
    return Probe{kind, mask, p.bytes, move->from, move->to};
  };
  const auto smallest = at_scale(1);
  if (!smallest) return smallest;
  double scale =
      static_cast<double>(bytes) / static_cast<double>(smallest->bytes);
  if (smallest->from->ndim() == 2) scale = std::sqrt(scale);
  return at_scale(std::max<int64_t>(1, std::llround(scale)));
}

// Returns the maximum of each element over the ranks. Collective over the mesh.
std::vector<double> largest(const Mesh& mesh, const std::vector<double>& mine) {
  const auto n = static_cast<int64_t>(mine.size());
  const Shape shape = {mesh.num_ranks(), n};
  std::vector<int> axes;
  for (int a = 0; a < mesh.num_axes(); ++a) axes.push_back(a);
  const Tensor all =
      DistTensor::from_local(Tensor::from<double>({1, n}, mine.data()), mesh,
                             split(shape, 0, axes), shape)
          .full();
  std::vector<double> most(mine.size(), 0);
  for (int64_t r = 0; r < mesh.num_ranks(); ++r)
    for (int64_t i = 0; i < n; ++i) {
      double& slot = most[static_cast<size_t>(i)];
      slot = std::max(slot, all.at(r * n + i));
    }
  return most;
}

double median(std::vector<double> x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

// Times one probe on one rank. Every function is collective over the mesh.
class Timer {
 public:
  Timer(const Probe& probe, const Mesh& mesh, const Coord& at)
      : probe_(probe), mesh_(mesh), local_shape_(probe.from->local_shape(at)) {
    constexpr double kRound = 200;
    const double once = largest(mesh_, {time(2)})[0];
    repeats_ =
        static_cast<int64_t>(std::clamp(std::ceil(kRound / once), 1.0, 50.0));
  }

  // A round repeats the collective, so that the resolution of the clock and
  // ranks that start late matter little.
  void round() { times_.push_back(time(repeats_)); }

  // For each round, takes the time of the slowest rank; returns the median.
  double result() const { return median(largest(mesh_, times_)); }

 private:
  double time(int64_t repeats) const {
    using Clock = std::chrono::steady_clock;
    const Tensor local = Tensor::full(local_shape_, DType::kF32, 1);
    // Warm-up: makes the plan and fills caches.
    redistribute_local(local, probe_.from, probe_.to);
    const auto start = Clock::now();
    for (int64_t i = 0; i < repeats; ++i)
      redistribute_local(local, probe_.from, probe_.to);
    return std::chrono::duration<double, std::micro>(Clock::now() - start)
               .count() /
           static_cast<double>(repeats);
  }

  const Probe& probe_;
  Mesh mesh_;
  Shape local_shape_;
  int64_t repeats_ = 1;
  std::vector<double> times_;
};

}  // namespace

std::vector<Probe> probes(const Mesh& mesh, int64_t max_bytes) {
  std::vector<std::vector<int>> groups;
  std::vector<int> all;
  for (int a = 0; a < mesh.num_axes(); ++a) {
    if (mesh.axis_size(a) == 1) continue;
    groups.push_back({a});
    all.push_back(a);
  }
  if (all.size() > 1) groups.push_back(all);
  std::vector<Probe> list;
  for (int k = 0; k < kNumStepKinds; ++k)
    for (const std::vector<int>& axes : groups) {
      int64_t last = 0;
      for (int64_t bytes = kLeastBytes; bytes <= max_bytes; bytes *= kGrowth) {
        const auto p = probe(static_cast<StepKind>(k), mesh, axes, bytes);
        // The smallest tensor may be larger than several sizes, which then have
        // the same probe.
        if (!p || p->bytes <= last) continue;
        last = p->bytes;
        list.push_back(*p);
      }
    }
  for (size_t i = 0, n = list.size(); i < n; ++i) {
    if (list[i].kind != StepKind::kAllReduce || mesh.size_of(list[i].axes) < 3)
      continue;
    Probe again = list[i];
    again.one_shot = true;
    list.push_back(again);
  }
  return list;
}

std::vector<double> measure(const std::vector<Probe>& probes,
                            RunOptions options, int64_t rounds) {
  std::vector<double> times(probes.size(), 0);
  if (probes.empty()) return times;
  Progress progress(static_cast<int64_t>(probes.size()) * rounds);
  const Mesh mesh = probes[0].from->mesh();
  // Prices are options of a run, so each kind of collective needs its own run.
  for (size_t first = 0; first < probes.size();) {
    size_t end = first;
    while (end < probes.size() && probes[end].kind == probes[first].kind &&
           probes[end].one_shot == probes[first].one_shot)
      ++end;
    options.cost = prices_for(probes[first].kind, mesh);
    if (probes[first].one_shot) options.cost.one_shot_bytes = int64_t{1} << 40;
    run(options, [&](Runtime& rt) {
      std::vector<Timer> timers;
      for (size_t i = first; i < end; ++i)
        timers.emplace_back(probes[i], mesh, rt.context().coordinate(mesh));
      // Timing round by round spreads a disturbance of the machine over a few
      // rounds of every probe, instead of all rounds of one.
      auto done = static_cast<int64_t>(first) * rounds;
      for (int64_t round = 0; round < rounds; ++round)
        for (size_t i = first; i < end; ++i) {
          timers[i - first].round();
          ++done;
          if (rt.rank() == 0)
            progress.show(
                done, fmt::format("{} over {}, {} bytes", name(probes[i].kind),
                                  mesh.axes_to_string(probes[i].axes),
                                  probes[i].bytes));
        }
      for (size_t i = first; i < end; ++i) {
        const double us = timers[i - first].result();
        if (rt.rank() == 0) times[i] = us;
      }
    });
    first = end;
  }
  return times;
}

}  // namespace dtensor::examples
