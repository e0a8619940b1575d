// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/by_index.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/select.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

using Kind = kernels::ReduceKind;
using Values = SampleInput::Values;

struct TakeArgs {
  static constexpr Fields kFields = {"checked", value("dim")};
  bool checked;  // an index outside of the dimension is an Error
  int64_t dim;   // for the text of the error
};
struct PutArgs {
  static constexpr Fields kFields = {"size", "checked", value("dim")};
  int64_t size;  // of the dimension to put the elements into
  bool checked;
  int64_t dim;
};

const Op& take_op(bool weighted = false);
const Op& put_op();

void check_indices(std::string_view op, DType t) {
  DT_CHECK(t == DType::kI64, op,
           "the indices are {}, but must be i64; write cast(indices, "
           "DType::kI64)",
           name(t));
}

// Calls fn(ends), which writes the output. If `checked`, fn's kernels also find
// the largest and the smallest index of the last input (TakeRows::ends). If one
// of them is out of range, every rank throws Error before the host can read the
// output. If not `checked`, `ends` is null.
template <class Fn>
void with_check(Compute& c, bool checked, int64_t dim, Fn&& fn) {
  if (!checked) return fn(nullptr);
  const Tensor ends = c.scratch({2}, DType::kI64);
  fn(ends.mutable_ptr<int64_t>());
  check_id_ends(c.context, c.op.name(), ends, *c.decision.in[c.in.size() - 1],
                c.global_size('n'), no_index(c.global_size('n'), dim));
}

// Calls fn(range, to) for each of the rank's ranges of n, or for an empty range
// if the rank has none. fn writes that part of out [..., n] to `to`, which is
// contiguous: `out` itself, or a copy of the part, which is then copied back.
template <class Fn>
void for_ranges(Compute& c, const Tensor& out, Fn&& fn) {
  const IntervalList ranges = c.ranges_of('n');
  if (ranges.empty()) fn(Interval{}, out);
  int64_t at = 0;
  for (const Interval& range : ranges) {
    Tensor part = out.slice(out.ndim() - 1, at, at + range.size());
    const bool only = ranges.size() == 1;
    const Tensor to = only ? out : part.clone();
    fn(range, to);
    if (!only) part.copy_from(to);
    at += range.size();
  }
}

// Runs PutRows for output 0, with the rows of `dy` at the indices `at`.
void put_rows(Compute& c, Kind kind, bool accumulate, const Tensor& dy,
              const Tensor& at, bool checked, int64_t dim) {
  const Rows rows(dy);
  const Tensor index = at.to_contiguous();
  with_check(c, checked, dim, [&](int64_t* ends) {
    for_ranges(c, c.out[0], [&](const Interval& range, const Tensor& to) {
      c.run(kernels::PutRows{.kind = kind,
                             .accumulate = accumulate,
                             .dy = rows,
                             .index = index.ptr<int64_t>(),
                             .lo = range.lo,
                             .hi = range.hi,
                             .dx = to.mutable_data(),
                             .ends = ends});
    });
  });
}

std::vector<Sample> row_samples(bool put) {
  std::vector<Sample> list;
  for (const auto& [rows, n, k] :
       std::vector<std::array<int64_t, 3>>{{3, 5, 2}, {5, 3, 4}, {1, 7, 1}}) {
    Sample s;
    s.inputs = {{{rows, put ? k : n}}, {{rows, k}, Values::kIndex, n}};
    if (put)
      s.attrs = PutArgs{n, true, 1};
    else
      s.attrs = TakeArgs{true, 1};
    list.push_back(s);
  }
  return list;
}

