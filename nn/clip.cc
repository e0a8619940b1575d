// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/clip.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "dtensor/autograd.h"
#include "dtensor/local_part.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/kernels/exact_sum.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/kernels/optim.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor::nn {
namespace {

bool has_part(const Mesh& mesh) {
  return RankContext::current().coordinate_or_null(mesh) != nullptr;
}

// Reduces tensors of the shape and type of a spec, from left to right.
Tensor reduced(ReduceOp op, const std::vector<Tensor>& numbers,
               const Spec* of) {
  const Tensor result = Tensor::empty(of->shape(), of->dtype());
  std::vector<Operand> operands;
  for (const Tensor& t : numbers) operands.push_back({t.data(), t.strides()});
  result.device().reduce(result.stream(), op, of->dtype(), of->shape(),
                         result.mutable_data(), result.strides(), operands, 1);
  return result;
}

// Sums the squares of the gradients that lie on one mesh.
class Sums {
 public:
  explicit Sums(const Mesh& mesh) : mesh_(mesh) {}
  const Mesh& mesh() const { return mesh_; }

  void add(const DistTensor& g) {
    // Along the axes that split g, ranks hold different parts; along the
    // others, copies. Summing over the former counts each element once.
    const AxisMask axes = g.spec()->split_axes();
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const auto& p) { return p.first == axes; });
    if (group == groups_.end())
      group =
          groups_.insert(group, {axes, Tensor::full(whole(mesh_)->shape(),
                                                    whole(mesh_)->dtype(), 0)});
    if (!g.here()) return;
    RankContext& context = RankContext::current();
    const Coord& at = context.coordinate(mesh_);
    Region own;
    for (const Dim& dim : g.layout().dims)
      own.push_back(first_held(dim, mesh_, at, dim.axes()));
    const Region has = g.region();
    const Tensor part =
        (own == has ? g.local() : window(g.local(), has, own)).to_contiguous();
    if (part.numel() == 0) return;
    const Kernels& k = kernels_of(*context.device);
    const Tensor& sum = group->second;
    if (reproducible_)
      k.run(context.stream, ExactSquares{.type = part.dtype(),
                                         .n = part.numel(),
                                         .x = part.data(),
                                         .counts = sum.mutable_ptr<int64_t>()});
    else
      k.run(context.stream, kernels::SumSquares{.type = part.dtype(),
                                                .n = part.numel(),
                                                .x = part.data(),
                                                .sum = sum.mutable_data()});
  }

  // The sum over the whole mesh. Undefined on ranks outside the mesh. In a
  // reproducible run, the counts of ExactSquares.
  Tensor total() const {
    if (!has_part(mesh_)) return {};
    std::vector<Tensor> parts;
    for (const auto& [axes, sum] : groups_) {
      Layout layout;
      for (int a = 0; a < mesh_.num_axes(); ++a)
        if (axes >> a & 1) layout.partials.push_back({a, ReduceOp::kSum});
      for (int64_t n : sum.shape()) layout.dims.push_back(Dim(n));
      parts.push_back(redistribute_local(
          sum, Spec::get(mesh_, sum.shape(), layout, sum.dtype()),
          whole(mesh_)));
    }
    return reduced(ReduceOp::kSum, parts, whole(mesh_));
  }
  // The spec of total() on a mesh.
  const Spec* whole(const Mesh& mesh) const {
    return reproducible_
               ? Spec::replicated(mesh, {ExactSquares::kCounts}, DType::kI64)
               : Spec::replicated(mesh, {}, DType::kF64);
  }

 private:
  using ExactSquares = kernels::ExactSquares;

  Mesh mesh_;
  bool reproducible_ = RankContext::current().reproducible;
  std::vector<std::pair<AxisMask, Tensor>> groups_;
};

// Whether some rank needs the total of a mesh to which it does not belong. A
// rank that belongs to all meshes in `sums` cannot tell, because another rank's
// `sums` may have all these meshes or only its own. So the ranks of each mesh
// reduce a flag that says whether one of them lacks a total.
bool some_rank_lacks(const std::vector<Sums>& sums,
                     const std::set<int64_t>& ranks) {
  const auto is_in_all = [&](int64_t r) {
    return std::all_of(sums.begin(), sums.end(), [&](const Sums& s) {
      return s.mesh().mesh_rank_of(r) >= 0;
    });
  };
  const auto in_all = std::count_if(ranks.begin(), ranks.end(), is_in_all);
  if (in_all == std::ssize(ranks)) return false;
  if (in_all == 0 || RankContext::current().dry_run) return true;
  const bool lacks = !is_in_all(RankContext::current().world_rank);
  bool some = lacks;
  for (const Sums& s : sums) {
    if (!has_part(s.mesh())) continue;
    Layout layout;
    for (int a = 0; a < s.mesh().num_axes(); ++a)
      layout.partials.push_back({a, ReduceOp::kMax});
    some |= redistribute_local(Tensor::full({}, DType::kF64, lacks),
                               Spec::get(s.mesh(), {}, layout, DType::kF64),
                               Spec::replicated(s.mesh(), {}, DType::kF64))
                .item() > 0;
  }
  return some;
}

}  // namespace

