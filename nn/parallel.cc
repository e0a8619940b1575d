// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/parallel.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "dtensor/nn/architecture.h"
#include "dtensor/ops/exact.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/owned.h"
#include "dtensor/placement/plan.h"

namespace dtensor::nn {

bool matches(std::string_view pattern, std::string_view name) {
  // Two pointers: on a mismatch, the last star takes one more character.
  size_t p = 0, n = 0, star = std::string_view::npos, retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Layout layout_of(const ParallelPlan& plan, std::string_view name,
                 const Mesh& mesh, const Shape& shape) {
  for (const auto& [pattern, placements] : plan) {
    if (!matches(pattern, name)) continue;
    Layout layout;
    try {
      layout = placements.resolve(mesh, shape);
    } catch (const Error& e) {
      fail("plan", "\"{}\" does not fit parameter {} {}: {}", pattern, name,
           to_string(shape), e.what());
    }
    DT_CHECK(layout.partials.empty(), "plan",
             "\"{}\" would make parameter {} partial; write R or S<dim>",
             pattern, name);
    return layout;
  }
  return Layout::replicated(shape);
}

namespace {

// Splits the layout `use` over one more axis, in the dimension for which the
// largest part is smallest and gathering restores `use`: among fewer granules
// than ranks, the canonical order of the axes may not be the order in which
// they split. Returns `use` if the axis splits it already, or if it has no
// dimension that can be split further.
Layout cut_further(const Layout& use, const Mesh& mesh, int axis) {
  if ((use.split_axes() >> axis) & 1) return use;
  const auto gathers = [&](const Layout& cut) {
    const auto spec = [&](const Layout& l) {
      return Spec::get(mesh, use.shape(), l, DType::kF32);
    };
    return only_gathers(plan(spec(cut), spec(use), CostTable()));
  };
  Layout best = use;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t d = 0; d < use.dims.size(); ++d) {
    const Dim& dim = use.dims[d];
    if (dim.kind() != Dim::Kind::kLeaf) continue;
    Layout cut = use;
    cut.dims[d] = Dim(dim.size(), dim.split().pushed(mesh, dim.size(), axis));
    int64_t largest = 1;
    for (const Dim& other : cut.dims) largest *= other.largest(mesh);
    if (largest >= least || !gathers(cut)) continue;
    best = cut;
    least = largest;
  }
  return best.canonical(mesh);
}

// Whether the matrices of one expert may be split. See experts().
bool splits_experts() { return sum_granule() == 1; }

}  // namespace

ParallelPlan zero(ParallelPlan plan, int stage, std::string_view axis) {
  DT_CHECK(stage >= 0 && stage <= 3, "zero",
           "stage is {}; write 1 (shard the optimizer's state), 2 (gradients "
           "too), 3 (parameters too), or 0 (nothing)",
           stage);
  plan.zero_stage = stage;
  plan.zero_axis = stage ? axis : "";
  return plan;
}

ParallelPlan sequence_parallel(ParallelPlan plan, std::string_view axis) {
  plan.sequence_axis = axis;
  return plan;
}

ParameterLayouts layouts_of(const ParallelPlan& plan, std::string_view name,
                            const Mesh& mesh, const Shape& shape) {
  const Layout use = layout_of(plan, name, mesh, shape);
  if (plan.zero_stage == 0) return {use, use, use};
  DT_CHECK(mesh.has_axis(plan.zero_axis), "zero",
           "mesh {} has no axis \"{}\" to split over; name an axis that splits "
           "the batch, or write stage 0",
           mesh.to_string(), plan.zero_axis);
  const Layout cut = cut_further(use, mesh, mesh.axis(plan.zero_axis));
  return {plan.zero_stage == 3 ? cut : use, use, cut};
}

ParallelPlan tensor_parallel(const ModelConfig& config, std::string_view axis) {
  const int64_t d = config.head_dim(), leaf = sum_granule();
  const auto on = [&](Placement p) -> Placements { return {{axis, p}}; };
  // Boundaries fall between heads. Each of these matrices has a product that
  // sums over what is split, so a reproducible run splits at leaves, too.
  const int64_t granule = std::lcm(d, leaf);
  ParallelPlan plan = {
      {"*.q_proj.*", on(Shard(0, granule))},
      {"*.k_proj.*", on(Shard(0, granule))},
      {"*.v_proj.*", on(Shard(0, granule))},
      {"*.o_proj.weight", on(Shard(1, granule))},
  };
  const Architecture& a = architecture(config.name);
  const auto split = [&](std::string pattern, int dim) {
    plan.push_back({std::move(pattern), on(Shard(dim, leaf))});
  };
  split(std::string(a.embedding) + ".weight", 0);
  if (a.head_kind == Architecture::Head::kPlain && !config.is_tied())
    split(std::string(a.head) + ".weight", 0);
  switch (a.mlp) {
    case Architecture::Mlp::kPlain:
      split("*.c_fc.*", 0);
      split("*.c_proj.weight", 1);
      break;
    case Architecture::Mlp::kGated:
      for (const char* first : {"*.gate_proj.*", "*.up_proj.*"})
        split(first, 0);
      split("*.down_proj.weight", 1);
      break;
    case Architecture::Mlp::kExperts:
      if (!splits_experts()) break;
      for (const char* first : {"*.experts.gate_proj", "*.experts.up_proj"})
        split(first, 1);
      split("*.experts.down_proj", 2);
  }
  return plan;
}

ParallelPlan expert_parallel(std::string_view axis,
                             std::string_view tensor_axis) {
  const auto on = [&](int dim) -> Placements {
    if (tensor_axis.empty() || !splits_experts()) return {{axis, Shard(0)}};
    return {{axis, Shard(0)}, {tensor_axis, Shard(dim)}};
  };
  return {{"*.experts.gate_proj", on(1)},
          {"*.experts.up_proj", on(1)},
          {"*.experts.down_proj", on(2)}};
}

std::span<const ModelAxis> model_axes() {
  static constexpr ModelAxis kAxes[] = {
      {"pp", kSplitsStages, "splits the blocks into stages"},
      {"dp", kSplitsBatch, "splits the batch"},
      {"fsdp", kSplitsBatch | kSplitsParameters,
       "splits the batch, and with ZeRO the parameters"},
      {"ep", kSplitsBatch | kSplitsExperts, "splits experts, and the batch"},
      {"cp", kSplitsSequences, "splits sequences"},
      {"tp", kSplitsMatrices, "splits matrices"}};
  return kAxes;
}

int axis_that(Splits splits, const Mesh& mesh) {
  for (const ModelAxis& a : model_axes())
    if (a.splits & splits && mesh.has_axis(a.name)) return mesh.axis(a.name);
  return -1;
}

ParallelPlan default_plan(const ModelConfig& config, const Mesh& mesh) {
  for (int a = 0; a < mesh.num_axes(); ++a) {
    const std::string& axis = mesh.axis_name(a);
    std::string known;
    for (const ModelAxis& m : model_axes())
      known +=
          fmt::format("{}{} ({})", known.empty() ? "" : ", ", m.name, m.about);
    DT_CHECK(std::any_of(model_axes().begin(), model_axes().end(),
                         [&](const ModelAxis& m) { return m.name == axis; }),
             "plan",
             "mesh {} has an axis \"{}\", but models use only {}; rename it to "
             "one of these that the mesh lacks",
             mesh.to_string(), axis, known);
  }
  const int matrices = axis_that(kSplitsMatrices, mesh),
            experts = axis_that(kSplitsExperts, mesh);
  const auto name = [&](int axis) -> std::string_view {
    if (axis < 0) return {};
    return mesh.axis_name(axis);
  };
  for (int axis : {matrices, experts})
    DT_CHECK(axis < 0 || mesh.axis_size(axis) == 1 || sum_granule() == 1 ||
                 config.dtype != DType::kF64,
             "plan",
             "mesh {} has an axis {}, which splits what a {} sums, but a "
             "reproducible run has no exact sums of f64; give the ranks of {} "
             "to another axis, or write --dtype f32 (ModelConfig::dtype)",
             mesh.to_string(), name(axis), config.name, name(axis));
  DT_CHECK(
      experts < 0 || architecture(config.name).experts(), "plan",
      "mesh {} has an axis {}, which splits experts, but a {} has none; give "
      "the ranks of {} to another axis, or use a {}",
      mesh.to_string(), name(experts), config.name, name(experts),
      architecture_names([](const Architecture& a) { return a.experts(); }));
  ParallelPlan plan;
  if (experts >= 0) plan = expert_parallel(name(experts), name(matrices));
  if (matrices >= 0)
    for (auto& entry : tensor_parallel(config, name(matrices)))
      plan.push_back(std::move(entry));
  return plan;
}

Placements batch_placements(const Mesh& mesh) {
  std::vector<std::pair<std::string, Placement>> list;
  for (const ModelAxis& a : model_axes())
    if (a.splits & kSplitsBatch && mesh.has_axis(a.name))
      list.emplace_back(a.name, Shard(0));
  return list;
}

Layout batch_layout(const Mesh& mesh, const Shape& tokens) {
  Layout layout = batch_placements(mesh).resolve(mesh, tokens);
  if (const int axis = axis_that(kSplitsSequences, mesh); axis >= 0)
    layout.dims[1] = zigzag(tokens[1], mesh, axis);
  return layout;
}

}  // namespace dtensor::nn
