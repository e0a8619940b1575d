#include "dtensor/ops/contraction.h"

#include <algorithm>

#include "dtensor/ops/contraction_op.h"
#include "dtensor/ops/op_lists.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

DistTensor product(const Op& op, std::span<const DistTensor> operands,
                   const Attrs& attrs = {}) {
  if (operands.size() == 2) {
    const DType a = operands[0].dtype(), b = operands[1].dtype();
    DT_CHECK(is_float(a) == is_float(b), op.name(),
             "the operands are {} and {}; cast the integers to {}", name(a),
             name(b), name(is_float(a) ? a : b));
    DT_CHECK(a == b, op.name(),
             "the operands are {} and {}; cast them to one type, such as {}",
             name(a), name(b), name(promote(a, b)));
  }
  return apply1(op, operands, attrs);
}

std::string letters(int n, char first = 'a') {
  std::string t;
  for (int i = 0; i < n; ++i) t += static_cast<char>(first + i);
  return t;
}

// The dimension of x that the letter at position `at` of its term stands for.
int dim_at(std::string_view term, size_t at, const DistTensor& x) {
  const size_t dots = term.find("...");
  return static_cast<int>(at) -
         (dots < at ? static_cast<int>(term.size()) - x.ndim() : 0);
}

// Replaces each operand that has a letter twice in its term by its diagonal,
// and adapts the rule. Returns false if there is none.
bool take_diagonals(std::string& rule, std::vector<DistTensor>& operands) {
  const size_t arrow = std::min(rule.find("->"), rule.size());
  std::string in;
  bool any = false;
  size_t begin = 0;
  for (DistTensor& x : operands) {
    if (begin > arrow) break;
    const size_t end = std::min(rule.find(',', begin), arrow);
    std::string term = rule.substr(begin, end - begin);
    begin = end + 1;
    for (size_t i = 0; i < term.size(); ++i)
      for (size_t j = term.size(); --j > i;) {
        if (term[i] == '.' || term[i] != term[j]) continue;
        const int a = dim_at(term, i, x), b = dim_at(term, j, x);
        DT_CHECK(x.size(a) == x.size(b), "einsum",
                 "'{}' takes the diagonal of two dimensions, but their sizes "
                 "are {} and {}; pass equal sizes",
                 rule, x.size(a), x.size(b));
        // `where` ignores other elements; times 0, infinities would give NaN.
        const auto along = [&](int d) {
          std::string shape(static_cast<size_t>(x.ndim()), '1');
          shape[static_cast<size_t>(d)] = 'a';
          const DistTensor index = arange(x.size(d), x.mesh());
          return apply1(product_op("expand", "a->" + shape), {&index, 1});
        };
        x = cast(sum(where(eq(along(a), along(b)), x, 0), {b}), x.dtype());
        term.erase(j, 1);
        any = true;
      }
    in += (in.empty() ? "" : ",") + term;
  }
  // Terms without an operand stay, for the rule's own check to report.
  if (begin <= arrow) in += "," + rule.substr(begin, arrow - begin);
  if (any) rule = in + rule.substr(arrow);
  return any;
}

}  // namespace

const Op& matmul_op() {
  static const Op& op = product_op("matmul", "...mk,...kn->...mn");
  return op;
}

OpList contraction_ops() {
  return {&matmul_op(),
          &product_op("einsum", "bshd,bthd->bhst"),
          &product_op("einsum", "ab,c->ac"),
          &product_op("einsum", "sk,vk->sv"),
          &product_op("sum", "abc->b"),
          &product_op("sum", "ab->"),
          &product_op("expand", "b->ab"),
          &product_op("expand", "a1->ab")};
}

