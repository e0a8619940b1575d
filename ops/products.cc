// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

void check_ndim(std::string_view op, const DistTensor& x, int ndim) {
  DT_CHECK(x.ndim() == ndim, op,
           "the number of dimensions of {} is {}; pass a tensor with {}",
           x.spec()->to_string(), x.ndim(), ndim);
}

// A number times a tensor, in the tensor's type. For integers, as in PyTorch,
// the number is truncated.
DistTensor times(const DistTensor& x, double by) {
  if (by == 1) return x;
  if (is_float(x.dtype())) return mul(x, by);
  if (x.dtype() == DType::kBool) return mul(x, by != 0);
  return mul(x, static_cast<int64_t>(by));
}

// beta * input + alpha * product.
DistTensor combined(std::string_view op, const DistTensor& input,
                    const DistTensor& product, double beta, double alpha) {
  const Shape& to = product.shape();
  bool fits = input.ndim() <= to.size();
  for (int d = 1; fits && d <= input.ndim(); ++d)
    fits = input.size(-d) == 1 || input.size(-d) == to[to.size() - d];
  DT_CHECK(fits, op,
           "{} does not broadcast to the product's shape {}; pass a tensor of "
           "that shape, or one that broadcasts to it",
           input.spec()->to_string(), to_string(to));
  const DistTensor scaled = times(product, alpha);
  return beta == 0 ? scaled : add(times(input, beta), scaled);
}

std::string letters(int n, char first) {
  std::string s;
  for (int i = 0; i < n; ++i) s += static_cast<char>(first + i);
  return s;
}

}  // namespace

DistTensor dot(const DistTensor& a, const DistTensor& b) {
  check_defined("dot", {a, b});
  check_ndim("dot", a, 1);
  check_ndim("dot", b, 1);
  DT_CHECK(a.size(0) == b.size(0), "dot",
           "{} and {} have different sizes; pass vectors of one size",
           a.spec()->to_string(), b.spec()->to_string());
  return einsum("k,k->", {a, b});
}

DistTensor vecdot(const DistTensor& a, const DistTensor& b, int dim) {
  check_defined("vecdot", {a, b});
  return sum(mul(a, b), {dim});
}

DistTensor mv(const DistTensor& matrix, const DistTensor& vector) {
  check_defined("mv", {matrix, vector});
  check_ndim("mv", matrix, 2);
  check_ndim("mv", vector, 1);
  return matmul(matrix, vector);
}

DistTensor outer(const DistTensor& a, const DistTensor& b) {
  check_defined("outer", {a, b});
  check_ndim("outer", a, 1);
  check_ndim("outer", b, 1);
  // Not a matrix product, which does not take bools.
  return mul(unsqueeze(a, 1), unsqueeze(b, 0));
}

// tensordot(), whose errors name `op`.
static DistTensor contracted(std::string_view op, DistTensor a, DistTensor b,
                             const std::vector<int>& dims_a,
                             const std::vector<int>& dims_b) {
  check_defined(op, {a, b});
  DT_CHECK(
      dims_a.size() == dims_b.size(), op,
      "dims_a has size {} for {}, and dims_b has size {} for {}; name equally "
      "many dimensions in both",
      dims_a.size(), a.spec()->to_string(), dims_b.size(),
      b.spec()->to_string());
  std::string in_a = letters(a.ndim(), 'a'), in_b = letters(b.ndim(), 'n'),
              out_a = in_a, out_b = in_b;
  for (size_t i = 0; i < dims_a.size(); ++i) {
    const int d = normalize_dim(dims_a[i], a.ndim(), op),
              e = normalize_dim(dims_b[i], b.ndim(), op);
    // As in PyTorch, a dimension of size 1 pairs with any size.
    if (a.size(d) == 1 && b.size(e) != 1) b = sum(b, {e}, true);
    if (b.size(e) == 1 && a.size(d) != 1) a = sum(a, {d}, true);
    DT_CHECK(a.size(d) == b.size(e), op,
             "dimension {} of {} and {} of {} have different sizes; name "
             "dimensions of one size",
             d, a.spec()->to_string(), e, b.spec()->to_string());
    const char letter = in_a[static_cast<size_t>(d)];
    std::erase(out_a, letter);
    std::erase(out_b, in_b[static_cast<size_t>(e)]);
    in_b[static_cast<size_t>(e)] = letter;
  }
  return einsum(in_a + "," + in_b + "->" + out_a + out_b, {a, b});
}

DistTensor inner(const DistTensor& a, const DistTensor& b) {
  check_defined("inner", {a, b});
  if (a.ndim() == 0 || b.ndim() == 0) return mul(a, b);
  return contracted("inner", a, b, {a.ndim() - 1}, {b.ndim() - 1});
}

DistTensor tensordot(const DistTensor& a, const DistTensor& b,
                     const std::vector<int>& dims_a,
                     const std::vector<int>& dims_b) {
  return contracted("tensordot", a, b, dims_a, dims_b);
}

