// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/kernels/pool.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/resample.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/ops/windows.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct PoolArgs {
  static constexpr Fields kFields = {"window", "stride", "pad", "dilation",
                                     "size"};
  Triple window = {}, stride = {}, pad = {}, dilation = {};  // pad: in front
  Triple size = {};  // of the space of the tensor that the operator makes
};

// x -> y, taps: the largest element of each window, and where it is.
// y, taps -> x: each element of y is added to the element of x at its tap.
// x, taps -> y: the element of x at each tap.
// The last two are the gradients of each other, and the second that of the
// first.
class MaxPool : public Op {
 public:
  enum class Does : uint8_t { kMax, kSpread, kPick };
  MaxPool(std::string name, Does does)
      : Op(std::move(name), {.work = {1},
                             .saved_inputs = does == Does::kMax ? 0u : 2u,
                             .saves_outputs = does == Does::kMax}),
        does_(does) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const auto& args = attrs.as<PoolArgs>();
    std::string near = "bc", far = "bc", plain = "bc", links;
    std::vector<std::pair<char, int64_t>> sizes;
    for (int d = 0; d < args.size.size(); ++d) {
      const char n = this->near()[static_cast<size_t>(d)];
      const char f = this->far()[static_cast<size_t>(d)];
      near += {n, '^'};
      far += {f, '~'};
      plain += does_ == Does::kSpread ? f : n;
      links += fmt::format("{}link {} {}", d ? "; " : "", n, f);
      sizes.push_back({n, args.size[d]});
    }
    const std::string rule =
        does_ == Does::kMax ? far + "->" + near + "," + plain + " | " + links
        : does_ == Does::kSpread
            ? far + "," + plain + "->" + near + " | linear 0; " + links
            : far + "," + near + "->" + plain + " | linear 0; " + links;
    BoundRule bound(Rule(rule), shapes, name(), sizes);
    add_windows(bound, sizes_of(args), does_ == Does::kSpread, this->near(),
                this->far());
    return bound;
  }

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    DT_CHECK(is_float(in[0]) || in[0] == DType::kI32 || in[0] == DType::kI64,
             name(),
             "takes floats, i32 or i64, but got {}; cast x to one of "
             "them",
             dtensor::name(in[0]));
    if (does_ == Does::kMax) return {in[0], DType::kI64};
    DT_CHECK(in[1] == DType::kI64, name(),
             "takes taps of i64, but got {}; pass those of max_pool",
             dtensor::name(in[1]));
    return {in[0]};
  }

  void compute(Compute& c) const override {
    const auto& args = c.attrs.as<PoolArgs>();
    const Windows windows(c, sizes_of(args), does_ == Does::kSpread, near(),
                          far());
    const Tensor part = windows.with_halo(0);
    kernels::Pool of{.type = part.dtype()};
    of.planes = part.shape()[0] * part.shape()[1];
    windows.describe(of);
    void* const made = c.out[0].mutable_data();
    if (does_ == Does::kMax) {
      c.run(kernels::PoolMax{of, part.data(), made,
                             c.out[1].mutable_ptr<int64_t>()});
      return;
    }
    const bool spreads = does_ == Does::kSpread;
    const Tensor taps =
        spreads ? windows.with_halo(1) : c.in[1].to_contiguous();
    if (spreads)
      c.run(kernels::PoolSpread{of, part.data(), taps.ptr<int64_t>(), made});
    else
      c.run(kernels::PoolPick{of, part.data(), taps.ptr<int64_t>(), made});
  }

  InputGradients gradient(const GradientCall& g) const override;
  std::vector<Sample> samples() const override;

 private:
  std::string_view near() const {
    return does_ == Does::kSpread ? "hij" : "mnp";
  }
  std::string_view far() const {
    return does_ == Does::kSpread ? "mnp" : "hij";
  }
  static WindowSizes sizes_of(const PoolArgs& a) {
    return {a.stride, a.pad, a.dilation, a.window};
  }
  const Does does_;
};
using Does = MaxPool::Does;

const MaxPool& op_for(Does does) {
  static const MaxPool max("max_pool", Does::kMax);
  static const MaxPool spread("max_pool_backward", Does::kSpread);
  static const MaxPool pick("max_pool_pick", Does::kPick);
  return does == Does::kMax ? max : does == Does::kSpread ? spread : pick;
}