DistTensor matmul(const DistTensor& a, const DistTensor& b) {
  const DistTensor both[] = {a, b};
  check_defined("matmul", both);
  DT_CHECK(a.ndim() >= 1 && b.ndim() >= 1, "matmul",
           "shapes {} and {} need at least one dimension each",
           to_string(a.shape()), to_string(b.shape()));
  if (a.ndim() > 1 && b.ndim() > 1) return product(matmul_op(), both);
  return product(product_op("matmul", b.ndim() > 1   ? "k,...kn->...n"
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

DistTensor einsum(std::string_view text,
                  const std::vector<DistTensor>& operands) {
  std::string t;
  for (char c : text)
    if (c != ' ') t += c;
  check_defined("einsum", operands);
  std::vector<DistTensor> own = operands;
  if (take_diagonals(t, own)) return einsum(t, own);
  const Rule& rule = product_rule(t);
  DT_CHECK(rule.inputs().size() == operands.size(), "einsum",
           "'{}' is for {} operands, but got {}", text, rule.inputs().size(),
           operands.size());
  const std::string alone = only_in_output(rule);
  DT_CHECK(alone.empty(), "einsum",
           "'{}' has the index '{}' only in its output", text, alone[0]);
  if (operands.size() <= 2) return product(product_op("einsum", t), operands);
  // Contract the first two, keeping indices that are used later, then the rest.
  size_t comma = t.find(',');
  comma = t.find(',', comma + 1);
  std::string first = t.substr(0, comma), rest = t.substr(comma + 1), kept;
  DT_CHECK(!rule.has_ellipsis(), "einsum",
           "'{}' has '...' and more than two operands; contract two at a time",
           text);
  for (char c : first)
    if (c != ',' && rest.find(c) != rest.npos && kept.find(c) == kept.npos)
      kept += c;
  std::vector<DistTensor> next{
      einsum(first + "->" + kept, {operands[0], operands[1]})};
  next.insert(next.end(), operands.begin() + 2, operands.end());
  return einsum(kept + "," + rest, next);
}

DistTensor sum(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  check_defined("sum", {&x, 1});
  if (!is_float(x.dtype()) && x.dtype() != DType::kI64)
    return sum(cast(x, DType::kI64), std::move(dims), keepdim);
  std::string in = letters(x.ndim()), out;
  std::vector<bool> gone(static_cast<size_t>(x.ndim()), dims.empty());
  for (int d : dims) {
    // As in torch, a scalar has a dimension 0.
    if (x.ndim() == 0 && (d == 0 || d == -1)) continue;
    auto at = static_cast<size_t>(normalize_dim(d, x.ndim(), "sum"));
    DT_CHECK(!gone[at], "sum", "dimension {} is named twice", d);
    gone[at] = true;
  }
  for (size_t d = 0; d < gone.size(); ++d) {
    if (!gone[d])
      out += in[d];
    else if (keepdim)
      out += '1';
  }
  return apply1(product_op("sum", in + "->" + out), {&x, 1});
}

DistTensor mean(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  check_defined("mean", {&x, 1});
  DT_CHECK(is_float(x.dtype()), "mean", "{} has no mean; cast it to f32 first",
           x.spec()->to_string());
  double n = 1;
  if (dims.empty() || x.ndim() == 0)
    n = static_cast<double>(numel(x.shape()));
  else
    for (int d : dims) n *= static_cast<double>(x.size(d));
  // The count follows from the global shape, so uneven parts need no averages
  // of (sum, count) pairs.
  return div(sum(x, std::move(dims), keepdim), n);
}

DistTensor expand(const DistTensor& x, const Shape& wanted) {
  check_defined("expand", {&x, 1});
  Shape shape = wanted;
  int extra = shape.size() - x.ndim();
  DT_CHECK(extra >= 0, "expand", "shape {} has fewer dimensions than {}",
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
             "{} cannot become {}: dimension {} has size {}, and only a "
             "dimension of size 1 can be repeated",
             x.spec()->to_string(), to_string(shape), d - extra, n);
    same &= n == shape[d];
    in += n == shape[d] ? out[static_cast<size_t>(d)] : '1';
  }
  if (same) return alias(x);
  return apply1(product_op("expand", in + "->" + out), {&x, 1}, args);
}

DistTensor sum_to(const DistTensor& x, const Shape& shape) {
  check_defined("sum_to", {&x, 1});
  if (!is_float(x.dtype()) && x.dtype() != DType::kI64)
    return sum_to(cast(x, DType::kI64), shape);
  if (x.shape() == shape) return x;
  std::string in = letters(x.ndim()), out;
  int extra = x.ndim() - shape.size();
  bool fits = extra >= 0;
  for (int d = std::max(0, extra); d < x.ndim(); ++d)
    fits = fits && (shape[d - extra] == x.shape()[d] || shape[d - extra] == 1);
  DT_CHECK(fits, "sum_to", "{} does not broadcast to {}", to_string(shape),
           x.spec()->to_string());
  for (int d = extra; d < x.ndim(); ++d)
    out += shape[d - extra] == x.shape()[d] ? in[static_cast<size_t>(d)] : '1';
  return apply1(product_op("sum", in + "->" + out), {&x, 1});
}

}  // namespace dtensor
