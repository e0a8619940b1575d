// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/index_op.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

constexpr size_t kAtOnce = 16;  // the most inputs of an operator

struct CatArgs {
  static constexpr Fields kFields = {"dim"};
  int64_t dim;
};

class Cat : public IndexOp {
 public:
  Cat() : IndexOp("cat") {}

  // For each candidate, one piece is the model: all pieces get its layout,
  // except in the dimension to concatenate. There, a piece keeps those of its
  // axes that the model uses neither for another dimension nor for a partial
  // (kKept), is split evenly over the axes that split the model there (kCut),
  // or is split that way only if it could not keep all of its axes
  // (kCutIfTaken). Every piece is the model once, in operand_order(). A model's
  // candidates end with the first that moves no piece, even if a later one
  // would save communication afterwards.
  std::vector<Candidate> candidates(std::span<const OpInput> in,
                                    const Attrs& attrs) const override {
    const auto dim = static_cast<size_t>(
        normalize_dim(attrs.as<CatArgs>().dim, in[0].spec->ndim(), name()));
    check_shapes(in, dim);
    std::vector<const Spec*> pieces;
    for (const OpInput& piece : in) pieces.push_back(settled(piece.spec));
    enum class Of { kKept, kCut, kCutIfTaken };
    std::vector<Candidate> list;
    for (size_t b : operand_order(in))
      for (Of of : {Of::kKept, Of::kCutIfTaken, Of::kCut}) {
        const Spec* like = pieces[b];
        const Mesh& mesh = like->mesh();
        const AxisMask along = like->layout().dims[dim].axes();
        const AxisMask taken =
            (like->split_axes() & ~along) | like->partial_axes();
        Layout layout = like->layout();
        Candidate c;
        std::vector<Dim> segments;
        for (const Spec* piece : pieces) {
          const Dim& own = piece->layout().dims[dim];
          const bool cut = of == Of::kCut ||
                           (of == Of::kCutIfTaken && (own.axes() & taken) != 0);
          layout.dims[dim] =
              cut ? balanced(own.size(), along) : restricted(own, mesh, ~taken);
          c.in.push_back(piece->with(layout));
          segments.push_back(c.in.back()->layout().dims[dim]);
        }
        layout.dims[dim] = Dim::concat(std::move(segments));
        Shape shape = like->shape();
        shape[static_cast<int>(dim)] = layout.dims[dim].size();
        c.out = {Spec::get(mesh, shape, layout, like->dtype())};
        bool moves = false;
        for (size_t i = 0; i < in.size(); ++i) moves |= c.in[i] != in[i].spec;
        list.push_back(std::move(c));
        if (!moves) break;
      }
    return list;
  }

  void compute(Compute& c) const override {
    int dim = static_cast<int>(c.attrs.as<CatArgs>().dim);
    int64_t at = 0;
    for (size_t i = 0; i < c.in.size(); ++i) {
      const int64_t n = c.in[i].shape()[dim];
      c.out[0].slice(dim, at, at + n).copy_from(c.in[i]);
      at += n;
    }
  }
  InputGradients gradient(const GradientCall& g) const override {
    InputGradients grads(g.inputs.size());
    int dim = static_cast<int>(g.attrs.as<CatArgs>().dim);
    int64_t at = 0;
    for (size_t i = 0; i < grads.size(); ++i) {
      int64_t n = g.decision->in[i]->shape()[dim];
      if (g.needed[i]) grads[i] = narrow(g.cotangents[0], dim, at, n);
      at += n;
    }
    return grads;
  }
  std::vector<Sample> samples() const override {
    Sample columns, rows;
    columns.inputs = {{Shape{5, 2}}, {Shape{5, 3}}};
    columns.attrs = CatArgs{1};
    rows.inputs = {{Shape{3, 2}}, {Shape{1, 2}}, {Shape{4, 2}}};
    rows.attrs = CatArgs{0};
    return {columns, rows};
  }

 private:
  void check_shapes(std::span<const OpInput> in, size_t dim) const {
    for (const OpInput& piece : in) {
      Shape a = in[0].spec->shape(), b = piece.spec->shape();
      bool fits = a.size() == b.size();
      if (fits) a[static_cast<int>(dim)] = b[static_cast<int>(dim)];
      DT_CHECK(fits && a == b, name(),
               "cannot join {} and {} along dimension {}; give them the same "
               "number of dimensions, and equal sizes in all others",
               in[0].spec->to_string(), piece.spec->to_string(), dim);
      DT_CHECK(in[0].spec->dtype() == piece.spec->dtype(), name(),
               "{} and {} have different types; cast them to one",
               in[0].spec->to_string(), piece.spec->to_string());
    }
  }
};

const Cat& cat_op() {
  static const Cat op;
  return op;
}

}  // namespace

static const OpFamily kFamily("cat", [] { return OpList{&cat_op()}; });

DistTensor cat(TensorList all, int dim) {
  check_defined("cat", all);
  DT_CHECK(!all.empty(), "cat", "got an empty list; pass at least one tensor");
  // An empty vector [0] adds nothing to tensors of any number of dimensions. If
  // it has the result's float type, it stays in the list, so that autograd
  // records that the result depends on it. Its requires_grad is not looked at:
  // that may differ between the two runs of a checkpoint(), which must give the
  // result the same layout.
  const auto full =
      std::find_if(all.begin(), all.end(),
                   [](const DistTensor& x) { return x.shape() != Shape{0}; });
  const DistTensor& like = full == all.end() ? all[0] : *full;
  const int d = normalize_dim(dim, like.ndim(), "cat");
  Shape nothing = like.shape();
  nothing[d] = 0;
  std::vector<DistTensor> pieces;
  for (const DistTensor& x : all)
    if (x.shape() != Shape{0})
      pieces.push_back(x);
    else if (is_float(x.dtype()) && x.dtype() == like.dtype())
      pieces.push_back(reshape(x, nothing));
  if (pieces.empty()) pieces.push_back(like);
  if (pieces.size() == 1) return alias(pieces[0]);
  if (pieces.size() <= kAtOnce) return apply1(cat_op(), pieces, CatArgs{d});
  std::vector<DistTensor> fewer;
  for (auto from = pieces.begin(); from != pieces.end();) {
    auto to = pieces.end() - from > static_cast<int64_t>(kAtOnce)
                  ? from + kAtOnce
                  : pieces.end();
    fewer.push_back(cat({from, to}, d));
    from = to;
  }
  return cat(fewer, d);
}

DistTensor stack(TensorList pieces, int dim) {
  check_defined("stack", pieces);
  DT_CHECK(!pieces.empty(), "stack",
           "got an empty list; pass at least one tensor");
  int d = normalize_dim(dim, pieces[0].ndim() + 1, "stack");
  std::vector<DistTensor> thick;
  for (const DistTensor& p : pieces) {
    DT_CHECK(p.shape() == pieces[0].shape(), "stack",
             "{} and {} have different shapes; expand or slice one of them",
             pieces[0].spec()->to_string(), p.spec()->to_string());
    thick.push_back(unsqueeze(p, d));
  }
  return cat(thick, d);
}

}  // namespace dtensor
