// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/contraction.h"

#include <algorithm>
#include <bitset>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction_op.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/local_product.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

std::string letters(int n, char first = 'a') {
  std::string t;
  for (int i = 0; i < n; ++i) t += static_cast<char>(first + i);
  return t;
}

}  // namespace

const Op& matmul_op() {
  static const Op& op = product_op("matmul", "...mk,...kn->...mn");
  return op;
}

static const OpFamily kFamily("contraction", [] {
  return OpList{&matmul_op(),
                &product_op("einsum", "bshd,bthd->bhst"),
                &product_op("einsum", "ab,c->ac"),
                &product_op("einsum", "sk,vk->sv"),
                &product_op("sum", "abc->b"),
                &product_op("sum", "ab->"),
                &product_op("expand", "b->ab"),
                &product_op("expand", "a1->ab")};
});

DistTensor matmul(const DistTensor& a, const DistTensor& b) {
  const DistTensor both[] = {a, b};
  check_defined("matmul", both);
  DT_CHECK(
      a.ndim() >= 1 && b.ndim() >= 1, "matmul",
      "a scalar has no matrix product, but the shapes are {} and {}; multiply "
      "with mul()",
      to_string(a.shape()), to_string(b.shape()));
  check_types("matmul", both);
  if (a.ndim() > 1 && b.ndim() > 1) return apply1(matmul_op(), both);
  return apply1(product_op("matmul", b.ndim() > 1   ? "k,...kn->...n"
                                     : a.ndim() > 1 ? "...mk,k->...m"
                                                    : "k,k->"),
                both);
}

DistTensor bmm(const DistTensor& a, const DistTensor& b) {
  check_defined("bmm", {a, b});
  DT_CHECK(a.ndim() == 3 && b.ndim() == 3 && a.size(0) == b.size(0), "bmm",
           "shapes {} and {} must be [b, m, k] and [b, k, n]",
           to_string(a.shape()), to_string(b.shape()));
  return matmul(a, b);
}

// The sum that the rule describes.
static DistTensor total(const std::string& rule, const DistTensor& x) {
  const bool exact =
      has_exact_sums(x.dtype()) && !LocalProduct::views(product_rule(rule));
  return cast(apply1(product_op("sum", rule, exact), x), x.dtype());
}

static DistTensor sum_for(std::string_view op, const DistTensor& x,
                          const std::vector<int>& dims, bool keepdim) {
  if (!is_float(x.dtype()) && x.dtype() != DType::kI64)
    return sum_for(op, cast(x, DType::kI64), dims, keepdim);
  std::string in = letters(x.ndim()), out;
  std::bitset<kMaxDims> gone;
  if (dims.empty()) gone.set();
  for (int d : dims) {
    // As in torch, a scalar has a dimension 0.
    if (x.ndim() == 0 && (d == 0 || d == -1)) continue;
    auto at = static_cast<size_t>(normalize_dim(d, x.ndim(), op));
    DT_CHECK(!gone[at], op, "dimension {} of {} is named twice; name it once",
             at, to_string(x.shape()));
    gone[at] = true;
  }
  for (size_t d = 0; d < in.size(); ++d) {
    if (!gone[d])
      out += in[d];
    else if (keepdim)
      out += '1';
  }
  return total(in + "->" + out, x);
}

DistTensor sum(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  check_defined("sum", x);
  return sum_for("sum", x, dims, keepdim);
}

DistTensor mean(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  check_defined("mean", x);
  DT_CHECK(is_float(x.dtype()), "mean", "{} has no mean; cast it to f32 first",
           x.spec()->to_string());
  double n = 1;
  if (dims.empty() || x.ndim() == 0)
    n = static_cast<double>(numel(x.shape()));
  else
    for (int d : dims)
      n *= static_cast<double>(x.size(normalize_dim(d, x.ndim(), "mean")));
  // The count follows from the global shape. So the result can stay a partial
  // sum even if the ranks' parts have different sizes, and needs no (sum,
  // count) pairs (ReduceOp::kMean).
  return div(sum_for("mean", x, dims, keepdim), n);
}

DistTensor expand(const DistTensor& x, const Shape& wanted) {
  check_defined("expand", x);
  Shape shape = wanted;
  int extra = shape.size() - x.ndim();
  DT_CHECK(extra >= 0, "expand",
           "shape {} has fewer dimensions than {}; write a size for each "
           "dimension",
           to_string(shape), x.spec()->to_string());
  for (int d = extra; d < shape.size(); ++d)
    if (shape[d] == -1) shape[d] = x.shape()[d - extra];
  std::string out = letters(shape.size()), in;
  ContractionArgs args;  // sizes of new and repeated dimensions
  bool same = extra == 0;
  for (int d = 0; d < shape.size(); ++d) {
    if (d < extra || x.shape()[d - extra] != shape[d])
      args.sizes.push_back(shape[d]);
    if (d < extra) continue;
    int64_t n = x.shape()[d - extra];
    DT_CHECK(n == shape[d] || n == 1, "expand",
             "{} cannot become {}, because dimension {} has size {} and only a "
             "dimension of size 1 can be repeated; keep its size",
             x.spec()->to_string(), to_string(shape), d - extra, n);
    same &= n == shape[d];
    in += n == shape[d] ? out[static_cast<size_t>(d)] : '1';
  }
  if (same) return alias(x);
  return apply1(product_op("expand", in + "->" + out), x, args);
}

// The rule of the sum over what broadcasting `shape` to x's shape repeats.
static std::string rule_to(const DistTensor& x, const Shape& shape) {
  std::string in = letters(x.ndim()), out;
  int extra = x.ndim() - shape.size();
  bool fits = extra >= 0;
  for (int d = std::max(0, extra); d < x.ndim(); ++d)
    fits = fits && (shape[d - extra] == x.shape()[d] || shape[d - extra] == 1);
  DT_CHECK(fits, "sum_to",
           "{} does not broadcast to {}; write a shape whose sizes are 1 or "
           "those of the tensor",
           to_string(shape), x.spec()->to_string());
  for (int d = extra; d < x.ndim(); ++d)
    out += shape[d - extra] == x.shape()[d] ? in[static_cast<size_t>(d)] : '1';
  return in + "->" + out;
}

DistTensor sum_to(const DistTensor& x, const Shape& shape) {
  check_defined("sum_to", x);
  if (!is_float(x.dtype()) && x.dtype() != DType::kI64)
    return sum_to(cast(x, DType::kI64), shape);
  return x.shape() == shape ? x : total(rule_to(x, shape), x);
}

DistTensor cotangent_sum(const DistTensor& x, const Shape& shape) {
  if (!has_exact_sums(x.dtype()) || x.shape() == shape) return sum_to(x, shape);
  return apply1(product_op("sum", rule_to(x, shape), true), x);
}

}  // namespace dtensor
