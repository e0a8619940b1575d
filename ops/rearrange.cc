// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/rearrange.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/kernels/pad.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

// Throws Error unless pad() can change dimension d of x by these widths.
void check_widths(const DistTensor& x, int d, int64_t lo, int64_t hi,
                  PadMode mode) {
  const int64_t n = x.size(d);
  const __int128 added =
      __int128{std::max<int64_t>(0, lo)} + std::max<int64_t>(0, hi);
  const __int128 left = lo + (hi + __int128{n});
  DT_CHECK(left >= (mode == PadMode::kCircular ? added : 0), "pad",
           "widths {} and {} cut more than dimension {} of {} has; write "
           "widths that cut fewer of its {} indices",
           lo, hi, d, x.spec()->to_string(), n);
  const __int128 most = mode == PadMode::kCircular  ? left - added
                        : mode == PadMode::kReflect ? n - 1
                        : n > 0                     ? std::max(lo, hi)
                                                    : 0;
  DT_CHECK(added == 0 || std::max(lo, hi) <= most, "pad",
           "widths {} and {} are too large for dimension {} of {}; write at "
           "most {}",
           lo, hi, d, x.spec()->to_string(), static_cast<int64_t>(most));
}

// `count` new indices at the start or the end of dimension d of x.
DistTensor border(const DistTensor& x, int d, int64_t count, PadMode mode,
                  bool start) {
  const int64_t n = x.size(d);
  if (mode == PadMode::kReflect)
    return flip(narrow(x, d, start ? 1 : n - 1 - count, count), {d});
  if (mode == PadMode::kCircular)
    return narrow(x, d, start ? n - count : 0, count);
  Shape shape = x.shape();
  shape[d] = count;
  return expand(narrow(x, d, start ? 0 : n - 1, 1), shape);
}

struct BorderArgs {
  static constexpr Fields kFields = {"widths", "mode"};
  // Two for each dimension, beginning with the last one. Others have none.
  Shape widths;
  int64_t mode;

  std::pair<int64_t, int64_t> of(int d, int ndim) const {
    const int i = 2 * (ndim - 1 - d);
    if (i >= widths.size()) return {0, 0};
    return {widths[i], widths[i + 1]};
  }
};

// pad() of dimensions that every rank has in full: x "ab" -> "no", or with only
// the last dimension padded, "ab" -> "ao". Each element is written once.
class Border : public Op {
 public:
  Border() : Op("pad", {.work = {.flops_per_point = 0}, .saved_inputs = 0}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const auto& a = attrs.as<BorderArgs>();
    std::string in, out;
    std::vector<std::pair<char, int64_t>> sizes;
    for (int d = 0; d < shapes[0].size(); ++d) {
      in += static_cast<char>('a' + d);
      const auto [lo, hi] = a.of(d, shapes[0].size());
      if (lo + hi == 0) {
        out += in.back();
        continue;
      }
      sizes.emplace_back(static_cast<char>('n' + d), lo + shapes[0][d] + hi);
      in += '!';
      out += std::string{sizes.back().first, '!'};
    }
    return BoundRule(Rule(in + "->" + out + " | linear 0; up 0"), shapes,
                     name(), sizes);
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const PadMode mode :
         {PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular})
      list.push_back({{{{3, 5, 4}}},
                      BorderArgs{{1, 3, 2, 1}, static_cast<int64_t>(mode)},
                      true});
    return list;
  }

  void compute(Compute& c) const override {
    const auto& a = c.attrs.as<BorderArgs>();
    const auto mode = static_cast<PadMode>(a.mode);
    const Tensor& x = c.in[0];
    Shape before;
    for (int d = 0; d < x.ndim(); ++d)
      before.push_back(a.of(d, x.ndim()).first);
    c.run(kernels::PadEdges{
        .type = x.dtype(),
        .edge = mode == PadMode::kReflect     ? kernels::Edge::kMirrored
                : mode == PadMode::kReplicate ? kernels::Edge::kNearest
                                              : kernels::Edge::kAround,
        .in = x.shape(),
        .strides = x.strides(),
        .before = before,
        .out = c.out[0].shape(),
        .x = x.data(),
        .y = c.out[0].mutable_data()});
  }

  // Adds the cotangents of the borders to those of the elements in them, from
  // the first dimension on.
  InputGradients gradient(const GradientCall& g) const override {
    const auto& a = g.attrs.as<BorderArgs>();
    const auto mode = static_cast<PadMode>(a.mode);
    DistTensor dx = g.cotangents[0];
    for (int d = 0; d < dx.ndim(); ++d) {
      const auto [lo, hi] = a.of(d, dx.ndim());
      const int64_t n = dx.size(d) - lo - hi;
      const DistTensor dy = dx;
      if (lo + hi > 0) dx = narrow(dy, d, lo, n);
      const auto add_border = [&](int64_t from, int64_t count,
                                  int64_t reflected, int64_t edge,
                                  int64_t around) {
        if (count == 0) return;
        DistTensor part = narrow(dy, d, from, count);
        int64_t at = around;
        if (mode == PadMode::kReplicate)
          part = sum(part, {d}, true), at = edge;
        else if (mode == PadMode::kReflect)
          part = flip(part, {d}), at = reflected;
        std::vector<int64_t> widths(static_cast<size_t>(2 * (dx.ndim() - d)));
        widths.end()[-2] = at;
        widths.end()[-1] = n - at - part.size(d);
        dx = dx + pad(part, widths);
      };
      add_border(0, lo, 1, 0, n - lo);
      add_border(lo + n, hi, n - 1 - hi, n - 1, 0);
    }
    return {dx};
  }
};

