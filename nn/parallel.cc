#include "dtensor/nn/parallel.h"

#include <algorithm>
#include <limits>

#include "dtensor/nn/architecture.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/owned.h"

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

// `use`, split over one more axis; unchanged if that axis splits it already.
Layout cut_further(const Layout& use, const Mesh& mesh, int axis) {
  if ((use.split_axes() >> axis) & 1) return use;
  Layout best = use;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t d = 0; d < use.dims.size(); ++d) {
    const Dim& dim = use.dims[d];
    if (dim.kind() != Dim::Kind::kLeaf) continue;
    Layout cut = use;
    cut.dims[d] = Dim(dim.size(), dim.split().pushed(mesh, dim.size(), axis));
    int64_t largest = 1;
    for (const Dim& other : cut.dims) largest *= other.largest(mesh);
    if (largest < least) best = cut;
    least = std::min(least, largest);
  }
  return best.canonical(mesh);
}

}  // namespace

ParallelPlan zero(ParallelPlan plan, int stage, std::string_view axis) {
  DT_CHECK(stage >= 0 && stage <= 3, "zero",
           "stage is {}; write 1 (shard the optimizer's state), 2 (gradients "
           "too), 3 (parameters too), or 0",
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
           "mesh {} has no axis \"{}\" to split over; name one that splits the "
           "batch",
           mesh.to_string(), plan.zero_axis);
  const Layout cut = cut_further(use, mesh, mesh.axis(plan.zero_axis));
  return {plan.zero_stage == 3 ? cut : use, use, cut};
}

ParallelPlan tensor_parallel(const ModelConfig& config, std::string_view axis) {
  const int64_t d = config.head_dim();
  const auto on = [&](Placement p) -> Placements { return {{axis, p}}; };
  // With a granule of d, boundaries fall between heads.
  ParallelPlan plan = {
      {"*.q_proj.*", on(Shard(0, d))},
      {"*.k_proj.*", on(Shard(0, d))},
      {"*.v_proj.*", on(Shard(0, d))},
      {"*.o_proj.weight", on(Shard(1, d))},
  };
  for (const auto& [pattern, dim] : architecture(config.name).split)
    plan.push_back({pattern, on(Shard(dim))});
  return plan;
}

ParallelPlan expert_parallel(std::string_view axis,
                             std::string_view tensor_axis) {
  const auto on = [&](int dim) -> Placements {
    if (tensor_axis.empty()) return {{axis, Shard(0)}};
    return {{axis, Shard(0)}, {tensor_axis, Shard(dim)}};
  };
  return {{"*.experts.gate_proj", on(1)},
          {"*.experts.up_proj", on(1)},
          {"*.experts.down_proj", on(2)}};
}

ParallelPlan default_plan(const ModelConfig& config, const Mesh& mesh) {
  for (int a = 0; a < mesh.num_axes(); ++a) {
    const std::string& axis = mesh.axis_name(a);
    DT_CHECK(
        axis == "dp" || axis == "fsdp" || axis == "tp" || axis == "cp" ||
            axis == "pp" || axis == "ep",
        "plan",
        "mesh {} has an axis \"{}\", but a model knows dp and fsdp (split the "
        "batch), cp (splits its sequences), tp (splits the model), pp (its "
        "stages) and ep (splits the experts of a mixtral and the batch); write "
        "dp={} or tp={}",
        mesh.to_string(), axis, mesh.axis_size(a), mesh.axis_size(a));
  }
  const bool tp = mesh.has_axis("tp"), ep = mesh.has_axis("ep");
  DT_CHECK(
      !ep || architecture(config.name).experts(), "plan",
      "mesh {} has an axis ep, which splits experts, but a {} has none; write "
      "--model {}, or dp={}",
      mesh.to_string(), config.name,
      architecture_names([](const Architecture& a) { return a.experts(); }),
      mesh.axis_size(mesh.axis("ep")));
  ParallelPlan plan =
      ep ? expert_parallel("ep", tp ? "tp" : "") : ParallelPlan{};
  if (tp)
    for (auto& entry : tensor_parallel(config))
      plan.push_back(std::move(entry));
  return plan;
}

Placements batch_placements(const Mesh& mesh,
                            const std::vector<std::string>& axes) {
  std::vector<std::pair<std::string, Placement>> list;
  for (const std::string& axis : axes)
    if (mesh.has_axis(axis)) list.emplace_back(axis, Shard(0));
  return list;
}

Layout batch_layout(const Mesh& mesh, const Shape& tokens) {
  Layout layout = batch_placements(mesh).resolve(mesh, tokens);
  if (mesh.has_axis("cp"))
    layout.dims[1] = zigzag(tokens[1], mesh, mesh.axis("cp"));
  return layout;
}

}  // namespace dtensor::nn
