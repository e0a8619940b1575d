// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/local_product.h"

#include <algorithm>

#include "dtensor/ops/kernels/exact_sum.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

int64_t stride_at(const Tensor& t, int dim) {
  return dim < 0 ? 0 : t.strides()[dim];
}

// sum = `in`, summed over the dimensions `dims` (bit d: dimension d). `sum` is
// of type exact.
void add_exactly(const Compute& c, const Tensor& in, uint32_t dims,
                 const Tensor& sum) {
  c.device().fill(c.stream, sum.dtype(), sum.shape(), sum.mutable_data(),
                  sum.strides(), 0);
  Shape steps;
  for (int d = 0, to = 0; d < in.ndim(); ++d)
    steps.push_back(dims >> d & 1 ? 0 : sum.strides()[to++]);
  c.run(kernels::ExactSum{.type = in.dtype(),
                          .shape = in.shape(),
                          .in = in.data(),
                          .strides = in.strides(),
                          .out = sum.mutable_data(),
                          .out_strides = steps});
}

}  // namespace

LocalProduct::LocalProduct(const Rule& rule)
    : single_(rule.inputs().size() == 1) {
  const Rule::Term &a = rule.inputs()[0], &out = rule.outputs()[0];
  if (single_) {
    Rule::Term kept;
    for (size_t d = 0; d < a.size(); ++d)
      if (!a[d].empty() &&
          rule.factors()[static_cast<size_t>(a[d][0])].contracted)
        reduced_ |= 1u << d;
      else
        kept.push_back(a[d]);
    in_order_ = kept == out;
    for (const Rule::DimFactors& d : out)
      from_.push_back(d.empty() ? -1 : dim_of(kept, d[0]));
    return;
  }
  const Rule::Term& b = rule.inputs()[1];
  std::vector<bool> seen(rule.factors().size());
  for (const Rule::Term* term : {&out, &a, &b})
    for (const Rule::DimFactors& d : *term) {
      if (d.empty() || seen[static_cast<size_t>(d[0])]) continue;
      seen[static_cast<size_t>(d[0])] = true;
      places_.push_back({dim_of(a, d[0]), dim_of(b, d[0]), dim_of(out, d[0])});
      repeats_ |= places_.back().repeats();
    }
}

int LocalProduct::leaf_factor(const Rule& rule) {
  int last = -1;
  std::vector<bool> seen(rule.factors().size());
  for (const Rule::Term& term : rule.inputs())
    for (const Rule::DimFactors& d : term) {
      if (d.empty()) continue;
      const auto f = static_cast<size_t>(d[0]);
      if (!seen[f] && rule.factors()[f].contracted) last = d[0];
      seen[f] = true;
    }
  return last;
}

bool LocalProduct::views(const Rule& rule) {
  return rule.inputs().size() == 1 &&
         std::none_of(rule.factors().begin(), rule.factors().end(),
                      [](const Factor& f) { return f.contracted; });
}

bool LocalProduct::run(Compute& c, const kernels::Epilogue& e) const {
  if (!single_) return two_operands(c, e);
  one_operand(c);
  return false;
}

void LocalProduct::one_operand(Compute& c) const {
  Tensor &out = c.out[0], t = c.in[0];
  if (reduced_) {
    Shape shape;
    for (int d = 0; d < t.ndim(); ++d)
      if (!(reduced_ >> d & 1)) shape.push_back(t.shape()[d]);
    const Tensor sum = in_order_ ? out : c.scratch(shape, out.dtype());
    if (out.dtype() == DType::kExact)
      add_exactly(c, t, reduced_, sum);
    else
      c.run(kernels::Reduce{.type = t.dtype(),
                            .shape = t.shape(),
                            .in = t.data(),
                            .strides = t.strides(),
                            .dims = reduced_,
                            .out = sum.mutable_data()});
    if (in_order_) return;
    t = sum;
  }
  Shape strides;
  for (int d : from_) strides.push_back(stride_at(t, d));
  if (!reduced_) {
    out = t.as_strided(c.decision.out_local[0], strides);
    return;
  }
  c.device().copy(c.stream, size_of(t.dtype()), out.shape(), out.mutable_data(),
                  out.strides(), t.data(), strides);
}

