// How a model lies on a mesh: a list of (pattern of parameter names, layout).
//
//   ParallelPlan plan = {
//       {"*.c_fc.weight", {{"tp", Shard(0)}}},    // column-parallel
//       {"*.c_proj.weight", {{"tp", Shard(1)}}},  // row-parallel
//   };
//
// A model is written as if for one device; this list is all that Megatron's
// tensor parallelism is. It is matched when a parameter is made, so that no
// parameter ever exists whole.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/nn/config.h"
#include "dtensor/ops/attention.h"

namespace dtensor::nn {

// The first pattern that matches a name decides; without one the parameter is
// replicated. In a pattern "*" stands for any characters, dots included.
struct ParallelPlan : std::vector<std::pair<std::string, Placements>> {
  using vector::vector;
  // See zero().
  int zero_stage = 0;
  std::string zero_axis = {};
  // See sequence_parallel().
  std::string sequence_axis = {};
  // Of attention, where the sequence is split.
  ContextParallel context = ContextParallel::kAuto;
  int64_t context_bytes = 0;  // see AttentionOptions::memory_bytes
  // Of a mesh with an axis "pp", the stages at each place along it: see
  // pipeline_model.h.
  int64_t pipeline_chunks = 1;
};

// The plan, and along `axis`, where it holds copies, ZeRO (Rajbhandari et al.,
// arXiv 1910.02054). Of each parameter's optimizer state, gradient and values a
// rank there holds
//   stage 1, 2   state and gradient in parts. The optimizer updates its part,
//                and the parts are gathered. (In stage 2, gradients leave their
//                ranks while the backward pass runs:
//                GradOptions::bucket_bytes.)
//   stage 3      the values in parts too: DistTensor::gather_on_use(). What
//                others call fully sharded data parallelism.
// Stage 0 changes nothing. Parts may differ in size, and be empty; nothing is
// padded. A parameter is cut along the dimension that makes the largest part
// the smallest, behind the axes that split it already. With the batch split
// over another axis too, which the parameters do not use, that is hybrid
// sharding. Throws Error for another stage; an axis that the mesh does not have
// is refused when a parameter is made.
ParallelPlan zero(ParallelPlan, int stage, std::string_view axis = "dp");

// The plan, and the activations between the blocks of a language model split
// along the sequence over `axis` too (Korthikanti et al., arXiv 2205.05198):
// behind what splits them already, and where the axis holds copies. With tensor
// parallelism over it, an all-gather and a reduce-scatter take the place of
// each all-reduce of activations, of the same bytes; norms and sums are
// computed on parts, and parts are what the backward pass keeps of them. The
// gradients of what norms have, and of biases behind a product, are summed over
// the axis in return. A mesh without the axis is refused when a model is made.
ParallelPlan sequence_parallel(ParallelPlan, std::string_view axis = "tp");

bool matches(std::string_view pattern, std::string_view name);

// The layout that the plan gives a parameter. Throws Error, with the name and
// the pattern, when the placements do not fit.
Layout layout_of(const ParallelPlan&, std::string_view name, const Mesh&,
                 const Shape&);

// The same with zero(): where the parameter rests, where operators see it, and
// where its gradient and optimizer state lie.
struct ParameterLayouts {
  Layout rest, use, update;
};
ParameterLayouts layouts_of(const ParallelPlan&, std::string_view name,
                            const Mesh&, const Shape&);

// Megatron's layouts: the embedding (and the head) along the vocabulary;
// queries, keys and values by heads; the attention's output by the heads of its
// input; the MLP's, or each expert's, first matrices by columns, its last by
// rows. Norms, routers, position embeddings, and the biases after a reduction
// are replicated. Head counts that
// do not divide, and ranks without a head, are fine.
ParallelPlan tensor_parallel(const ModelConfig&, std::string_view axis = "tp");

// The experts of a mixture, some on each rank of `axis`, which splits the batch
// too; and, with a name, each over `tensor_axis` as tensor_parallel() does it.
// To be put ahead of other entries. Ranks without an expert are fine.
ParallelPlan expert_parallel(std::string_view axis = "ep",
                             std::string_view tensor_axis = "");

// What the programs use: tensor_parallel where the mesh has an axis "tp" ({}
// otherwise), expert_parallel where it has "ep"; "dp", "fsdp" and "ep" split
// the batch, "cp" its sequences, "pp" the blocks into stages
// (pipeline_model.h). Throws Error for an axis of another name, and for "ep"
// with a model that has no experts.
ParallelPlan default_plan(const ModelConfig&, const Mesh&);

// The placements of a batch of tokens [b, s], or of anything that has the
// batch in front: split over those of the axes that the mesh has.
Placements batch_placements(const Mesh&,
                            const std::vector<std::string>& axes = {
                                "dp", "fsdp", "ep"});

// The same of tokens [b, s] alone, with sequences split over the mesh's axis
// "cp", if it has one, in zig-zag order (placement/owned.h).
Layout batch_layout(const Mesh&, const Shape& tokens);

}  // namespace dtensor::nn
