#include "dtensor/nn/clip.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/autograd.h"
#include "dtensor/runtime/rank_context.h"
#include "dtensor/runtime/redistribute.h"

namespace dtensor::nn {
namespace {

// [lo, hi) of one dimension of a local part.
using LocalRanges = std::vector<Interval>;

// What no rank before this one, of those that differ from it in the
// dimension's axes, holds too: in a concatenation a segment may be whole while
// another is split.
LocalRanges first_held(const Dim& dim, const Mesh& mesh, const Coord& at) {
  IntervalList mine;
  dim.intervals(mesh, at, mine);
  if (dim.kind() == Dim::Kind::kLeaf) return {{0, length(mine)}};
  struct Piece {
    Interval global;
    int64_t local;
  };
  std::vector<Piece> left;
  int64_t offset = 0;
  for (const Interval& i : mine) {
    left.push_back({i, offset});
    offset += i.size();
  }
  const int64_t me = mesh.rank(at);
  for (int64_t r : mesh.group(dim.axes(), at)) {
    if (r >= me) break;
    IntervalList theirs;
    dim.intervals(mesh, mesh.coordinate(r), theirs);
    for (const Interval& t : theirs) {
      std::vector<Piece> rest;
      for (const auto& [global, local] : left) {
        const int64_t lo = std::max(global.lo, t.lo),
                      hi = std::min(global.hi, t.hi);
        if (lo >= hi) {
          rest.push_back({global, local});
          continue;
        }
        if (global.lo < lo) rest.push_back({{global.lo, lo}, local});
        if (hi < global.hi)
          rest.push_back({{hi, global.hi}, local + hi - global.lo});
      }
      left = std::move(rest);
    }
  }
  LocalRanges ranges;
  for (const auto& [global, local] : left)
    ranges.push_back({local, local + global.size()});
  return ranges;
}

// sum += that of the squares of the elements in the product of the ranges of
// dimensions d and on.
void add_squares(const Tensor& part, const std::vector<LocalRanges>& ranges,
                 const Tensor& sum, int d = 0) {
  if (part.numel() == 0) return;
  if (d < part.ndim()) {
    for (const Interval& r : ranges[static_cast<size_t>(d)])
      add_squares(part.slice(d, r.lo, r.hi), ranges, sum, d + 1);
    return;
  }
  const RankContext& context = RankContext::current();
  const Tensor flat = part.to_contiguous();
  kernels_of(*context.device)
      .sum_squares(context.stream, flat.dtype(), flat.numel(), flat.data(),
                   sum.data());
}

// The sum over the gradients on one mesh, on its ranks.
class Sums {
 public:
  explicit Sums(const Mesh& mesh) : mesh_(mesh) {}
  const Mesh& mesh() const { return mesh_; }

  void add(const DistTensor& g) {
    // What ranks hold of it are parts along the axes that split it, and copies
    // along the others: summing over the former counts each element once.
    const AxisMask axes = g.spec()->split_axes();
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const auto& p) { return p.first == axes; });
    if (group == groups_.end())
      group = groups_.insert(group, {axes, Tensor::full({}, DType::kF64, 0)});
    if (!g.here()) return;
    std::vector<LocalRanges> ranges;
    const Coord& at = RankContext::current().coordinate(mesh_);
    for (const Dim& dim : g.layout().dims)
      ranges.push_back(first_held(dim, mesh_, at));
    add_squares(g.local(), ranges, group->second);
  }

  // On a rank of the mesh; undefined on others.
  Tensor total() const {
    if (!RankContext::current().coordinate_or_null(mesh_)) return {};
    double total = 0;
    for (const auto& [axes, sum] : groups_) {
      Layout layout;
      for (int a = 0; a < mesh_.num_axes(); ++a)
        if (axes >> a & 1) layout.partials.push_back({a, ReduceOp::kSum});
      total +=
          redistribute_local(sum, Spec::get(mesh_, {}, layout, DType::kF64),
                             Spec::replicated(mesh_, {}, DType::kF64))
              .item();
    }
    return Tensor::full({}, DType::kF64, total);
  }

 private:
  Mesh mesh_;
  std::vector<std::pair<AxisMask, Tensor>> groups_;
};

}  // namespace

double global_norm(const std::vector<DistTensor>& grads) {
  RankContext& context = RankContext::current();
  const Scoped<std::string> phase(context.phase, "clip");
  const Scoped<std::string_view> op(context.op, "grad_norm");
  const NoGrad no_grad;
  std::vector<Sums> sums;
  std::set<int64_t> ranks;  // of all meshes
  for (const DistTensor& g : grads) {
    DT_CHECK(!g.spec()->partial_axes(), "grad_norm",
             "a gradient is {}, of which the parts do not say the norm; "
             "redistribute it to its parameter's layout first",
             g.spec()->to_string());
    auto it = std::find_if(sums.begin(), sums.end(),
                           [&](const Sums& s) { return s.mesh() == g.mesh(); });
    if (it == sums.end()) {
      it = sums.insert(it, Sums(g.mesh()));
      for (int64_t r = 0; r < g.mesh().num_ranks(); ++r)
        ranks.insert(g.mesh().world_rank(r));
    }
    it->add(g);
  }
  if (!ranks.contains(context.world_rank)) return 0;
  double norm = 0;
  const Mesh all({{"rank", std::ssize(ranks)}}, {ranks.begin(), ranks.end()});
  for (const Sums& s : sums) {
    Tensor total = s.total();
    if (sums.size() > 1)
      total =
          redistribute_local(total, Spec::replicated(s.mesh(), {}, DType::kF64),
                             Spec::replicated(all, {}, DType::kF64));
    norm += total.item();
  }
  return std::sqrt(norm);
}

double clip_scale(double norm, double max_norm, bool error_if_nonfinite) {
  DT_CHECK(!error_if_nonfinite || std::isfinite(norm), "clip",
           "the norm of the gradients is {}; look for the gradient that is not "
           "finite, or clip without error_if_nonfinite",
           norm);
  if (max_norm == 0) return 1;
  const double scale = max_norm / (norm + 1e-6);
  return scale > 1 ? 1 : scale;  // NaN stays
}

}  // namespace dtensor::nn
