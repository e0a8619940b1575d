// SPDX-License-Identifier: Apache-2.0
// Functions and norms of matrices.
#include <cmath>
#include <limits>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/linalg_op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

class MatrixExpOp : public MatrixOp {
 public:
  MatrixExpOp()
      : MatrixOp("matrix_exp", "...m!n!->...mn", {.work = kFactorWork}) {}
  std::vector<Sample> samples() const override {
    return {{{{{5, 3, 3}}}, {}}, {{{{4, 4}}}, {}}, {{{{2, 3, 1, 1}}}, {}}};
  }
  void compute(Compute& c) const override {
    const Matrices x(c.in[0]);
    const DType t = x.t.dtype();
    c.run(kernels::MatrixExp{
        .type = t,
        .count = x.count,
        .n = x.n,
        .x = x.data(),
        .y = c.out[0].mutable_data(),
        .work = c.scratch({x.count, 2 * x.n, x.n}, t).mutable_data()});
  }
  // exp([[a, e], [0, a]]) has the derivative of exp at a in direction e as its
  // upper right block (Mathias, SIAM J. Matrix Anal. Appl. 17, 1996). The
  // gradient is the derivative at x^T in direction dy.
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor a = turned(g.inputs[0]), &dy = g.cotangents[0];
    const int64_t n = a.size(-1);
    const DistTensor block =
        cat({cat({a, dy}, -1), cat({zeros_like(dy), a}, -1)}, -2);
    return {narrow(narrow(matrix_exp(block), -2, 0, n), -1, n, n)};
  }
};

// x with two dimensions moved to the end, as those of matrices.
struct AsMatrices {
  AsMatrices(const DistTensor& from, const std::vector<int>& dims) {
    check_defined("matrix_norm", from);
    DT_CHECK(dims.size() == 2, "matrix_norm",
             "the list of dimensions has length {}; write the two dimensions "
             "of the matrices",
             dims.size());
    row = normalize_dim(dims[0], from.ndim(), "matrix_norm");
    column = normalize_dim(dims[1], from.ndim(), "matrix_norm");
    DT_CHECK(row != column, "matrix_norm",
             "dimension {} of {} is named twice; write two dimensions", row,
             from.spec()->to_string());
    x = movedim(from, {row, column}, {-2, -1});
  }
  // A number for each matrix, with dimensions of size 1 in place of the two.
  DistTensor with_dims(const DistTensor& y) const {
    return movedim(by_row(by_row(y)), {-2, -1}, {row, column});
  }
  DistTensor x;
  int row, column;
};

}  // namespace

DistTensor matrix_exp(const DistTensor& x) {
  check_square("matrix_exp", x);
  return apply1(op_of<MatrixExpOp>(), x);
}

DistTensor matrix_power(const DistTensor& x, int64_t n) {
  check_square("matrix_power", x);
  DT_CHECK(n > std::numeric_limits<int64_t>::min(), "matrix_power",
           "n is {}; write a larger one", n);
  if (n < 0) return matrix_power(inv(x), -n);
  // As in torch, the result is part of the graph, with the gradient 0.
  if (n == 0)
    return where(full({}, 1, x.mesh(), {}, DType::kBool), unit_matrix(x), x);
  if (n == 1) return x;
  const DistTensor half = matrix_power(x, n / 2);
  const DistTensor even = matmul(half, half);
  return n % 2 ? matmul(even, x) : even;
}

DistTensor matrix_norm(const DistTensor& x, std::string_view order,
                       std::vector<int> dims, bool keepdim) {
  if (order == "fro") {
    const AsMatrices checked(x, dims);
    return vector_norm(x, 2, std::move(dims), keepdim);
  }
  DT_CHECK(order == "nuc", "matrix_norm",
           "the order is \"{}\"; write \"fro\", \"nuc\", or a number", order);
  const AsMatrices of(x, dims);
  const DistTensor y = sum(svdvals(of.x), {-1});
  return keepdim ? of.with_dims(y) : y;
}

DistTensor matrix_norm(const DistTensor& x, double order, std::vector<int> dims,
                       bool keepdim) {
  const double size = std::abs(order);
  DT_CHECK(size == 1 || size == 2 || std::isinf(size), "matrix_norm",
           "the order is {}; write 1, 2 or infinity, or minus these, or "
           "\"fro\" or \"nuc\"",
           order);
  const AsMatrices of(x, dims);
  const DistTensor each =
      size == 2 ? svdvals(of.x) : sum(abs(of.x), {size == 1 ? -2 : -1});
  const DistTensor y = order > 0 ? amax(each, {-1}) : amin(each, {-1});
  return keepdim ? of.with_dims(y) : y;
}

DistTensor norm(const DistTensor& x, double order, std::vector<int> dims,
                bool keepdim) {
  check_defined("norm", x);
  const bool matrix = dims.size() == 2 || (dims.empty() && x.ndim() == 2);
  if (!matrix) {
    DT_CHECK(dims.size() == 1 || x.ndim() <= 1, "norm",
             "{} has {} dimensions; write the one or two of the vectors or "
             "matrices",
             x.spec()->to_string(), x.ndim());
    return vector_norm(x, order, std::move(dims), keepdim);
  }
  if (dims.empty()) dims = {0, 1};
  return matrix_norm(x, order, std::move(dims), keepdim);
}

static const OpFamily kFamily("matrix_functions",
                              [] { return OpList{&op_of<MatrixExpOp>()}; });

}  // namespace dtensor