InputGradients MaxPool::gradient(const GradientCall& g) const {
  const bool max = does_ == Does::kMax;
  PoolArgs args = g.attrs.as<PoolArgs>();
  args.size = {};
  const Shape in = g.decision->in[0]->shape();
  for (int d = 2; d < in.size(); ++d) args.size.push_back(in[d]);
  InputGradients grads(g.inputs.size());
  if (g.needed[0])
    grads[0] =
        apply1(op_for(does_ == Does::kSpread ? Does::kPick : Does::kSpread),
               {g.cotangents[0], max ? g.outputs[1] : g.inputs[1]}, args);
  return grads;
}

std::vector<Sample> MaxPool::samples() const {
  struct Call {
    Shape x, y;
    PoolArgs args;
  };
  const Call calls[] = {
      {{2, 3, 7, 5},
       {2, 3, 4, 4},
       {Shape{3, 2}, Shape{2, 1}, Shape{1, 0}, Shape{1, 1}}},
      {{2, 1, 9}, {2, 1, 5}, {Shape{3}, Shape{1}, Shape{0}, Shape{2}}},
      {{1, 2, 3, 4, 2},
       {1, 2, 3, 1, 2},
       {Shape{1, 3, 1}, Shape{1, 2, 1}, Shape{0, 0, 0}, Shape{1, 1, 1}}}};
  std::vector<Sample> samples;
  for (const Call& call : calls) {
    PoolArgs args = call.args;
    const bool spreads = does_ == Does::kSpread;
    const Shape& made = spreads ? call.x : call.y;
    for (int d = 2; d < made.size(); ++d) args.size.push_back(made[d]);
    std::vector<SampleInput> inputs{{spreads ? call.y : call.x}};
    if (does_ != Does::kMax) {
      int64_t taps = 1;
      for (int d = 0; d < args.window.size(); ++d) taps *= args.window[d];
      inputs.push_back({call.y, SampleInput::Values::kIndex, taps});
    }
    samples.push_back({inputs, args, true});
  }
  return samples;
}

// Throws Error if a dimension of space is empty.
void check_space(std::string_view op, const DistTensor& x) {
  for (int d = 2; d < x.ndim(); ++d)
    DT_CHECK(x.size(d) > 0, op,
             "x has shape {}; pass one with elements in each dimension of "
             "space",
             to_string(x.shape()));
}

// The arguments of a pool of x, which has a batch.
PoolArgs args_of(std::string_view op, int space, const DistTensor& x,
                 const std::vector<int64_t>& window, const PoolOptions& o) {
  DT_CHECK(x.size(1) > 0, op, "x has shape {}; pass at least one channel",
           to_string(x.shape()));
  check_space(op, x);
  PoolArgs a;
  a.window = per_dimension(window, space, "the window", 1, op);
  a.stride = o.stride.empty() ? a.window
                              : per_dimension(o.stride, space, "stride", 1, op);
  a.pad = per_dimension(o.padding, space, "padding", 0, op);
  a.dilation = per_dimension(o.dilation, space, "dilation", 1, op);
  for (int d = 0; d < space; ++d) {
    DT_CHECK(2 * a.pad[d] <= a.window[d], op,
             "padding is {} in dimension {} of space, but the window {}; write "
             "at most half of it",
             a.pad[d], d, a.window[d]);
    a.size.push_back(windows_along({a.stride, a.pad, a.dilation, a.window}, d,
                                   x.size(d + 2), "x", op, o.ceil_mode));
  }
  return a;
}

using Pair = std::pair<DistTensor, DistTensor>;

// Where the taps of max_pool lie in the flat space of x. windows[d][m] are the
// positions that window m meets in dimension d; a tap beyond them stands for
// the last one.
DistTensor places_of(const DistTensor& taps, const DistTensor& x,
                     const PoolArgs& a,
                     const std::vector<std::vector<Interval>>& windows) {
  DistTensor at;
  int64_t inner = 1;
  for (int64_t n : Shape(a.window)) inner *= n;
  for (int d = 0; d < a.window.size(); ++d) {
    inner /= a.window[d];
    std::vector<int64_t> first, last;
    for (const Interval& w : windows[static_cast<size_t>(d)])
      first.push_back(w.lo), last.push_back(w.hi - 1);
    const auto along = [&](const std::vector<int64_t>& list) {
      return along_dim(vector_of(list, x.mesh()), a.window.size(), d);
    };
    const DistTensor tap = remainder(floor_divide(taps, inner), a.window[d]);
    const DistTensor here =
        minimum(along(first) + tap * a.dilation[d], along(last));
    at = at.defined() ? at * x.size(d + 2) + here : here;
  }
  return at;
}

// Calls fn(x, indices) with an x that has a batch. fn returns the values and
// sets the indices.
template <class Fn>
Pair with_places(const DistTensor& x, int space, std::string_view op, Fn&& fn) {
  DistTensor places;
  const DistTensor y = with_batch(
      x, space, op, [&](const DistTensor& batch) { return fn(batch, places); });
  if (places.defined() && x.ndim() == space + 1) places = squeeze(places, 0);
  return {y, places};
}