GradNorm grad_norm(const std::vector<DistTensor>& grads, double max_norm,
                   double grad_scale) {
  RankContext& context = RankContext::current();
  const Scoped<std::string> phase(context.phase, "clip");
  const Scoped<std::string_view> op(context.op, "grad_norm");
  const NoGrad no_grad;
  std::vector<Sums> sums;
  std::set<int64_t> ranks;  // of all meshes
  for (const DistTensor& g : grads) {
    DT_CHECK(!g.spec()->partial_axes(), "grad_norm",
             "gradient {} is {}, whose parts do not determine its norm; "
             "redistribute it to its parameter's layout first",
             &g - grads.data(), g.spec()->to_string());
    auto it = std::find_if(sums.begin(), sums.end(),
                           [&](const Sums& s) { return s.mesh() == g.mesh(); });
    if (it == sums.end()) {
      it = sums.insert(it, Sums(g.mesh()));
      for (int64_t r = 0; r < g.mesh().num_ranks(); ++r)
        ranks.insert(g.mesh().world_rank(r));
    }
    it->add(g);
  }
  if (!ranks.contains(context.world_rank)) return {};
  std::vector<Tensor> totals;
  const bool spread = some_rank_lacks(sums, ranks);
  const Mesh all({{"rank", std::ssize(ranks)}}, {ranks.begin(), ranks.end()});
  for (const Sums& s : sums) {
    Tensor total = s.total();
    if (spread)
      total = redistribute_local(total, s.whole(s.mesh()), s.whole(all));
    totals.push_back(total);
  }
  const GradNorm result{Tensor::empty({}, DType::kF64),
                        Tensor::empty({}, DType::kF64)};
  const Spec* const number = Spec::replicated(all, {}, DType::kF64);
  Tensor sum = totals.empty()
                   ? Tensor::full({}, DType::kF64, 0)
                   : reduced(ReduceOp::kSum, totals, sums[0].whole(all));
  if (context.reproducible)
    sum = Tensor::full({}, DType::kF64,
                       context.dry_run || totals.empty()
                           ? 0
                           : kernels::sum_of_squares(sum.ptr<int64_t>()));
  if (grad_scale != 1)
    sum = reduced(ReduceOp::kProd,
                  {sum, Tensor::full({}, DType::kF64, grad_scale * grad_scale)},
                  number);
  kernels_of(*context.device)
      .run(context.stream,
           kernels::Clip{.squares = sum.ptr<double>(),
                         .max_norm = max_norm,
                         .norm = result.norm.mutable_ptr<double>(),
                         .clip = result.clip.mutable_ptr<double>()});
  return result;
}

double global_norm(const std::vector<DistTensor>& grads) {
  const GradNorm norm = grad_norm(grads);
  return norm.norm.defined() ? norm.norm.item() : 0;
}

double clip_scale(double norm, double max_norm, bool error_if_nonfinite) {
  DT_CHECK(!error_if_nonfinite || std::isfinite(norm), "clip",
           "the norm of the gradients is {}; look for a gradient that is not "
           "finite or whose square overflows, or clip without "
           "error_if_nonfinite",
           norm);
  return kernels::clip_of(norm, max_norm);
}

std::vector<DistTensor> clip_grad_norm(const std::vector<DistTensor>& grads,
                                       double max_norm,
                                       bool error_if_nonfinite) {
  for (const DistTensor& g : grads)
    DT_CHECK(!g.requires_grad(), "clip",
             "tensor {} requires a gradient, as parameters do; pass what "
             "grad() returns, with detach() if it has a graph",
             &g - grads.data());
  const double scale =
      clip_scale(global_norm(grads), max_norm, error_if_nonfinite);
  std::vector<DistTensor> clipped;
  for (const DistTensor& g : grads) clipped.push_back(g * scale);
  return clipped;
}

}  // namespace dtensor::nn