// x "...n", indices "...k" -> "...k". If n is split, a rank contributes zeros
// for the indices outside of its range. `weighted`: x "...n", indices and
// weights "t...k" -> the sum of weight * element over t.
class Take : public RuleOp {
 public:
  explicit Take(bool weighted)
      : RuleOp(weighted ? "gather_weighted" : "gather",
               weighted ? "...n,t...k,t...k->...k | linear 0; linear 2"
                        : "...n,...k->...k | linear 0",
               {.work = {.flops_per_point = weighted ? 2.0 : 0.0,
                         .looked_up = 1}}),
        weighted_(weighted) {}

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_indices(name(), in[1]);
    if (weighted_) check_one_type(name(), std::array{in[0], in[2]});
    return {in[0]};
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list = row_samples(false);
    for (Sample& s : list) {
      s.attrs = TakeArgs{!weighted_, 1};
      if (!weighted_) continue;
      s.inputs[1].shape.insert(0, 3);
      s.inputs.push_back({s.inputs[1].shape});
    }
    return list;
  }

  void compute(Compute& c) const override {
    const TakeArgs& args = c.attrs.as<TakeArgs>();
    const Rows x(c.in[0]);
    const Tensor& out = c.out[0];
    // Rows that expand() repeated are stored once.
    Tensor index = c.in[1], weights = c.in[weighted_ ? 2 : 1];
    int64_t share = 1;
    for (int d = index.ndim() - 1; d-- > (weighted_ ? 1 : 0);) {
      const int64_t n = index.shape()[d];
      if (n == 1) continue;
      if (n == 0 || index.strides()[d] || weights.strides()[d]) break;
      share *= n;
      index = index.slice(d, 0, 1), weights = weights.slice(d, 0, 1);
    }
    index = index.to_contiguous();
    if (weighted_) weights = weights.to_contiguous();
    const int64_t k = index.shape().back();
    with_check(c, args.checked, args.dim, [&](int64_t* ends) {
      const auto look_up = [&](Interval range, int64_t from, const Tensor& to) {
        kernels::Matrix part = x;
        if (part.data)
          part.data =
              static_cast<const char*>(part.data) + from * size_of(out.dtype());
        c.run(kernels::TakeRows{.x = part,
                                .k = k,
                                .share = share,
                                .taps = weighted_ ? index.shape()[0] : 1,
                                .weights = weighted_ ? weights.data() : nullptr,
                                .index = index.ptr<int64_t>(),
                                .lo = range.lo,
                                .hi = range.hi,
                                .out = to.mutable_data(),
                                .ends = ends});
      };
      const IntervalList ranges = c.ranges_of('n');
      look_up(ranges.empty() ? Interval{} : ranges[0], 0, out);
      int64_t from = ranges.empty() ? 0 : ranges[0].size();
      for (size_t i = 1; i < ranges.size(); from += ranges[i++].size()) {
        const Tensor more = c.scratch(out.shape(), out.dtype());
        look_up(ranges[i], from, more);
        row_binary(c, fn::index_of<fn::Add>, out, more, out);
      }
    });
  }

  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor &dy = g.cotangents[0], &x = g.inputs[0];
    if (weighted_) return of_weighted(x, g.inputs[1], g.inputs[2], dy);
    const Assignment a = exchanged(g);
    return {put_in_rows(dy, g.inputs[1], x.shape().back(), &a), {}};
  }

 private:
  static InputGradients of_weighted(const DistTensor& x,
                                    const DistTensor& index,
                                    const DistTensor& weights,
                                    const DistTensor& dy) {
    std::vector<DistTensor> elements;
    for (const DistTensor& tap : unbind(index, 0))
      elements.push_back(take_in_rows(x, tap));
    return {sum(put_in_rows(mul(dy, weights), index, x.size(-1)), {0}),
            {},
            mul(dy, stack(elements, 0))};
  }

  bool weighted_;
};

// dy "...k", indices "...k" -> "...n"
class Put : public Op {
 public:
  Put() : Op("gather_backward", {.work = {.flops_per_point = 0}}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return BoundRule(Rule("...k,...k->...n | linear 0"), shapes, name(),
                     {{'n', attrs.as<PutArgs>().size}});
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_indices(name(), in[1]);
    return {in[0]};
  }
  std::vector<Sample> samples() const override { return row_samples(true); }

  void compute(Compute& c) const override {
    const PutArgs& args = c.attrs.as<PutArgs>();
    put_rows(c, Kind::kSum, false, c.in[0], c.in[1], args.checked, args.dim);
  }

  InputGradients gradient(const GradientCall& g) const override {
    const Assignment a = exchanged(g);
    return {take_in_rows(g.cotangents[0], g.inputs[1], &a), {}};
  }
};

