// SPDX-License-Identifier: Apache-2.0
// PyTorch's "Introduction to Distributed Pipeline Parallelism": a transformer
// that is cut into one stage for each rank.
//
//   bazel run //examples/tutorials:pipeline_stages -- --mesh pp=3
#include <cmath>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kDim = 32, kLayers = 8, kVocab = 50, kMicros = 4;
const nn::AttentionConfig kHeads{.hidden = kDim, .heads = 4, .kv_heads = 4};

struct Block : nn::Module {
  explicit Block(const nn::Scope& at)
      : Module(at),
        norm1(add<nn::LayerNorm>("norm1", kDim)),
        norm2(add<nn::LayerNorm>("norm2", kDim)),
        attention(add<nn::Attention>("attention", kHeads)),
        mlp(add<nn::MLP>("mlp", kDim, 4 * kDim)) {}
  DistTensor forward(const DistTensor& x) const {
    const DistTensor y = x + attention(norm1(x));
    return y + mlp(norm2(y));
  }
  nn::Child<nn::LayerNorm> norm1, norm2;
  nn::Child<nn::Attention> attention;
  nn::Child<nn::MLP> mlp;
};

// The layers [first, end) of the transformer, with what belongs to its ends.
struct Stage : nn::Module {
  Stage(const Mesh& mesh, int64_t first, int64_t end)
      : Module({mesh, {}}), begins(first == 0), ends(end == kLayers) {
    if (begins) table = add<nn::Embedding>("table", kVocab, kDim);
    for (int64_t i = first; i < end; ++i)
      blocks.push_back(add<Block>(std::to_string(i)));
    if (ends) norm = add<nn::LayerNorm>("norm", kDim);
    if (ends) head = add<nn::Linear>("head", kDim, kVocab);
  }
  DistTensor forward(const DistTensor& x) const {
    DistTensor h = begins ? table(x) : x;
    for (const auto& block : blocks) h = block(h);
    return ends ? reshape(head(norm(h)), {-1, kVocab}) : h;
  }
  const bool begins, ends;
  nn::Child<nn::Embedding> table;
  std::vector<nn::Child<Block>> blocks;
  nn::Child<nn::LayerNorm> norm;
  nn::Child<nn::Linear> head;
};

Mesh only(int64_t rank) { return Mesh({{"dp", 1}}, {rank}); }

DistTensor tokens(int64_t rank, int64_t micro, uint64_t seed) {
  return randint(0, kVocab, {8, 10}, only(rank), {}, DType::kI64,
                 {seed, static_cast<uint64_t>(micro)});
}

// The micro-batches' losses with p stages on as many ranks.
std::vector<double> losses(const Mesh& mesh, int64_t p) {
  std::vector<nn::PipelineStage> stages;
  for (int64_t s = 0; s < p; ++s) {
    const auto stage = std::make_shared<const Stage>(only(s), s * kLayers / p,
                                                     (s + 1) * kLayers / p);
    const auto forward = [=](const DistTensor& x, int64_t micro, auto) {
      const DistTensor y = stage->forward(x);
      return s + 1 < p ? y : cross_entropy(y, flatten(tokens(s, micro, 2)));
    };
    stages.push_back({only(s), forward, stage->parameters()});
  }
  std::vector<DistTensor> inputs;
  for (int64_t m = 0; m < kMicros; ++m) inputs.push_back(tokens(0, m, 1));
  nn::Pipeline pipeline(nn::make_schedule("gpipe", p, kMicros), stages);
  std::vector<double> result, shares(kMicros, 1.0 / kMicros);
  for (const DistTensor& loss : pipeline.run(inputs, shares).losses)
    result.push_back(loss.redistribute(mesh, {}).item());
  return result;
}

void example(Runtime& rt) {
  const std::vector<double> split = losses(rt.mesh(), rt.world_size()),
                            whole = losses(rt.mesh(), 1);
  for (size_t i = 0; i < split.size(); ++i) {
    DT_CHECK(std::abs(split[i] - whole[i]) <= 1e-5 * whole[i],
             "pipeline_stages", "the losses are {} and {}", split[i], whole[i]);
    if (rt.rank() == 0) fmt::print("micro-batch {}: {:.4f}\n", i, split[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(
      argc, argv, example,
      {.about = "A transformer in stages.", .mesh = "pp=2", .axes = {"pp"}});
}
