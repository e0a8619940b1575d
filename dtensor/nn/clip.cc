#include "dtensor/nn/clip.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/autograd.h"
#include "dtensor/runtime/rank_context.h"
#include "dtensor/runtime/redistribute.h"

namespace dtensor::nn {

double global_norm(const std::vector<DistTensor>& grads) {
  RankContext& context = RankContext::current();
  const Scoped<std::string> phase(context.phase, "clip");
  const Scoped<std::string_view> op(context.op, "grad_norm");
  const NoGrad no_grad;
  // What ranks hold of a gradient are parts along the axes that split it, and
  // copies along the others: summing over the former counts each element once.
  std::map<std::pair<uint64_t, AxisMask>, std::pair<Mesh, Tensor>> groups;
  for (const DistTensor& g : grads) {
    const Spec* spec = g.spec();
    DT_CHECK(!spec->partial_axes(), "grad_norm",
             "a gradient is {}, of which the parts do not say the norm; "
             "redistribute it to its parameter's layout first",
             spec->to_string());
    auto& [mesh, sum] = groups[{spec->mesh().hash(), spec->split_axes()}];
    mesh = spec->mesh();
    if (!sum.defined()) sum = Tensor::full({}, DType::kF64, 0);
    const Tensor local = g.local().to_contiguous();
    kernels_of(*context.device)
        .sum_squares(context.stream, local.dtype(), local.numel(), local.data(),
                     sum.data());
  }
  double total = 0;
  for (const auto& [key, group] : groups) {
    const auto& [mesh, sum] = group;
    Layout layout;
    for (int a = 0; a < mesh.num_axes(); ++a)
      if (key.second >> a & 1) layout.partials.push_back({a, ReduceOp::kSum});
    const Tensor all =
        redistribute_local(sum, Spec::get(mesh, {}, layout, DType::kF64),
                           Spec::replicated(mesh, {}, DType::kF64));
    total += all.item();
  }
  return std::sqrt(total);
}

double clip_scale(double norm, double max_norm) {
  if (max_norm == 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace dtensor::nn
