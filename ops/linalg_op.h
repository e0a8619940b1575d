// SPDX-License-Identifier: Apache-2.0
// Shared by the operators of linalg.h, which work on whole matrices.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/ops/kernels/linalg.h"
#include "dtensor/ops/linalg.h"
#include "dtensor/ops/op.h"

namespace dtensor {

// The matrices of a local tensor, one after the other: [count, m, n].
struct Matrices {
  explicit Matrices(const Tensor&);
  const void* data() const { return t.data(); }
  Tensor t;
  int64_t count = 1, m, n;
};

// out = a b, or out += a b if `accumulate`, for local matrices [count, m, k]
// and [count, k, n] with any strides.
void multiply(Compute&, const Tensor& a, const Tensor& b, const Tensor& out,
              bool accumulate = false);

// A local tensor, repeated for each matrix of `out`: its batch dimensions
// broadcast to those of `out`, and its last `own` dimensions stay.
Tensor repeated(const Tensor& x, const Tensor& out, int own);

// Sets most [1] to the largest element of `failed`; see kernels::Lu.
void most_of(Compute&, const Tensor& failed, const Tensor& most);
// Throws Error on every rank if some element of `most` is not 0 on some rank.
// Element i, less 1, is a row behind the row begins[i]; sentence(row) is the
// text for the first one.
void check_failed(Compute&, const Tensor& most, std::vector<int64_t> begins,
                  std::string (*sentence)(int64_t row));

// The indices of a range; no range if it is empty.
IntervalList listed(const Interval&);
// For Compute::fetch(): these rows and columns of each matrix of the rank at a
// coordinate.
Region region_at(const Spec& matrices, const Coord& at, IntervalList rows,
                 IntervalList columns);

// An operator with one rule, in which every letter stands for a dimension of a
// matrix, and "k" in an output for another one of the size of the last. The
// matrices of the first input are square, or `tall`: no matrix has more columns
// than rows. All inputs and outputs have one type.
class MatrixOp : public Op {
 public:
  MatrixOp(std::string name, std::string_view rule, const OpFacts& facts,
           bool tall = false)
      : Op(std::move(name), apart(facts)), rule_(rule), tall_(tall) {}
  BoundRule bind(const std::vector<Shape>&, const Attrs&) const override;
  // Throws Error unless the inputs are f32 or f64.
  std::vector<DType> out_dtypes(std::span<const DType>,
                                const Attrs&) const override;

 private:
  static OpFacts apart(OpFacts facts) {
    facts.sums = OpFacts::Sums::kTogether;
    return facts;
  }

  Rule rule_;
  bool tall_;
};

// A factorisation takes some n operations for each element, and the price of a
// rule knows only the elements. This stands for matrices of 64 rows.
inline constexpr OpWork kFactorWork{.flops_per_point = 64};

// The part of a symmetric matrix that is read (kernels::Triangle). The gradient
// is the one for kBoth, a symmetric matrix, in each case. The proof changes
// elements one by one, so the samples have kBoth.
struct TriangleArgs {
  static constexpr Fields kFields = {"triangle"};
  int64_t triangle = static_cast<int64_t>(kernels::Triangle::kBoth);
};
kernels::Triangle triangle_of(const Attrs&);
TriangleArgs triangle_args(bool upper);

// Throw Error unless x is defined and has matrices, or square ones.
void check_matrices(std::string_view op, const DistTensor& x);
void check_square(std::string_view op, const DistTensor& x);

// ---- Short names for formulas ----

DistTensor turned(const DistTensor& x);  // the transpose of each matrix
// The elements of a vector as factors of the columns, or of the rows.
DistTensor by_column(const DistTensor& v);
DistTensor by_row(const DistTensor& v);
// The symmetric matrix with this upper triangle. The lower one must be 0.
DistTensor mirrored(const DistTensor& upper);
// The unit matrix of x's columns.
DistTensor unit_matrix(const DistTensor& x);
// t^-1 b and b t^-1 for a triangle t.
DistTensor solved(const DistTensor& t, const DistTensor& b, bool upper,
                  bool unit = false);
DistTensor divided(const DistTensor& b, const DistTensor& t, bool upper,
                   bool unit = false);

}  // namespace dtensor
