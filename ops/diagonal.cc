// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/diagonal.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// The dimensions of a tensor with `ndim` dimensions that are a matrix's rows
// and columns.
struct Sides {
  Sides(std::string_view op, int ndim, int dim1, int dim2)
      : row(normalize_dim(dim1, ndim, op)),
        column(normalize_dim(dim2, ndim, op)) {
    DT_CHECK(row != column, op,
             "dim1 is {} and dim2 is {}, which are the same dimension; write "
             "two different ones",
             dim1, dim2);
  }
  DistTensor last(const DistTensor& x) const {
    return movedim(x, {row, column}, {-2, -1});
  }
  DistTensor back(const DistTensor& x) const {
    return movedim(x, {-2, -1}, {row, column});
  }
  int row, column;
};

// The rows of a matrix [m, n] that a diagonal crosses.
struct Crossed {
  Crossed(int64_t m, int64_t n, int64_t k)
      : offset(std::clamp(k, -m, n)),
        first(std::max<int64_t>(0, -offset)),
        count(std::max<int64_t>(0, std::min(m, n - offset) - first)) {}
  int64_t offset, first, count;
};

// The column in which the diagonal crosses each row of x [..., m, n], as
// [m, 1], split like the rows. Some columns may not exist.
DistTensor columns(const DistTensor& x, int64_t offset) {
  const int64_t m = x.size(-2);
  Layout line = Layout::replicated({m});
  line.dims[0] = x.spec()->dim(x.ndim() - 2);
  return add(unsqueeze(arange(m, x.mesh(), line), 1), offset);
}

// columns(), repeated for all matrices of x.
DistTensor all_columns(const DistTensor& x, int64_t offset) {
  Shape shape = x.shape();
  shape.back() = 1;
  return expand(columns(x, offset), shape);
}

// `values` [..., m] in the columns of an n-column matrix that the diagonal
// crosses, and zeros elsewhere.
DistTensor in_columns(const DistTensor& values, int64_t offset, int64_t n) {
  const DistTensor rows = unsqueeze(values, -1);
  return put_in_rows(rows, all_columns(rows, offset), n);
}

struct DiagonalArgs {
  static constexpr Fields kFields = {"offset"};
  int64_t offset;
};

// The diagonal of matrices [..., m, n] that every rank has in full: a view.
class Diagonal : public Op {
 public:
  Diagonal()
      : Op("diagonal", {.work = {.flops_per_point = 0},
                        .saved_inputs = 0,
                        .allocates = false,
                        .renames = true}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return BoundRule(Rule("...m!n!->...d! | linear 0; up 0"), shapes, name(),
                     {{'d', crossed(shapes[0], attrs).count}});
  }
  std::vector<Sample> samples() const override {
    return {{{{{3, 5}}}, DiagonalArgs{-1}, true},
            {{{{2, 5, 3}}}, DiagonalArgs{1}, true}};
  }

  void compute(Compute& c) const override {
    const Tensor& x = c.in[0];
    const Crossed rows = crossed(x.shape(), c.attrs);
    Shape shape = x.shape(), strides = x.strides();
    const int64_t column = strides.back(), row = strides[x.ndim() - 2];
    shape.pop_back(), strides.pop_back();
    shape.back() = rows.count, strides.back() = row + column;
    c.out[0] = x.as_strided(
        shape, strides,
        numel(shape) == 0
            ? 0
            : rows.first * row + (rows.first + rows.offset) * column);
  }

  InputGradients gradient(const GradientCall& g) const override {
    const Shape& x = g.decision->in[0]->shape();
    const int64_t m = x[x.size() - 2];
    const Crossed rows = crossed(x, g.attrs);
    return {in_columns(
        pad(g.cotangents[0], {rows.first, m - rows.first - rows.count}),
        rows.offset, x.back())};
  }

 private:
  static Crossed crossed(const Shape& x, const Attrs& attrs) {
    return {x[x.size() - 2], x.back(), attrs.as<DiagonalArgs>().offset};
  }
};

// The number of mesh axes that split dimension d, over all tensors.
int splits(TensorList list, int d) {
  int count = 0;
  for (const DistTensor& x : list)
    count += std::popcount(x.spec()->dim(d).axes());
  return count;
}

}  // namespace

static const OpFamily kFamily("diagonal",
                              [] { return OpList{&op_of<Diagonal>()}; });

