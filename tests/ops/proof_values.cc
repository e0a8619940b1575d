// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/proof_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "dtensor/placement/error.h"

namespace dtensor::proof {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The global indices of each dimension that a rank holds, in local order.
std::vector<std::vector<int64_t>> indices_of(const Spec* spec, const Coord& c) {
  std::vector<std::vector<int64_t>> all;
  Region region = spec->region(c);
  for (const IntervalList& list : region) {
    all.emplace_back();
    for (const Interval& r : list)
      for (int64_t i = r.lo; i < r.hi; ++i) all.back().push_back(i);
  }
  return all;
}

// Calls fn(local offset, global offset) for every element of a rank's part.
template <class Fn>
void each_element(const Spec* spec, const Coord& c, Fn&& fn) {
  auto dims = indices_of(spec, c);
  size_t n = 1;
  for (const auto& d : dims) n *= d.size();
  for (size_t local = 0; local < n; ++local) {
    size_t rest = local;
    int64_t global = 0, stride = 1;
    for (size_t d = dims.size(); d-- > 0; rest /= dims[d].size()) {
      global += dims[d][rest % dims[d].size()] * stride;
      stride *= spec->shape()[static_cast<int>(d)];
    }
    fn(local, static_cast<size_t>(global));
  }
}

// The i-th of p summands that add up to v. It is a multiple of v plus a
// constant, which differ for every input (`which`).
double summand(double v, int64_t i, int64_t p, int64_t salt, int which) {
  auto times = [&](int64_t k) {
    double c = static_cast<double>(k + 3 + which);
    return (k + which) % 2 ? -c : c;  // 3, -4, ...; -4, 5, ...
  };
  auto more = [&](int64_t k) {
    return static_cast<double>((salt * 7 + k * 3 + which) % 11 - 5) / 4;
  };
  if (i < p - 1) return v * times(i) + more(i);
  double last = v;
  for (int64_t k = 0; k < p - 1; ++k) last -= v * times(k) + more(k);
  return last;
}

double share(double v, size_t index, const Spec* spec, const Coord& c,
             int which) {
  auto salt = static_cast<int64_t>(index) + which;
  const bool one_part = spec->dtype() != DType::kF64;
  for (const Partial& p : spec->layout().partials) {
    int64_t size = spec->mesh().axis_size(p.axis), at = c[p.axis];
    auto turned = static_cast<double>((at + salt) % size);
    const auto part = [&](double sum) {
      if (one_part) return turned == 0 ? sum : 0;
      return summand(sum, at, size, salt, which);
    };
    switch (p.op) {
      case ReduceOp::kSum:
        v = part(v);
        break;
      case ReduceOp::kAvg:
        v = part(v * static_cast<double>(size));
        break;
      case ReduceOp::kMax:
        v -= turned;
        break;
      case ReduceOp::kMin:
        v += turned;
        break;
      default:
        fail("proof", "no parts for {}", spec->to_string());
    }
    salt = salt * 3 + at + 1;
  }
  return v;
}

// The value of an element, after combining the partials from `level` on,
// innermost first.
double combined(const Spec* spec, const std::vector<std::vector<double>>& whole,
                size_t index, size_t level, Coord c) {
  const auto& partials = spec->layout().partials;
  if (level == partials.size())
    return whole[static_cast<size_t>(spec->mesh().rank(c))][index];
  const Partial& p = partials[level];
  int64_t size = spec->mesh().axis_size(p.axis);
  double v = 0;
  for (int i = 0; i < size; ++i) {
    c[p.axis] = i;
    double x = combined(spec, whole, index, level + 1, c);
    if (i == 0)
      v = x;
    else if (p.op == ReduceOp::kSum || p.op == ReduceOp::kAvg)
      v += x;
    else if (p.op == ReduceOp::kMax)
      v = std::max(v, x);
    else if (p.op == ReduceOp::kMin)
      v = std::min(v, x);
    else if (p.op == ReduceOp::kProd)
      v *= x;
    else
      fail("proof", "cannot combine {}", spec->to_string());
  }
  return p.op == ReduceOp::kAvg ? v / static_cast<double>(size) : v;
}

// The worst error, relative to the largest value. That counts as at least 1 for
// halves, whose sums may cancel.
struct Comparison {
  const Array& want;
  std::string& why;
  double scale, worst = 0;

  Comparison(const Array& want, std::string& why)
      : want(want),
        why(why),
        scale(is_float(want.dtype) && size_of(want.dtype) == 2 ? 1 : 1e-2) {
    for (double x : want.v)
      if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
  }
  void add(size_t index, double got) {
    double w = want.v[index];
    double error = kInfinity;
    if (got == w)
      error = 0;  // infinities too
    else if (is_float(want.dtype) && std::isfinite(got) && std::isfinite(w))
      error = std::abs(got - w) / scale;
    if (error <= worst) return;
    worst = error;
    why = fmt::format("element {} is {:.17g}, not {:.17g}", index, got, w);
  }
};

}  // namespace