// Throws Error unless x has at least three dimensions, and r to the power of
// `times` divides the size of dimension d.
void check_divides(std::string_view op, const DistTensor& x, int d, int64_t r,
                   int times = 1) {
  check_defined(op, x);
  DT_CHECK(x.ndim() >= 3, op,
           "{} has too few dimensions; pass a tensor with at least three",
           x.spec()->to_string());
  const char* const twice = times == 2 ? " twice" : "";
  bool divides = r >= 1;
  int64_t n = x.size(d);
  for (int i = 0; i < times && divides; n /= r, ++i) divides = n % r == 0;
  DT_CHECK(divides, op,
           "{} does not divide dimension {} of {}{}; write a number that "
           "divides its size {}{}",
           r, normalize_dim(d, x.ndim(), op), x.spec()->to_string(), twice,
           x.size(d), twice);
}

}  // namespace

static const OpFamily kFamily("rearrange",
                              [] { return OpList{&op_of<Border>()}; });

DistTensor narrow(const DistTensor& x, int dim, const DistTensor& start,
                  int64_t length) {
  check_defined("narrow", {x, start});
  const int d = normalize_dim(dim, x.ndim(), "narrow");
  DT_CHECK(start.ndim() == 0 &&
               (start.dtype() == DType::kI32 || start.dtype() == DType::kI64),
           "narrow",
           "the start is {}; pass an i32 or i64 tensor without dimensions",
           start.spec()->to_string());
  DT_CHECK(length >= 0 && length <= x.size(d), "narrow",
           "length is {}, but dimension {} of {} has size {}; write 0 or more, "
           "and at most that size",
           length, d, x.spec()->to_string(), x.size(d));
  const DistTensor from = where(lt(start, 0), add(start, x.size(d)), start);
  return index_select(x, d, add(arange(length, x.mesh()), from));
}

DistTensor unfold(const DistTensor& x, int dim, int64_t size, int64_t step) {
  check_defined("unfold", x);
  const int d = normalize_dim(dim, x.ndim(), "unfold");
  const int64_t n = x.size(d);
  DT_CHECK(size >= 1 && size <= n && step >= 1, "unfold",
           "size is {} and step is {}, but dimension {} of {} has size {}; "
           "write a size from 1 to that, and a step of at least 1",
           size, step, d, x.spec()->to_string(), n);
  const int64_t count = (n - size) / step + 1;
  // Stacks the i-th index of all windows, or if there are fewer windows, these.
  std::vector<DistTensor> pieces;
  if (size <= count) {
    for (int64_t i = 0; i < size; ++i)
      pieces.push_back(slice(x, d, i, i + (count - 1) * step + 1, step));
    return stack(pieces, -1);
  }
  for (int64_t i = 0; i < count; ++i)
    pieces.push_back(narrow(x, d, i * step, size));
  return movedim(stack(pieces, d), {d + 1}, {-1});
}

DistTensor rot90(const DistTensor& x, int64_t times,
                 const std::vector<int>& dims) {
  check_defined("rot90", x);
  DT_CHECK(dims.size() == 2, "rot90",
           "the list of dimensions has length {}; write two dimensions",
           dims.size());
  const int a = normalize_dim(dims[0], x.ndim(), "rot90"),
            b = normalize_dim(dims[1], x.ndim(), "rot90");
  DT_CHECK(a != b, "rot90",
           "both dimensions are {} of {}; write two different ones", a,
           x.spec()->to_string());
  switch ((times % 4 + 4) % 4) {
    case 1:
      return transpose(flip(x, {b}), a, b);
    case 2:
      return flip(x, {a, b});
    case 3:
      return transpose(flip(x, {a}), a, b);
  }
  return alias(x);
}

