// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/resample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/capture.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/kernels/resample.h"
#include "dtensor/ops/rows.h"

namespace dtensor {
namespace {

struct ResampleArgs {
  static constexpr Fields kFields = {"dim",     "taps",      "in",
                                     "out",     "scale",     "offset",
                                     "windows", "antialias", "transposed"};
  int64_t dim;
  int64_t taps;     // a Taps
  int64_t in, out;  // the sizes of the dimension before and after
  double scale, offset;
  int64_t windows;
  bool antialias;
  bool transposed;  // computes the gradient, from `out` to `in`
};

// The positions of x that make an element of y, with their weights. A position
// may occur several times.
using Weights = std::vector<std::pair<int64_t, double>>;

// As in Pillow, whose results torch means to match: a filter around the center
// of element m, whose width grows with the scale. Cubic convolution has another
// parameter than without `antialias`.
Weights antialiased(const ResampleArgs& a, int64_t m) {
  const bool linear = static_cast<Taps>(a.taps) == Taps::kLinear;
  const double width = std::max(a.scale, 1.0), reach = (linear ? 1 : 2) * width,
               center = (static_cast<double>(m) + 0.5) * a.scale;
  const auto lo = static_cast<int64_t>(std::max(center - reach + 0.5, 0.0));
  const auto hi = std::min(static_cast<int64_t>(center + reach + 0.5), a.in);
  Weights all;
  double total = 0;
  for (int64_t i = lo; i < hi; ++i) {
    const double d = std::abs(static_cast<double>(i) - center + 0.5) / width;
    const double w = linear  ? std::max(1 - d, 0.0)
                     : d < 1 ? cubic_near(d, -0.5)
                     : d < 2 ? cubic_far(d, -0.5)
                             : 0;
    all.push_back({i, w});
    total += w;
  }
  for (auto& [i, w] : all) w /= total;
  return all;
}

Weights weights_of(const ResampleArgs& a, int64_t m) {
  if (a.antialias) return antialiased(a, m);
  const double p = static_cast<double>(m) * a.scale + a.offset;
  switch (static_cast<Taps>(a.taps)) {
    case Taps::kNearest:
      // As in torch, f32 hides the rounding errors of an integer p.
      return {{static_cast<int64_t>(std::floor(static_cast<float>(p))), 1}};
    case Taps::kLinear: {
      const double at = std::max(p, 0.0), low = std::floor(at), t = at - low;
      const auto i = static_cast<int64_t>(low);
      return {{i, 1 - t}, {i + 1, t}};
    }
    case Taps::kCubic: {
      const double low = std::floor(p);
      const auto i = static_cast<int64_t>(low);
      const auto w = cubic_weights(p - low);
      return {{i - 1, w[0]}, {i, w[1]}, {i + 1, w[2]}, {i + 2, w[3]}};
    }
    case Taps::kArea: {
      const Interval window = adaptive_window(m, a.in, a.out);
      Weights all;
      for (int64_t i = window.lo; i < window.hi; ++i)
        all.push_back({i, 1 / static_cast<double>(window.size())});
      return all;
    }
    case Taps::kWindows: {
      const int64_t size = a.out / a.windows;
      const Interval window = adaptive_window(m / size, a.in, a.windows);
      return {{std::min(window.lo + m % size, window.hi - 1), 1}};
    }
  }
  return {};
}

// The weights of all elements of the result: element m has those of the
// positions from first[m] on, `taps` of them.
struct Band {
  explicit Band(const ResampleArgs& a) {
    const int64_t from = a.transposed ? a.out : a.in;
    std::vector<Weights> rows(static_cast<size_t>(a.transposed ? a.in : a.out));
    for (int64_t m = 0; m < a.out; ++m)
      for (const auto& [position, weight] : weights_of(a, m)) {
        const int64_t i = std::clamp<int64_t>(position, 0, a.in - 1);
        rows[static_cast<size_t>(a.transposed ? i : m)].push_back(
            {a.transposed ? m : i, weight});
      }
    for (const Weights& row : rows) {
      int64_t lo = first.empty() ? 0 : first.back();
      if (!row.empty()) {
        const auto [least, most] = std::minmax_element(row.begin(), row.end());
        lo = least->first;
        taps = std::max(taps, most->first - lo + 1);
      }
      first.push_back(lo);
    }
    for (size_t m = 0; m < rows.size(); ++m) {
      first[m] = std::min(first[m], from - taps);
      weights.resize((m + 1) * static_cast<size_t>(taps));
      for (const auto& [i, weight] : rows[m])
        weights[m * static_cast<size_t>(taps) +
                static_cast<size_t>(i - first[m])] += weight;
    }
  }
  int64_t taps = 1;
  std::vector<int64_t> first;
  std::vector<double> weights;
};

// The weights of all ranks, and those of this rank's part on its device: a step
// that is captured may not copy them from the host (graph.h).
struct Known : Decision::Memo {
  explicit Known(const ResampleArgs& a) : band(a) {}
  Band band;
  Tensor first, weights;
};

ResampleArgs args_of(int64_t in, int64_t dim, const Resampling& r) {
  return {dim,       static_cast<int64_t>(r.taps),
          in,        r.size,
          r.scale,   r.offset,
          r.windows, r.antialias,
          false};
}

// x "...i..." -> y "...m...".
class Resample : public Op {
 public:
  Resample() : Op("resample", {.work = {4}, .saved_inputs = 0}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const auto& a = attrs.as<ResampleArgs>();
    std::string before, after;
    for (int d = 0; d < shapes[0].size(); ++d)
      if (d != a.dim)
        (d < a.dim ? before : after) += static_cast<char>('A' + d);
    BoundRule bound(Rule(fmt::format("{0}i~{1}->{0}m^{1} | linear 0; link m i",
                                     before, after)),
                    shapes, name(), {{'m', a.transposed ? a.in : a.out}});
    Band band(a);
    bound.add_window(
        'm', 'i',
        [first = std::move(band.first), taps = band.taps](Interval m) {
          const auto [least, most] =
              std::minmax_element(first.begin() + m.lo, first.begin() + m.hi);
          return Interval{*least, *most + taps};
        });
    return bound;
  }

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_float(name(), in[0]);
    return {in[0]};
  }