DistTensor tensordot(const DistTensor& a, const DistTensor& b, int dims) {
  check_defined("tensordot", {a, b});
  DT_CHECK(dims >= 0 && dims <= a.ndim() && dims <= b.ndim(), "tensordot",
           "dims is {}, for {} and {}; write 0 to {}", dims,
           a.spec()->to_string(), b.spec()->to_string(),
           std::min(a.ndim(), b.ndim()));
  std::vector<int> last, first;
  for (int i = 0; i < dims; ++i) {
    last.push_back(a.ndim() - dims + i);
    first.push_back(i);
  }
  return tensordot(a, b, last, first);
}

DistTensor kron(const DistTensor& a, const DistTensor& b) {
  check_defined("kron", {a, b});
  // a in the shape [a0, 1, a1, 1, ...] times b in [1, b0, 1, b1, ...].
  const int n = std::max(a.ndim(), b.ndim());
  Shape of_a, of_b, out;
  for (int d = 0; d < n; ++d) {
    const int i = d - (n - a.ndim()), j = d - (n - b.ndim());
    of_a.push_back(i < 0 ? 1 : a.shape()[i]);
    of_a.push_back(1);
    of_b.push_back(1);
    of_b.push_back(j < 0 ? 1 : b.shape()[j]);
    out.push_back(of_a[2 * d] * of_b[2 * d + 1]);
  }
  return reshape(mul(reshape(a, of_a), reshape(b, of_b)), out);
}

DistTensor multi_dot(TensorList matrices) {
  const size_t n = matrices.size();
  DT_CHECK(n >= 2 && n <= 51, "multi_dot",
           "the number of matrices is {}; pass 2 to 51", n);
  check_defined("multi_dot", matrices);
  // "ab,bc,cd->ad" for three matrices. A vector in front has no a, and one at
  // the end no d.
  std::string text, ends[2];
  for (size_t i = 0; i < n; ++i) {
    const DistTensor& x = matrices[i];
    const bool first = i == 0, end = first || i + 1 == n;
    DT_CHECK(x.ndim() == 2 || (x.ndim() == 1 && end), "multi_dot",
             "input {} is {}; it has to be a matrix{}", i,
             x.spec()->to_string(), end ? " or a vector" : "");
    DT_CHECK(first || matrices[i - 1].size(-1) == x.size(0), "multi_dot",
             "inputs {} and {} are {} and {}; the last size of one has to be "
             "the first size of the next",
             i - 1, i, matrices[i - 1].spec()->to_string(),
             x.spec()->to_string());
    std::string term;
    for (size_t k : {i, i + 1})
      term += static_cast<char>(k < 26 ? 'a' + k : 'A' + (k - 26));
    if (end && x.ndim() == 2) ends[first ? 0 : 1] = term[first ? 0 : 1];
    if (x.ndim() == 1) term.erase(first ? 0 : 1, 1);
    text += (first ? "" : ",") + term;
  }
  return einsum(text + "->" + ends[0] + ends[1], matrices);
}

DistTensor addmm(const DistTensor& input, const DistTensor& a,
                 const DistTensor& b, double beta, double alpha) {
  check_defined("addmm", {input, a, b});
  check_ndim("addmm", a, 2);
  check_ndim("addmm", b, 2);
  return combined("addmm", input, matmul(a, b), beta, alpha);
}

DistTensor addmv(const DistTensor& input, const DistTensor& matrix,
                 const DistTensor& vector, double beta, double alpha) {
  check_defined("addmv", {input, matrix, vector});
  return combined("addmv", input, mv(matrix, vector), beta, alpha);
}

DistTensor addr(const DistTensor& input, const DistTensor& a,
                const DistTensor& b, double beta, double alpha) {
  check_defined("addr", {input, a, b});
  return combined("addr", input, outer(a, b), beta, alpha);
}

DistTensor baddbmm(const DistTensor& input, const DistTensor& a,
                   const DistTensor& b, double beta, double alpha) {
  check_defined("baddbmm", {input, a, b});
  return combined("baddbmm", input, bmm(a, b), beta, alpha);
}

DistTensor addbmm(const DistTensor& input, const DistTensor& a,
                  const DistTensor& b, double beta, double alpha) {
  check_defined("addbmm", {input, a, b});
  check_ndim("addbmm", a, 3);
  check_ndim("addbmm", b, 3);
  return combined("addbmm", input, einsum("bmk,bkn->mn", {a, b}), beta, alpha);
}

DistTensor bilinear(const DistTensor& a, const DistTensor& b,
                    const DistTensor& weight, const DistTensor& bias) {
  check_defined("bilinear", {a, b, weight});
  check_ndim("bilinear", weight, 3);
  const auto rows = [](const DistTensor& x) {
    Shape shape = x.shape();
    if (!shape.empty()) shape.pop_back();
    return shape;
  };
  DT_CHECK(rows(a) == rows(b), "bilinear",
           "the inputs have shapes {} and {}; all of their dimensions but the "
           "last one must be equal",
           to_string(a.shape()), to_string(b.shape()));
  const DistTensor y = einsum("...i,oij,...j->...o", {a, weight, b});
  return bias.defined() ? add(y, bias) : y;
}

}  // namespace dtensor
