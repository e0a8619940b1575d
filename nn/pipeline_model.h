// SPDX-License-Identifier: Apache-2.0
// Cuts language models into pipeline stages: the first has the embedding and
// the first blocks, the last has the last blocks, the norm, the head and the
// loss.
//
// On a mesh with an axis "pp", make_model() makes every module on the part of
// the mesh that belongs to its stage. The model can be used like any other;
// Pipeline runs its pipeline_stages() in the order of a schedule.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/nn/language_model.h"
#include "dtensor/nn/pipeline.h"

namespace dtensor::nn {

struct PipelineCut {
  std::string model;                 // the name of its architecture
  std::vector<Mesh> meshes;          // by stage
  std::vector<int64_t> first_block;  // by stage; then the number of blocks
  int64_t stages() const { return static_cast<int64_t>(meshes.size()); }
  int64_t stage_of_block(int64_t block) const;
  // The stage of a module or parameter with this path, by the architecture's
  // names: the stage of its block ("transformer.h.3.attn"); the first stage for
  // embeddings and the norm that follows them; the last stage for everything
  // else.
  int64_t stage_of(std::string_view path) const;
};

// Cuts the blocks into stages along the mesh axis "pp", `chunks` stages at each
// position, so that the most expensive stage costs least (by forward_flops()).
// A stage's mesh keeps all axes, with "pp" of size 1, so that a CostTable for
// the whole mesh also applies to it. Throws Error if there are more stages than
// blocks, if `chunks` is below 1, or if the mesh has no axis "pp".
PipelineCut cut_pipeline(const ModelConfig&, const Mesh&, int64_t chunks = 1);

// Floating-point operations of the forward pass of a block, and of the head,
// for one token in a text of config.seq tokens, with causal attention without a
// window. In a model with experts, only those that the token is sent to count.
struct ForwardFlops {
  double block, head;
};
ForwardFlops forward_flops(const ModelConfig&);

// Relative times of the stages, from forward_flops(). A forward, the gradient
// of the inputs, and the gradient of the weights are taken to be equally long.
std::vector<StageTimes> stage_times(const ModelConfig&, const PipelineCut&);

// The stages of a model, which must outlive them. The inputs are tokens, on the
// first stage's mesh. `targets(m)` returns the targets of micro-batch m, on the
// last stage's mesh. Parameters are in the order of named_parameters(). A tied
// head borrows the embedding's table. The tensors that blocks sum up for the
// loss (LanguageModel::train_block()) go from stage to stage with the
// activations.
std::vector<PipelineStage> pipeline_stages(
    const LanguageModel&, const PipelineCut&,
    std::function<DistTensor(int64_t m)> targets);

}  // namespace dtensor::nn
