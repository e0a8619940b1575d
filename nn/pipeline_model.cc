// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/pipeline_model.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "dtensor/nn/architecture.h"
#include "dtensor/nn/pipeline_balance.h"
#include "dtensor/ops/losses.h"
#include "dtensor/placement/error.h"
#include "dtensor/scopes.h"

namespace dtensor::nn {

ForwardFlops forward_flops(const ModelConfig& c) {
  const auto h = static_cast<double>(c.hidden), s = static_cast<double>(c.seq),
             q = static_cast<double>(c.head_dim() * c.heads),
             kv = static_cast<double>(c.head_dim() * c.kv()),
             ffn = static_cast<double>(c.ffn_size());
  const Architecture& a = architecture(c.name);
  const bool experts = a.experts();
  const auto matrices = static_cast<double>(a.matrices());
  const double times = experts ? static_cast<double>(c.chosen_experts()) : 1,
               router = experts ? h * static_cast<double>(c.expert_count()) : 0;
  // Each weight is used once for a token. The scores and weighted sums of
  // causal attention involve s / 2 other tokens on average.
  const double mlp = times * matrices * h * ffn + router;
  return {2 * (2 * h * q + 2 * h * kv + mlp) + 2 * s * q,
          2 * h * static_cast<double>(c.vocab)};
}

PipelineCut cut_pipeline(const ModelConfig& config, const Mesh& mesh,
                         int64_t chunks) {
  const int axis = axis_that(kSplitsStages, mesh);
  DT_CHECK(axis >= 0, "pipeline",
           "mesh {} has no axis pp for stages; make one with pp=2 or the like",
           mesh.to_string());
  DT_CHECK(chunks >= 1 && chunks <= config.layers, "pipeline",
           "there are {} chunks at each place along pp, but the model has {}; "
           "write 1 to {}",
           chunks, quantity(config.layers, "block", "blocks"), config.layers);
  const int64_t places = mesh.axis_size(axis), stages = places * chunks;
  DT_CHECK(
      stages <= config.layers, "pipeline",
      "{} stages ({} along pp, times {} for chunks) need as many blocks, but "
      "the model has {}; make pp or the number of chunks smaller, or use a "
      "model with at least {} blocks",
      stages, places, chunks, config.layers, stages);
  PipelineCut cut{.model = config.name, .meshes = {}, .first_block = {}};
  std::vector<MeshAxis> axes;
  for (int a = 0; a < mesh.num_axes(); ++a)
    axes.push_back({mesh.axis_name(a), a == axis ? 1 : mesh.axis_size(a)});
  for (int64_t s = 0; s < stages; ++s) {
    Coord at;
    at[axis] = static_cast<int32_t>(s % places);
    std::vector<int64_t> ranks;
    for (int64_t r : mesh.group(mesh.all_axes() & ~(AxisMask{1} << axis), at))
      ranks.push_back(mesh.world_rank(r));
    cut.meshes.emplace_back(axes, std::move(ranks));
  }
  const ForwardFlops flops = forward_flops(config);
  std::vector<double> costs(static_cast<size_t>(config.layers), flops.block);
  costs.back() += flops.head;
  cut.first_block = balanced_stages(costs, stages);
  return cut;
}

int64_t PipelineCut::stage_of_block(int64_t block) const {
  return std::upper_bound(first_block.begin(), first_block.end() - 1, block) -
         first_block.begin() - 1;
}

int64_t PipelineCut::stage_of(std::string_view path) const {
  const Architecture& a = architecture(model);
  const std::string blocks = std::string(a.blocks) + ".";
  if (path.starts_with(blocks)) {
    int64_t block = 0;
    std::from_chars(path.data() + blocks.size(), path.data() + path.size(),
                    block);
    return stage_of_block(block);
  }
  for (const char* first :
       {a.embedding, a.positions, a.token_types, a.first_norm})
    if (first && path.starts_with(first)) return 0;
  return stages() - 1;
}

std::vector<StageTimes> stage_times(const ModelConfig& config,
                                    const PipelineCut& cut) {
  const ForwardFlops flops = forward_flops(config);
  std::vector<StageTimes> times;
  for (size_t s = 0; s + 1 < cut.first_block.size(); ++s) {
    const auto blocks =
        static_cast<double>(cut.first_block[s + 1] - cut.first_block[s]);
    const double t =
        blocks + (s + 1 == cut.meshes.size() ? flops.head / flops.block : 0);
    times.push_back({t, t, t});
  }
  return times;
}

std::vector<PipelineStage> pipeline_stages(
    const LanguageModel& model, const PipelineCut& cut,
    std::function<DistTensor(int64_t m)> targets) {
  std::vector<PipelineStage> stages;
  for (int64_t s = 0; s < cut.stages(); ++s) {
    const int64_t lo = cut.first_block[static_cast<size_t>(s)],
                  hi = cut.first_block[static_cast<size_t>(s) + 1];
    const bool first = s == 0, last = s + 1 == cut.stages();
    stages.push_back({.mesh = cut.meshes[static_cast<size_t>(s)],
                      .forward =
                          [&model, targets, lo, hi, first, last](
                              const std::vector<DistTensor>& input, int64_t m,
                              std::span<const DistTensor> borrowed) {
                            const PathScope inside(model.path());
                            std::vector<DistTensor> x = input;
                            if (first) x[0] = model.embed(x[0]);
                            for (int64_t i = lo; i < hi; ++i)
                              x = model.train_block(i, x);
                            if (!last) return x;
                            x[0] = model.last_norm(x[0]);
                            x[0] = model.project(x[0], borrowed.empty()
                                                           ? model.tied()
                                                           : borrowed[0]);
                            return std::vector{model.train_loss(
                                cross_entropy(x[0], targets(m)), x)};
                          },
                      .parameters = {}});
    if (last && !first && model.tied().defined())
      stages.back().borrows = {model.tied()};
  }
  for (const NamedParameter& p : model.named_parameters())
    stages[static_cast<size_t>(cut.stage_of(p.name))].parameters.push_back(
        p.tensor);
  return stages;
}

}  // namespace dtensor::nn