DistTensor pad(const DistTensor& x, const std::vector<int64_t>& widths,
               PadMode mode) {
  check_defined("pad", x);
  DT_CHECK(
      widths.size() % 2 == 0 && std::ssize(widths) <= 2 * x.ndim(), "pad",
      "the list of widths has length {} for {}; write two for each dimension, "
      "beginning with the last dimension",
      widths.size(), x.spec()->to_string());
  const auto dim = [&](size_t i) {
    return x.ndim() - 1 - static_cast<int>(i / 2);
  };
  for (size_t i = 0; i < widths.size(); i += 2)
    check_widths(x, dim(i), widths[i], widths[i + 1], mode);
  bool pads = false,
       here = numel(x.shape()) > 0 && std::ssize(widths) <= kMaxDims;
  for (size_t i = 0; i < widths.size(); i += 2) {
    if (widths[i] == 0 && widths[i + 1] == 0) continue;
    pads = true;
    // The gradients of the two ways add in different orders.
    here &= widths[i] >= 0 && widths[i + 1] >= 0 &&
            (reproducible(x.dtype()) || x.use_spec()->dim(dim(i)).whole());
  }
  if (pads && here)
    return apply1(op_of<Border>(), x,
                  BorderArgs{Shape(widths), static_cast<int64_t>(mode)});
  DistTensor y = alias(x);
  for (size_t i = 0; i < widths.size(); i += 2) {
    const int d = dim(i);
    const int64_t lo = widths[i], hi = widths[i + 1];
    const auto cut = [&] {
      const int64_t from = std::max<int64_t>(0, -lo);
      y = narrow(y, d, from, y.size(d) - from - std::max<int64_t>(0, -hi));
    };
    if (mode == PadMode::kCircular) cut();
    std::vector<DistTensor> pieces{y};
    if (lo > 0) pieces.insert(pieces.begin(), border(y, d, lo, mode, true));
    if (hi > 0) pieces.push_back(border(y, d, hi, mode, false));
    y = cat(pieces, d);
    if (mode != PadMode::kCircular) cut();
  }
  return y;
}

DistTensor cartesian_prod(TensorList list) {
  check_defined("cartesian_prod", list);
  DT_CHECK(!list.empty(), "cartesian_prod",
           "got an empty list; pass at least one tensor");
  for (const DistTensor& x : list)
    DT_CHECK(x.ndim() == 1, "cartesian_prod",
             "{} is not a vector; pass tensors of one dimension",
             x.spec()->to_string());
  if (list.size() == 1) return alias(list[0]);
  std::vector<DistTensor> all(list.begin(), list.end());
  // Each rank's rows need all of these elements. Moved later, they would be
  // repeated already.
  for (size_t i = 1; i < all.size(); ++i)
    all[i] = all[i].redistribute(Placements());
  std::vector<DistTensor> columns;
  for (const DistTensor& x : meshgrid(all)) columns.push_back(flatten(x));
  return stack(columns, 1);
}

DistTensor combinations(const DistTensor& x, int64_t r, bool with_replacement) {
  check_defined("combinations", x);
  DT_CHECK(x.ndim() == 1 && r >= 0, "combinations",
           "got {} and r = {}; pass a vector, and 0 or more",
           x.spec()->to_string(), r);
  if (r == 0) return slice(x, 0, 0, 0);
  const int64_t n = x.size(0), gap = with_replacement ? 0 : 1;
  std::vector<int64_t> index, row(static_cast<size_t>(r));
  // Sets row[i] and those after it to the first choice that begins with `at`.
  const auto restart = [&](size_t i, int64_t at) {
    for (; i < row.size(); ++i, at += gap) row[i] = at;
    return row.back() < n;
  };
  for (bool more = restart(0, 0); more;) {
    index.insert(index.end(), row.begin(), row.end());
    more = false;
    for (size_t i = row.size(); i-- > 0 && !more;)
      more = restart(i, row[i] + 1);
  }
  return reshape(index_select(x, 0, vector_of(index, x.mesh())), {-1, r});
}

DistTensor pixel_shuffle(const DistTensor& x, int64_t r) {
  check_divides("pixel_shuffle", x, -3, r, 2);
  const DistTensor y =
      movedim(unflatten(x, -3, {x.size(-3) / r / r, r, r}), {-4, -3}, {-3, -1});
  return flatten(flatten(y, -2, -1), -3, -2);
}

DistTensor pixel_unshuffle(const DistTensor& x, int64_t r) {
  check_divides("pixel_unshuffle", x, -1, r);
  check_divides("pixel_unshuffle", x, -2, r);
  const DistTensor y =
      unflatten(unflatten(x, -1, {x.size(-1) / r, r}), -3, {x.size(-2) / r, r});
  return flatten(movedim(y, {-3, -1}, {-4, -3}), -5, -3);
}

DistTensor channel_shuffle(const DistTensor& x, int64_t groups) {
  check_divides("channel_shuffle", x, 1, groups);
  const DistTensor y = unflatten(x, 1, {groups, x.size(1) / groups});
  return flatten(transpose(y, 1, 2), 1, 2);
}

}  // namespace dtensor