// indices "...k" -> "...n": for each index of n, the last position along k at
// which it occurs, or -1.
class LastPlace : public Op {
 public:
  LastPlace()
      : Op("scatter",
           {.work = {.flops_per_point = 0}, .differentiable = false}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return BoundRule(Rule("...k->...n | k:max"), shapes, name(),
                     {{'n', attrs.as<PutArgs>().size}});
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_indices(name(), in[0]);
    return {DType::kI64};
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list = row_samples(true);
    for (Sample& s : list) s.inputs.erase(s.inputs.begin());
    return list;
  }

  void compute(Compute& c) const override {
    const PutArgs& args = c.attrs.as<PutArgs>();
    const Rows index(c.in[0]);
    if (args.checked)
      check_ids_in(c.context, c.op.name(), index.t.to_contiguous(),
                   *c.decision.in[0], c.global_size('n'), {},
                   no_index(c.global_size('n'), args.dim));
    c.out[0].fill(-1);
    for_ranges(c, c.out[0], [&](const Interval& range, const Tensor& to) {
      int64_t at = 0;
      for (const Interval& places : c.ranges_of('k')) {
        c.run(kernels::LastPlaces{
            .rows = index.rows,
            .k = places.size(),
            .index = index.t.slice(1, at, at + places.size()).ptr<int64_t>(),
            .stride = index.stride,
            .first = places.lo,
            .lo = range.lo,
            .hi = range.hi,
            .places = to.mutable_ptr<int64_t>()});
        at += places.size();
      }
    });
  }
};

// x "...n", src "...k", indices "...k" -> x with src[..., j] combined with
// element indices[..., j] of its row. A sum is linear in x and src together, a
// product in x, and a maximum may take an element twice.
class Combine : public RuleOp {
 public:
  explicit Combine(Kind kind)
      : RuleOp(std::string("scatter_") + kNames[at(kind)],
               std::string("...n,...k,...k->...n | ") + kNotes[at(kind)],
               {.saved_inputs = kind == Kind::kSum ? 0b100 : OpFacts::kAll,
                .saves_outputs = kind != Kind::kSum}),
        kind_(kind) {}

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_indices(name(), in[2]);
    return {in[0]};
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list = row_samples(true);
    for (Sample& s : list) {
      const int64_t n = s.attrs.as<PutArgs>().size;
      s.inputs.insert(s.inputs.begin(), {{s.inputs[0].shape[0], n}});
      s.attrs = TakeArgs{true, 1};
    }
    if (kind_ == Kind::kProd)
      for (SampleInput& rows : list[0].inputs)
        rows.zeros = rows.values == Values::kAny;
    return list;
  }

  void compute(Compute& c) const override {
    const TakeArgs& args = c.attrs.as<TakeArgs>();
    // If k is split, x may be a part of only one rank's sum or product.
    if (kind_ == Kind::kMax || kind_ == Kind::kMin || c.first_of('k'))
      c.out[0].copy_from(c.in[0]);
    else
      c.out[0].fill(kind_ == Kind::kSum ? 0 : 1);
    put_rows(c, kind_, true, c.in[1], c.in[2], args.checked, args.dim);
  }

  InputGradients gradient(const GradientCall& g) const override {
    if (kind_ == Kind::kSum)
      return {g.cotangents[0], take_in_rows(g.cotangents[0], g.inputs[2]), {}};
    if (kind_ == Kind::kProd) return of_product(g);
    // All elements that equal the result have the same share of its cotangent.
    const DistTensor &x = g.inputs[0], &src = g.inputs[1], &index = g.inputs[2];
    const DistTensor best = g.outputs[0].detach();
    const auto wins = [&](const DistTensor& e, const DistTensor& result) {
      return cast(eq(e.detach(), result), e.dtype());
    };
    const DistTensor of_x = wins(x, best),
                     of_src = wins(src, take_in_rows(best, index));
    const DistTensor share =
        g.cotangents[0] / (of_x + put_in_rows(of_src, index, x.size(-1)));
    return {share * of_x, take_in_rows(share, index) * of_src, {}};
  }

 private:
  static size_t at(Kind kind) { return static_cast<size_t>(kind); }
  static constexpr const char* kNames[] = {"add", "amax", "amin", "prod"};
  static constexpr const char* kNotes[] = {
      "linear 0,1", "k:max; max 0,1; max 0; max 1",
      "k:min; min 0,1; min 0; min 1", "k:prod; linear 0"};

  // The derivative by an element is the product of the others. It is y / e if e
  // is not 0. If e is the only 0, it is the product of the elements that are
  // not 0, and in all other cases 0. The second derivative by the only two
  // zeros is also a product of the others. So, if it may be needed, the
  // derivative by one of them has a term with the other one, whose value is 0.
  InputGradients of_product(const GradientCall& g) const {
    const DistTensor &x = g.inputs[0], &src = g.inputs[1], &index = g.inputs[2];
    const DistTensor &y = g.outputs[0], &dy = g.cotangents[0];
    const bool again = RankContext::current().grad_enabled;
    const auto summed = [&](const DistTensor& of_x, const DistTensor& of_src) {
      return of_x + put_in_rows(of_src, index, x.size(-1));
    };
    const auto is_zero = [](const DistTensor& e) { return eq(e.detach(), 0); };
    const DistTensor no_x = is_zero(x), no_src = is_zero(src);
    const DistTensor zeros =
        summed(cast(no_x, x.dtype()), cast(no_src, x.dtype()));
    const DistTensor rest =
        dy * apply1(*this, {where(no_x, 1, x), where(no_src, 1, src), index},
                    TakeArgs{false, 0});
    const DistTensor one = where(eq(zeros, 1), rest, 0);
    DistTensor two, both;
    if (again) {
      two = where(eq(zeros, 2), rest, 0);
      both = summed(where(no_x, x, 0), where(no_src, src, 0));
    }
    const auto of = [&](const DistTensor& e, const DistTensor& no_e,
                        auto&& here) {
      DistTensor d = here(one);
      if (again) d = d + here(two) * (here(both) - e);
      return where(no_e, d, here(dy * y) / where(no_e, 1, e));
    };
    return {of(x, no_x, [](const DistTensor& t) { return t; }),
            of(src, no_src,
               [&](const DistTensor& t) { return take_in_rows(t, index); }),
            {}};
  }

  Kind kind_;
};