bool LocalProduct::two_operands(Compute& c, const kernels::Epilogue& e) const {
  const Tensor& out = c.out[0];
  // For factors that occur only in the output, the product is computed once,
  // then repeated.
  Tensor target = out;
  if (repeats_) {
    Shape narrow = out.shape();
    for (const Place& p : places_)
      if (p.repeats()) narrow[p.out] = 1;
    target = c.scratch(narrow, out.dtype());
  }
  Loops list;
  bool done = false;
  const bool by_leaves = c.context.reproducible && is_float(c.in[0].dtype());
  if (target.numel() > 0) {
    if (loops(c.in[0], c.in[1], target, by_leaves, list)) {
      // The kernel rounds the sum over one factor. A sum over several is exact
      // first.
      const bool exact = by_leaves && target.dtype() != DType::kExact &&
                         target.dtype() != DType::kF64 &&
                         std::ranges::count_if(list, [](const Loop& l) {
                           return l.summed();
                         }) > 1;
      const Tensor sums =
          exact ? c.scratch(target.shape(), DType::kExact) : target;
      done =
          multiply(c, list, sums, by_leaves, exact ? kernels::Epilogue() : e);
      if (exact) {
        c.device().cast(c.stream, target.shape(), target.dtype(),
                        target.mutable_data(), target.strides(), sums.dtype(),
                        sums.data(), sums.strides());
        done = false;
      }
    } else
      c.device().fill(c.stream, target.dtype(), target.shape(),
                      target.mutable_data(), target.strides(), 0);
  }
  if (!repeats_) return done;
  Shape strides = target.strides();
  for (const Place& p : places_)
    if (p.repeats()) strides[p.out] = 0;
  c.device().copy(c.stream, size_of(out.dtype()), out.shape(),
                  out.mutable_data(), out.strides(), target.data(), strides);
  return done;
}

bool LocalProduct::loops(const Tensor& a, const Tensor& b, const Tensor& out,
                         bool by_leaves, Loops& list) const {
  for (const Place& p : places_) {
    const int64_t size = p.out >= 0 ? out.shape()[p.out]
                         : p.a >= 0 ? a.shape()[p.a]
                                    : b.shape()[p.b];
    if (size == 0) return false;
    if (size == 1 && !(by_leaves && p.out < 0)) continue;
    Loop l{
        size,     stride_at(a, p.a), stride_at(b, p.b), stride_at(out, p.out),
        p.a >= 0, p.b >= 0,          p.out >= 0};
    if (!list.empty()) {
      Loop& outer = list.back();
      if (!(by_leaves && l.summed()) && outer.same_operands(l) &&
          outer.a == l.a * l.size && outer.b == l.b * l.size &&
          outer.out == l.out * l.size) {
        l.size *= outer.size;
        outer = l;
        continue;
      }
    }
    list.push_back(l);
  }
  return true;
}

bool LocalProduct::multiply(Compute& c, const Loops& list, const Tensor& out,
                            bool by_leaves, const kernels::Epilogue& e) const {
  // m, n and k are the largest loops of their kinds; the others are batches.
  // By leaves, k is the last summed factor of the rule, whatever its size: the
  // sizes of parts depend on the mesh.
  const Loop one{1, 1, 1, 1, false, false, false};
  const Loop *m = &one, *n = &one, *k = &one;
  const auto pick = [&](const Loop*& at, bool in_a, bool in_b, bool in_out) {
    for (const Loop& l : list)
      if (l.in_a == in_a && l.in_b == in_b && l.in_out == in_out &&
          l.size > at->size)
        at = &l;
  };
  pick(m, true, false, true);
  pick(n, false, true, true);
  if (!by_leaves)
    pick(k, true, true, false);
  else if (!list.empty() && list.back().summed())
    k = &list.back();
  InlineVec<const Loop*, kMostLoops> batch;
  for (const Loop& l : list)
    if (&l != m && &l != n && &l != k) batch.push_back(&l);
  kernels::Gemm g{.type = c.in[0].dtype(), .c_type = out.dtype()};
  g.by_leaves = by_leaves;
  g.m = m->size, g.a_m = m->a, g.c_m = m->out;
  g.n = n->size, g.b_n = n->b, g.c_n = n->out;
  g.k = k->size, g.a_k = k->a, g.b_k = k->b;
  // The kernel takes four batch dimensions. This function loops over the other
  // ones. Along those that are summed, the calls after the first index
  // accumulate.
  constexpr size_t kBatches = 4;
  const size_t outer = batch.size() > kBatches ? batch.size() - kBatches : 0;
  for (size_t i = outer; i < batch.size(); ++i) {
    g.batch.push_back(batch[i]->size);
    g.a_batch_strides.push_back(batch[i]->a);
    g.b_batch_strides.push_back(batch[i]->b);
    g.c_batch_strides.push_back(batch[i]->out);
  }
  if (outer == 0) g.epilogue = e;
  const Tensor &a = c.in[0], &b = c.in[1];
  const int64_t item = size_of(g.type), out_item = size_of(g.c_type);
  std::array<int64_t, kMostLoops> at{};
  for (;;) {
    int64_t oa = 0, ob = 0, oc = 0;
    bool again = false;
    for (size_t i = 0; i < outer; ++i) {
      oa += at[i] * batch[i]->a;
      ob += at[i] * batch[i]->b;
      oc += at[i] * batch[i]->out;
      again |= !batch[i]->in_out && at[i] > 0;
    }
    g.a = a.ptr<char>() + oa * item;
    g.b = b.ptr<char>() + ob * item;
    g.c = out.mutable_ptr<char>() + oc * out_item;
    g.accumulate = again;
    c.run(g);
    size_t i = outer;
    while (i > 0 && ++at[i - 1] == batch[i - 1]->size) at[--i] = 0;
    if (i == 0) return outer == 0;
  }
}

}  // namespace dtensor