Pair max_pool(std::string_view op, int space, const DistTensor& given,
              const std::vector<int64_t>& window, const PoolOptions& o,
              bool wants_places) {
  DT_CHECK(o.count_include_pad && o.divisor_override == 0, op,
           "count_include_pad is {} and divisor_override {}, but a maximum is "
           "not divided; leave both out",
           o.count_include_pad, o.divisor_override);
  return with_places(
      given, space, op, [&](const DistTensor& x, DistTensor& places) {
        const PoolArgs a = args_of(op, space, x, window, o);
        const std::vector<DistTensor> made = apply(op_for(Does::kMax), {x}, a);
        if (!wants_places) return made[0];
        std::vector<std::vector<Interval>> windows;
        for (int d = 0; d < space; ++d) {
          windows.emplace_back();
          for (int64_t m = 0; m < a.size[d]; ++m)
            windows.back().push_back(
                {m * a.stride[d] - a.pad[d], x.size(d + 2)});
        }
        places = places_of(made[1], x, a, windows);
        return made[0];
      });
}

// The sizes of the space of an adaptive pool of x, which has a batch.
Triple adaptive_sizes(std::string_view op, int space, const DistTensor& x,
                      const std::vector<int64_t>& list) {
  check_float(op, x.dtype());
  const Triple given = per_dimension(list, space, "the size", -1, op);
  Triple sizes;
  check_space(op, x);
  for (int d = 0; d < space; ++d) {
    DT_CHECK(given[d] != 0, op,
             "the size is 0 in dimension {} of space; write at least 1, or -1 "
             "to keep the size of x",
             d);
    sizes.push_back(given[d] < 0 ? x.size(d + 2) : given[d]);
  }
  return sizes;
}

// The maxima of windows of one size that lie end to end. If the windows of the
// call have several sizes, resample() first copies them.
Pair adaptive_max_pool(std::string_view op, int space, const DistTensor& given,
                       const std::vector<int64_t>& size, bool wants_places) {
  return with_places(
      given, space, op, [&](const DistTensor& x, DistTensor& places) {
        PoolArgs a;
        a.size = adaptive_sizes(op, space, x, size);
        DistTensor even = x;
        std::vector<std::vector<Interval>> windows;
        for (int d = 0; d < space; ++d) {
          const int64_t in = x.size(d + 2), out = a.size[d];
          int64_t most = 1;
          windows.emplace_back();
          for (int64_t m = 0; m < out; ++m) {
            windows.back().push_back(adaptive_window(m, in, out));
            most = std::max(most, windows.back().back().size());
          }
          if (in % out != 0)
            even = resample(
                even, d + 2,
                {.taps = Taps::kWindows, .size = out * most, .windows = out});
          a.window.push_back(most);
          a.pad.push_back(0);
          a.dilation.push_back(1);
        }
        a.stride = a.window;
        const std::vector<DistTensor> made =
            apply(op_for(Does::kMax), {even}, a);
        if (wants_places) places = places_of(made[1], x, a, windows);
        return made[0];
      });
}

// One dimension after the other. The mean of a whole dimension is mean(), which
// adds up the parts of the ranks instead of fetching them.
DistTensor adaptive_avg_pool(std::string_view op, int space,
                             const DistTensor& given,
                             const std::vector<int64_t>& size) {
  return with_batch(given, space, op, [&](const DistTensor& x) {
    const Triple sizes = adaptive_sizes(op, space, x, size);
    DistTensor y = x;
    for (int d = 0; d < space; ++d)
      y = sizes[d] == 1
              ? mean(y, {d + 2}, true)
              : resample(y, d + 2, {.taps = Taps::kArea, .size = sizes[d]});
    return y;
  });
}