const Op& take_op(bool weighted) {
  static const Take plain(false), sum(true);
  return weighted ? sum : plain;
}
const Op& put_op() {
  static const Put op;
  return op;
}
const Op& combine_op(Kind kind) {
  static const Combine ops[] = {Combine(Kind::kSum), Combine(Kind::kMax),
                                Combine(Kind::kMin), Combine(Kind::kProd)};
  return ops[static_cast<size_t>(kind)];
}

// A tensor x and indices of its dimension `dim`. Both are transposed so that
// this dimension is the last one, and the indices are i64. A scalar is a row of
// one element, as in torch.
struct Indexed {
  Indexed(std::string_view op, const DistTensor& tensor, int dim_,
          const DistTensor& indices, std::initializer_list<DistTensor> more) {
    std::vector<DistTensor> all{tensor, indices};
    all.insert(all.end(), more);
    check_defined(op, all);
    check_index_type(op, indices);
    x = atleast_1d(tensor);
    index = cast(atleast_1d(indices), DType::kI64);
    dim = normalize_dim(dim_, x.ndim(), op);
    DT_CHECK(x.ndim() == index.ndim(), op,
             "the indices {} and the tensor {} have different numbers of "
             "dimensions; pass indices with as many as the tensor",
             indices.spec()->to_string(), tensor.spec()->to_string());
    for (int d = 0; d < x.ndim(); ++d)
      DT_CHECK(d == dim || index.size(d) <= x.size(d), op,
               "dimension {} of the indices {} is larger than that of {}; pass "
               "fewer indices there, since only dimension {} may be larger",
               d, indices.spec()->to_string(), tensor.spec()->to_string(), dim);
    index = to_last(index, dim);
    x = to_last(x, dim);
  }
  // The elements of src that belong to the indices, transposed like them.
  DistTensor of(std::string_view op, const DistTensor& src) const {
    DistTensor s = src.ndim() == 0 ? reshape(src, {1}) : src;
    DT_CHECK(s.dtype() == x.dtype() && s.ndim() == x.ndim(), op,
             "the elements {} do not fit the tensor {}{}; pass elements of the "
             "same type, with as many dimensions",
             src.spec()->to_string(), name(x.dtype()),
             dtensor::to_string(to_last(x, dim).shape()));
    s = to_last(s, dim);
    for (int d = 0; d < s.ndim(); ++d) {
      DT_CHECK(index.size(d) <= s.size(d), op,
               "the indices have shape {}, but the elements {}; pass elements "
               "that are at least as large in every dimension",
               dtensor::to_string(to_last(index, dim).shape()),
               dtensor::to_string(src.shape()));
      s = narrow(s, d, 0, index.size(d));
    }
    return s;
  }
  DistTensor back(const DistTensor& y, const DistTensor& like) const {
    return like.ndim() == 0 ? reshape(y, {}) : to_last(y, dim);
  }

