// Language models as stages of a pipeline: the embedding and the first blocks,
// further blocks, and the last ones with norm, head and loss.
//
// On a mesh with an axis "pp" make_model() makes every module on the part of
// the mesh that its stage lies on. The model can be used as any other; its
// pipeline_stages() are what Pipeline runs in the order of a schedule.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "dtensor/nn/language_model.h"
#include "dtensor/nn/pipeline.h"

namespace dtensor::nn {

struct PipelineCut {
  std::vector<Mesh> meshes;          // by stage
  std::vector<int64_t> first_block;  // by stage, and the number of blocks
  int64_t stages() const { return static_cast<int64_t>(meshes.size()); }
  int64_t stage_of_block(int64_t block) const;
  // Of a module or parameter of that path: a block's that of the block
  // ("transformer.h.3.attn"), an embedding's the first, any other's the last.
  int64_t stage_of(std::string_view path) const;
};

// Along axis "pp" of the mesh, `chunks` stages at each place, such that the
// dearest stage costs least: products alone, of one token (forward_flops()). A
// stage's mesh has all axes, so that each keeps its place in tables of prices;
// "pp" is of size 1 there. Throws Error when there are more stages than blocks.
PipelineCut cut_pipeline(const ModelConfig&, const Mesh&, int64_t chunks = 1);

// Floating-point operations of a block, and of the head, for a token in a
// window of config.seq; of a mixtral's experts, those that it goes to.
struct ForwardFlops {
  double block, head;
};
ForwardFlops forward_flops(const ModelConfig&);

// What the stages take of each other, by the same: a forward as long as the
// gradient of the input, and of the weights.
std::vector<StageTimes> stage_times(const ModelConfig&, const PipelineCut&);

// The model's stages, which use it as long as they are there. `targets(m)` are
// those of micro-batch m, on the last stage's mesh; the inputs are its tokens
// on the first one's. Parameters are in the order of
// named_parameters(). A tied head borrows the embedding's table. What blocks
// sum up for the loss (LanguageModel::train_block()) goes on with the
// activations.
std::vector<PipelineStage> pipeline_stages(
    const LanguageModel&, const PipelineCut&,
    std::function<DistTensor(int64_t m)> targets);

}  // namespace dtensor::nn