  void compute(Compute& c) const override {
    const auto& args = c.attrs.as<ResampleArgs>();
    const auto dim = static_cast<size_t>(args.dim);
    auto known = std::static_pointer_cast<Known>(c.decision.memo);
    if (!known) c.decision.memo = known = std::make_shared<Known>(args);
    const Band& band = known->band;
    const Spec *in = c.decision.in[0], *out = c.decision.out[0];
    // The range of y that a rank makes, and that of x which it needs for it.
    const auto made = [&](const Coord& at) {
      const Region r = out->region(at);
      return r[dim].empty() ? Interval{} : r[dim][0];
    };
    const auto met = [&](const Coord& at) {
      const Interval m = made(at);
      return m.size() == 0 ? Interval{} : c.decision.rule->windows()[0].met(m);
    };
    const Interval m = made(c.coord()), i = met(c.coord());
    Tensor x = c.in[0];
    if (const AxisMask axes = c.axes_of('i')) {
      std::vector<AxisMask> depend;
      for (int d = 0; d < in->ndim(); ++d)
        depend.push_back(in->dim(d).axes() | out->dim(d).axes());
      x = c.fetch(
          x, axes, [&](const Coord& at) { return in->region(at); },
          [&](const Coord& at) {
            Region r = in->region(at);
            const Interval range = met(at);
            r[dim] = range.size() > 0 ? IntervalList{range} : IntervalList{};
            return r;
          },
          depend);
    } else {
      x = x.slice(static_cast<int>(dim), i.lo, i.hi);
    }
    if (m.size() == 0) return;
    x = x.to_contiguous();
    if (!known->first.defined()) {
      std::vector<int64_t> first(band.first.begin() + m.lo,
                                 band.first.begin() + m.hi);
      for (int64_t& f : first) f -= i.lo;
      known->first = Tensor::from({m.size()}, first.data());
      known->weights = Tensor::from({m.size(), band.taps},
                                    band.weights.data() + m.lo * band.taps);
    }
    // The replays of a graph read them.
    if (c.context.capture) c.context.capture->before_replay([known] {});
    kernels::Resample k{.type = x.dtype(),
                        .outer = 1,
                        .in = i.size(),
                        .out = m.size(),
                        .taps = band.taps,
                        .first = known->first.ptr<int64_t>(),
                        .weights = known->weights.ptr<double>(),
                        .x = x.data(),
                        .y = c.out[0].mutable_data()};
    for (int d = 0; d < x.ndim(); ++d)
      if (d != args.dim) (d < args.dim ? k.outer : k.inner) *= x.shape()[d];
    c.run(k);
  }

  InputGradients gradient(const GradientCall& g) const override {
    ResampleArgs args = g.attrs.as<ResampleArgs>();
    args.transposed = !args.transposed;
    return {apply1(*this, {g.cotangents[0]}, args)};
  }

  std::vector<Sample> samples() const override {
    const auto sample = [](Shape x, int64_t dim, Resampling r) {
      return Sample{{{x}}, args_of(x[static_cast<int>(dim)], dim, r), true};
    };
    return {
        sample({2, 5}, 1, {Taps::kLinear, 8, 0.625, -0.1875}),
        sample({7, 3}, 0, {Taps::kCubic, 4, 2, 0}),
        sample({2, 5, 3}, 1, {Taps::kNearest, 7, 0.7, 0}),
        sample({2, 7}, 1, {.taps = Taps::kArea, .size = 3}),
        sample({2, 7}, 1, {.taps = Taps::kWindows, .size = 12, .windows = 4}),
        sample({9, 2}, 0,
               {.taps = Taps::kLinear,
                .size = 4,
                .scale = 2.25,
                .antialias = true})};
  }
};

}  // namespace

DistTensor resample(const DistTensor& x, int dim, const Resampling& r) {
  return apply1(op_of<Resample>(), {x}, args_of(x.size(dim), dim, r));
}

static const OpFamily kFamily("resample",
                              [] { return OpList{&op_of<Resample>()}; });

}  // namespace dtensor
