// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/models.h"

#include "dtensor/nn/decoder.h"
#include "dtensor/nn/pipeline_model.h"

namespace dtensor::nn {

std::unique_ptr<LanguageModel> internal::make_model(const ModelConfig& config,
                                                    const Mesh& mesh,
                                                    const ParallelPlan& plan,
                                                    uint64_t seed, bool empty,
                                                    bool int8_weights) {
  config.validate();
  Scope root{mesh, std::make_shared<const ParallelPlan>(plan), config.dtype,
             seed};
  root.empty = empty;
  root.int8_weights = int8_weights;
  if (axis_that(kSplitsStages, mesh) >= 0)
    root.mesh_of = [cut = cut_pipeline(config, mesh, plan.pipeline_chunks)](
                       std::string_view path) {
      return cut.meshes[static_cast<size_t>(cut.stage_of(path))];
    };
  auto model = std::make_unique<Decoder>(root, config);
  check_plan(plan, *model);
  return model;
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config,
                                          const Mesh& mesh,
                                          const ParallelPlan& plan,
                                          uint64_t seed) {
  return internal::make_model(config, mesh, plan, seed, false);
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config,
                                          const Mesh& mesh, uint64_t seed) {
  config.validate();
  return make_model(config, mesh, default_plan(config, mesh), seed);
}

}  // namespace dtensor::nn