// A convolution of each channel with ones gives the sums. Their divisors depend
// on the position if some windows leave x or the padding.
DistTensor avg_pool(std::string_view op, int space, const DistTensor& given,
                    const std::vector<int64_t>& window, const PoolOptions& o) {
  return with_batch(given, space, op, [&](const DistTensor& x) {
    const PoolArgs a = args_of(op, space, x, window, o);
    for (int d = 0; d < space; ++d)
      DT_CHECK(a.dilation[d] == 1, op,
               "dilation is {} in dimension {} of space; leave it out, since "
               "the windows of avg_pool have no gaps",
               a.dilation[d], d);
    DistTensor y = sums_of_windows(x, {a.stride, a.pad, {}, a.window}, a.size);
    // As in torch, integers are rounded towards 0.
    const auto over = [&](const auto& divisor) {
      return is_float(x.dtype()) ? div(y, divisor) : trunc_divide(y, divisor);
    };
    if (o.divisor_override != 0) return over(o.divisor_override);
    int64_t constant = 1;
    for (int d = 0; d < space; ++d) {
      std::vector<int64_t> counts;
      for (int64_t m = 0; m < a.size[d]; ++m) {
        const int64_t size = x.size(d + 2), lo = m * a.stride[d] - a.pad[d];
        const int64_t end = std::min(lo + a.window[d], size + a.pad[d]);
        counts.push_back(o.count_include_pad
                             ? end - lo
                             : std::min(end, size) - std::max<int64_t>(lo, 0));
      }
      if (std::all_of(counts.begin(), counts.end(),
                      [&](int64_t n) { return n == counts[0]; })) {
        constant *= counts.empty() ? 1 : counts[0];
        continue;
      }
      y = over(
          along_dim(cast(vector_of(counts, x.mesh()), x.dtype()), space, d));
    }
    return constant == 1 ? y : over(constant);
  });
}

}  // namespace

DistTensor max_pool1d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& o) {
  return max_pool("max_pool1d", 1, x, window, o, false).first;
}
DistTensor max_pool2d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& o) {
  return max_pool("max_pool2d", 2, x, window, o, false).first;
}
DistTensor max_pool3d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& o) {
  return max_pool("max_pool3d", 3, x, window, o, false).first;
}
DistTensor avg_pool1d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& o) {
  return avg_pool("avg_pool1d", 1, x, window, o);
}
DistTensor avg_pool2d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& o) {
  return avg_pool("avg_pool2d", 2, x, window, o);
}
DistTensor avg_pool3d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& o) {
  return avg_pool("avg_pool3d", 3, x, window, o);
}

std::pair<DistTensor, DistTensor> max_pool1d_with_indices(
    const DistTensor& x, const PerDimension& window, const PoolOptions& o) {
  return max_pool("max_pool1d_with_indices", 1, x, window, o, true);
}
std::pair<DistTensor, DistTensor> max_pool2d_with_indices(
    const DistTensor& x, const PerDimension& window, const PoolOptions& o) {
  return max_pool("max_pool2d_with_indices", 2, x, window, o, true);
}
std::pair<DistTensor, DistTensor> max_pool3d_with_indices(
    const DistTensor& x, const PerDimension& window, const PoolOptions& o) {
  return max_pool("max_pool3d_with_indices", 3, x, window, o, true);
}
DistTensor adaptive_avg_pool1d(const DistTensor& x, const PerDimension& size) {
  return adaptive_avg_pool("adaptive_avg_pool1d", 1, x, size);
}
DistTensor adaptive_avg_pool2d(const DistTensor& x, const PerDimension& size) {
  return adaptive_avg_pool("adaptive_avg_pool2d", 2, x, size);
}
DistTensor adaptive_avg_pool3d(const DistTensor& x, const PerDimension& size) {
  return adaptive_avg_pool("adaptive_avg_pool3d", 3, x, size);
}
DistTensor adaptive_max_pool1d(const DistTensor& x, const PerDimension& size) {
  return adaptive_max_pool("adaptive_max_pool1d", 1, x, size, false).first;
}
DistTensor adaptive_max_pool2d(const DistTensor& x, const PerDimension& size) {
  return adaptive_max_pool("adaptive_max_pool2d", 2, x, size, false).first;
}
DistTensor adaptive_max_pool3d(const DistTensor& x, const PerDimension& size) {
  return adaptive_max_pool("adaptive_max_pool3d", 3, x, size, false).first;
}
std::pair<DistTensor, DistTensor> adaptive_max_pool1d_with_indices(
    const DistTensor& x, const PerDimension& size) {
  return adaptive_max_pool("adaptive_max_pool1d_with_indices", 1, x, size,
                           true);
}
std::pair<DistTensor, DistTensor> adaptive_max_pool2d_with_indices(
    const DistTensor& x, const PerDimension& size) {
  return adaptive_max_pool("adaptive_max_pool2d_with_indices", 2, x, size,
                           true);
}
std::pair<DistTensor, DistTensor> adaptive_max_pool3d_with_indices(
    const DistTensor& x, const PerDimension& size) {
  return adaptive_max_pool("adaptive_max_pool3d_with_indices", 3, x, size,
                           true);
}

static const OpFamily kFamily("pool", [] {
  return OpList{&op_for(Does::kMax), &op_for(Does::kSpread),
                &op_for(Does::kPick)};
});

}  // namespace dtensor