  DistTensor x, index;
  int dim = 0;
};

// Runs Take. It takes bools as integers, because a partial sum of bools could
// not be reduced.
DistTensor taken(const DistTensor& x, const DistTensor& index, TakeArgs args,
                 const Assignment* a = nullptr) {
  if (x.dtype() == DType::kBool)
    return cast(taken(cast(x, DType::kI32), index, args, a), DType::kBool);
  return apply1(take_op(), {x, index}, args, a);
}

// Returns x with its window replaced by f(window). The window has the first
// like.size(d) indices of every dimension d but the last, which it has in full.
template <class Fn>
DistTensor in_window(const DistTensor& x, const DistTensor& like, Fn&& f,
                     int d = 0) {
  if (d == x.ndim() - 1) return f(x);
  const int64_t n = like.size(d);
  if (n == x.size(d)) return in_window(x, like, f, d + 1);
  const DistTensor y = in_window(narrow(x, d, 0, n), like, f, d + 1);
  return cat({y, narrow(x, d, n, x.size(d) - n)}, d);
}

// Returns x with its window (see in_window()) replaced by write(window,
// places). `places` is the output of LastPlace for the indices.
template <class Fn>
DistTensor scattered(const Indexed& i, const DistTensor& x, Fn&& write) {
  return i.back(in_window(i.x, i.index,
                          [&](const DistTensor& window) {
                            const PutArgs args{window.size(-1), true, i.dim};
                            return write(window, apply1(op_of<LastPlace>(),
                                                        i.index, args));
                          }),
                x);
}

// Adds src to `start`, a window (see in_window()), at the indices.
DistTensor added(const Indexed& i, const DistTensor& start,
                 const DistTensor& src) {
  return apply1(combine_op(Kind::kSum), {start, src, i.index},
                TakeArgs{true, i.dim});
}

}  // namespace

DistTensor take_in_rows(const DistTensor& x, const DistTensor& index,
                        const Assignment* a) {
  return taken(x, index, {false, 0}, a);
}
DistTensor take_weighted(const DistTensor& x, const DistTensor& index,
                         const DistTensor& weights) {
  return apply1(take_op(true), {x, index, weights}, TakeArgs{false, 0});
}
DistTensor put_in_rows(const DistTensor& dy, const DistTensor& index, int64_t n,
                       const Assignment* a) {
  return apply1(put_op(), {dy, index}, PutArgs{n, false, 0}, a);
}

Assignment exchanged(const GradientCall& g) {
  Assignment a = inherited(g);
  std::swap(a.dims[0], a.dims[1]);
  return a;
}

DistTensor gather(const DistTensor& x, int dim, const DistTensor& index) {
  check_defined("gather", {x, index});
  if (numel(index.shape()) == 0)
    return reshape(narrow(atleast_1d(x), 0, 0, 0), index.shape());
  const Indexed i("gather", x, dim, index, {});
  DistTensor window = i.x;
  for (int d = 0; d + 1 < window.ndim(); ++d)
    window = narrow(window, d, 0, i.index.size(d));
  return i.back(taken(window, i.index, {true, i.dim}), index);
}