Array make_values(const SampleInput& in, int which, bool coarse) {
  Array a = testing::zeros_like(in.shape);
  std::mt19937 gen(static_cast<uint32_t>(1234 + which));
  using Values = SampleInput::Values;
  if (in.values == Values::kIndex) {
    a.dtype = DType::kI64;
    for (double& x : a.v)
      x = static_cast<double>(gen() % static_cast<uint64_t>(in.bound));
    return a;
  }
  if (in.values == Values::kBool) {
    a.dtype = DType::kBool;
    for (double& x : a.v) x = gen() % 5 < 3;
    return a;
  }
  if (in.values == Values::kInt8) {
    a.dtype = DType::kI8;
    for (double& x : a.v) x = static_cast<double>(gen() % 255) - 127;
    return a;
  }
  // Odd multiples of 1/64, all different, in an order without pattern, and a
  // small shift so that no two inputs share a value.
  std::vector<int> order(std::max<size_t>(160, a.v.size()));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[gen() % i]);
  for (size_t i = 0; i < a.v.size(); ++i) {
    double odd = (2 * order[i] + 1) / 64.0;
    a.v[i] = in.values == Values::kPositive ? odd / 2 + 0.25 : odd - 2;
    a.v[i] += which / 512.0;
    // If the domain is not [-2, 3]: values from a little above lo, where a
    // slope may be infinite, to beyond the middle.
    const double width = in.hi - in.lo;
    const bool elsewhere =
        in.values != Values::kPositive && (in.lo != -2 || width != 5);
    if (elsewhere)
      a.v[i] = in.lo + width * (2 * order[i] + 33) / 512 + which * width / 4096;
    if (coarse)
      a.v[i] =
          elsewhere
              ? in.lo +
                    width * (std::floor((a.v[i] - in.lo) / width * 8) + 0.5) / 8
              : std::ceil(a.v[i]) / 2 + 0.0;  // no sum gives -0
    if (in.zeros && i % 3 == 0) a.v[i] = 0;
    if (in.dominant) {
      const auto columns = static_cast<size_t>(in.shape.back()),
                 lines = static_cast<size_t>(in.shape[in.shape.size() - 2]);
      if (i / columns % lines == i % columns) a.v[i] += 10;
    }
  }
  return a;
}

Array part_of(const Array& whole, const Spec* spec, const Coord& c, int which) {
  Array part;
  part.dtype = whole.dtype;
  for (const auto& d : indices_of(spec, c))
    part.shape.push_back(static_cast<int64_t>(d.size()));
  part.v.resize(static_cast<size_t>(numel(part.shape)));
  each_element(spec, c, [&](size_t local, size_t global) {
    part.v[local] = share(whole.v[global], global, spec, c, which);
  });
  return part;
}

Array rounded(Array a, DType dtype) {
  if (is_float(a.dtype) && dtype != DType::kF64)
    visit(dtype, [&]<class T>() {
      for (double& x : a.v) {
        if constexpr (is_half<T>)
          x = static_cast<float>(T(static_cast<float>(x)));
        else
          x = static_cast<double>(static_cast<T>(x));
      }
    });
  return a;
}

double distance(const Spec* spec, const std::vector<Array>& parts,
                const Array& want, std::string& why) {
  const Mesh& mesh = spec->mesh();
  if (spec->shape() != want.shape || spec->dtype() != want.dtype) {
    why = fmt::format("is {}, not {}{}", spec->to_string(), name(want.dtype),
                      to_string(want.shape));
    return kInfinity;
  }
  // Each rank's part spread over the whole, NaN where it holds nothing.
  size_t n = want.v.size();
  std::vector<std::vector<double>> whole;
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    const Array& part = parts[static_cast<size_t>(r)];
    Coord c = mesh.coordinate(r);
    Shape shape;
    for (const auto& d : indices_of(spec, c))
      shape.push_back(static_cast<int64_t>(d.size()));
    if (part.shape != shape || part.dtype != spec->dtype()) {
      why = fmt::format("rank {} has {}{} of {}, which gives it {}", r,
                        name(part.dtype), to_string(part.shape),
                        spec->to_string(), to_string(shape));
      return kInfinity;
    }
    whole.emplace_back(n, std::nan(""));
    each_element(spec, c, [&](size_t local, size_t global) {
      whole.back()[global] = part.v[local];
    });
  }
  Comparison compare(want, why);
  std::vector<double> seen(n, std::nan(""));
  std::vector<bool> found(n, false);
  // Copies must be equal bit by bit, unless parts of different sizes hold the
  // same index, as in the whole segment of a tree. There, a kernel's rounding
  // depends on an element's place in a vector.
  double rounding = 0;
  for (const Dim& d : spec->layout().dims)
    if (d.kind() != Dim::Kind::kLeaf)
      rounding = spec->dtype() == DType::kF64   ? 1e-15
                 : spec->dtype() == DType::kF32 ? 1e-6
                                                : 1e-2;
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    Coord c = mesh.coordinate(r);
    bool first = true;  // of those whose parts are combined
    for (const Partial& p : spec->layout().partials) first &= c[p.axis] == 0;
    if (!first) continue;
    each_element(spec, c, [&](size_t, size_t i) {
      double v = combined(spec, whole, i, 0, c);
      compare.add(i, v);
      if (found[i] && std::abs(v - seen[i]) > rounding * std::abs(v)) {
        compare.worst = kInfinity;
        why = fmt::format("copies of element {} differ: {:.17g} and {:.17g}", i,
                          seen[i], v);
      }
      seen[i] = v;
      found[i] = true;
    });
  }
  for (size_t i = 0; i < n; ++i)
    if (!found[i]) {
      compare.worst = kInfinity;
      why = fmt::format("no rank has element {}", i);
    }
  return compare.worst;
}

double distance(const Array& got, const Array& want, std::string& why) {
  if (got.shape != want.shape || got.dtype != want.dtype) {
    why =
        fmt::format("is {}{}, not {}{}", name(got.dtype), to_string(got.shape),
                    name(want.dtype), to_string(want.shape));
    return kInfinity;
  }
  Comparison compare(want, why);
  for (size_t i = 0; i < want.v.size(); ++i) compare.add(i, got.v[i]);
  return compare.worst;
}

}  // namespace dtensor::proof