DistTensor diagonal(const DistTensor& x, int64_t offset, int dim1, int dim2) {
  check_defined("diagonal", x);
  const DistTensor y = Sides("diagonal", x.ndim(), dim1, dim2).last(x);
  const Crossed rows(y.size(-2), y.size(-1), offset);
  const Spec& spec = *y.use_spec();
  if (spec.dim(y.ndim() - 2).whole() && spec.dim(y.ndim() - 1).whole())
    return apply1(op_of<Diagonal>(), y, DiagonalArgs{rows.offset});
  // take_in_rows() gives zeros for columns that do not exist. Slicing its
  // result, and not x, avoids a copy of x.
  const DistTensor all =
      squeeze(take_in_rows(y, all_columns(y, rows.offset)), -1);
  return narrow(all, -1, rows.first, rows.count);
}

DistTensor diag_embed(const DistTensor& x, int64_t offset, int dim1, int dim2) {
  check_defined("diag_embed", x);
  DT_CHECK(x.ndim() >= 1, "diag_embed",
           "{} has no dimensions; pass a tensor with at least one",
           x.spec()->to_string());
  const Sides sides("diag_embed", x.ndim() + 1, dim1, dim2);
  if (x.dtype() == DType::kBool)  // put_in_rows() has no bools
    return cast(diag_embed(cast(x, DType::kI32), offset, dim1, dim2),
                DType::kBool);
  const DistTensor rows =
      pad(x, {std::max<int64_t>(0, -offset), std::max<int64_t>(0, offset)});
  return sides.back(in_columns(rows, offset, rows.size(-1)));
}

DistTensor diag(const DistTensor& x, int64_t offset) {
  check_defined("diag", x);
  DT_CHECK(x.ndim() == 1 || x.ndim() == 2, "diag",
           "{} is not a vector or a matrix; write diagonal() or diag_embed()",
           x.spec()->to_string());
  return x.ndim() == 1 ? diag_embed(x, offset) : diagonal(x, offset);
}

DistTensor diagflat(const DistTensor& x, int64_t offset) {
  check_defined("diagflat", x);
  return diag_embed(flatten(x), offset);
}

DistTensor diagonal_scatter(const DistTensor& x, const DistTensor& src,
                            int64_t offset, int dim1, int dim2) {
  check_defined("diagonal_scatter", {x, src});
  const Sides sides("diagonal_scatter", x.ndim(), dim1, dim2);
  const DistTensor y = sides.last(x);
  const int64_t m = y.size(-2), n = y.size(-1);
  const Crossed rows(m, n, offset);
  Shape shape = y.shape();
  shape.pop_back();
  shape.back() = rows.count;
  DT_CHECK(src.shape() == shape && src.dtype() == x.dtype(), "diagonal_scatter",
           "cannot put {} into a diagonal of {}; write a tensor of the same "
           "type and of shape {}",
           src.spec()->to_string(), x.spec()->to_string(), to_string(shape));
  Layout line = Layout::replicated({n});
  line.dims[0] = y.spec()->dim(y.ndim() - 1);
  const DistTensor there =
      eq(arange(n, x.mesh(), line), columns(y, rows.offset));
  const DistTensor values = pad(src, {rows.first, m - rows.first - rows.count});
  return sides.back(where(there, unsqueeze(values, -1), y));
}

DistTensor block_diag(TensorList list) {
  check_defined("block_diag", list);
  DT_CHECK(!list.empty(), "block_diag",
           "got an empty list; pass at least one tensor");
  std::vector<DistTensor> blocks;
  DType type = list[0].dtype();
  for (const DistTensor& x : list) {
    DT_CHECK(x.ndim() <= 2, "block_diag",
             "{} has more than two dimensions; pass matrices",
             x.spec()->to_string());
    blocks.push_back(atleast_2d(x));
    type = promote(type, x.dtype());
  }
  // Pads each block along one dimension, and concatenates along the other one,
  // in which blocks may then be split without a move.
  const int along = splits(blocks, 1) > splits(blocks, 0) ? 1 : 0;
  int64_t width = 0, at = 0;
  for (const DistTensor& x : blocks) width += x.size(1 - along);
  for (DistTensor& x : blocks) {
    const int64_t n = x.size(1 - along);
    std::vector<int64_t> widths{at, width - at - n};
    if (along == 1) widths.insert(widths.begin(), 2, 0);
    x = pad(cast(x, type), widths);
    at += n;
  }
  return cat(blocks, along);
}

}  // namespace dtensor