DistTensor scatter_add(const DistTensor& x, int dim, const DistTensor& index,
                       const DistTensor& src) {
  const Indexed i("scatter_add", x, dim, index, {src});
  const DistTensor dy = i.of("scatter_add", src);
  if (x.dtype() == DType::kBool)  // a sum of bools is their "or"
    return cast(
        scatter_add(cast(x, DType::kI32), dim, index, cast(src, DType::kI32)),
        DType::kBool);
  return i.back(
      in_window(i.x, i.index,
                [&](const DistTensor& window) { return added(i, window, dy); }),
      x);
}

DistTensor scatter(const DistTensor& x, int dim, const DistTensor& index,
                   const DistTensor& src) {
  const Indexed i("scatter", x, dim, index, {src});
  const DistTensor elements = i.of("scatter", src);
  return scattered(i, x, [&](const DistTensor& to, const DistTensor& places) {
    return where(ge(places, 0), take_in_rows(elements, places), to);
  });
}

DistTensor scatter(const DistTensor& x, int dim, const DistTensor& index,
                   Number number) {
  return scattered(Indexed("scatter", x, dim, index, {}), x,
                   [&](const DistTensor& to, const DistTensor& places) {
                     return masked_fill(to, ge(places, 0), number.value);
                   });
}

// Returns the window with a neutral element of the reduction in each place that
// an index selects.
static DistTensor without_self(const Indexed& i, const DistTensor& window,
                               const DistTensor& src, IndexReduction by) {
  const DistTensor places = apply1(op_of<LastPlace>(), i.index,
                                   PutArgs{window.size(-1), true, i.dim});
  const DistTensor gone = ge(places, 0);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  switch (by) {
    case IndexReduction::kSum:
    case IndexReduction::kMean:
      return where(gone, 0, window);
    case IndexReduction::kProd:
      return where(gone, 1, window);
    case IndexReduction::kAmax:
    case IndexReduction::kAmin:
      break;
  }
  // An integer type has no infinity, but any of the elements of src will do,
  // because integers have no gradient.
  if (!is_float(src.dtype()))
    return where(gone, take_in_rows(src, places), window);
  return where(gone, by == IndexReduction::kAmax ? -kInf : kInf, window);
}

static DistTensor reduced(const Indexed& i, const DistTensor& window,
                          const DistTensor& src, IndexReduction by,
                          bool include_self) {
  const DistTensor start =
      include_self ? window : without_self(i, window, src, by);
  const auto combined = [&](Kind kind) {
    return apply1(combine_op(kind), {start, src, i.index},
                  TakeArgs{true, i.dim});
  };
  switch (by) {
    case IndexReduction::kAmax:
      return combined(Kind::kMax);
    case IndexReduction::kAmin:
      return combined(Kind::kMin);
    case IndexReduction::kProd:
      return combined(Kind::kProd);
    case IndexReduction::kSum:
    case IndexReduction::kMean:
      break;
  }
  const DistTensor sum = added(i, start, src);
  if (by == IndexReduction::kSum) return sum;
  const DistTensor count = clamp_min(
      put_in_rows(cast(ones_like(src), DType::kI64), i.index, start.size(-1)) +
          include_self,
      1);
  return is_float(sum.dtype()) ? sum / count
                               : cast(floor_divide(sum, count), sum.dtype());
}

DistTensor scatter_reduce(const DistTensor& x, int dim, const DistTensor& index,
                          const DistTensor& src, IndexReduction by,
                          bool include_self) {
  constexpr const char* kOp = "scatter_reduce";
  const Indexed i(kOp, x, dim, index, {src});
  const DistTensor elements = i.of(kOp, src);
  if (x.dtype() == DType::kBool)  // a sum of bools is their "or"
    return cast(scatter_reduce(cast(x, DType::kI32), dim, index,
                               cast(src, DType::kI32), by, include_self),
                DType::kBool);
  return i.back(in_window(i.x, i.index,
                          [&](const DistTensor& window) {
                            return reduced(i, window, elements, by,
                                           include_self);
                          }),
                x);
}

static const OpFamily kFamily("gather", [] {
  return OpList{&take_op(),
                &take_op(true),
                &put_op(),
                &op_of<LastPlace>(),
                &combine_op(Kind::kSum),
                &combine_op(Kind::kMax),
                &combine_op(Kind::kMin),
                &combine_op(Kind::kProd)};
});

}  // namespace dtensor
