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

#include "dtensor/nn/config.h"
#include "dtensor/runtime/dist_tensor.h"

namespace dtensor::nn {

// The first pattern that matches a name decides; without one the parameter is
// replicated. In a pattern "*" stands for any characters, dots included.
using ParallelPlan = std::vector<std::pair<std::string, Placements>>;

bool matches(std::string_view pattern, std::string_view name);

// The layout that the plan gives a parameter. Throws Error, with the name and
// the pattern, when the placements do not fit.
Layout layout_of(const ParallelPlan&, std::string_view name, const Mesh&,
                 const Shape&);

// Megatron's layouts: the embedding (and the head) along the vocabulary;
// queries, keys and values by heads; the attention's output by the heads of its
// input; the MLP's first matrices by columns, its last by rows. Norms, position
// embeddings, and the biases after a reduction are replicated. Head counts that
// do not divide, and ranks without a head, are fine.
ParallelPlan tensor_parallel(const ModelConfig&, std::string_view axis = "tp");

// What the programs use: tensor_parallel where the mesh has an axis "tp" ({}
// otherwise); "dp" splits the batch. Throws Error for an axis of another name.
ParallelPlan default_plan(const ModelConfig&, const Mesh&);

// The placements of a batch of tokens [b, s], or of anything that has the
// batch in front: split over `axis` where the mesh has it, else replicated.
Placements batch_placements(const Mesh&, std::string_view axis = "dp");

}  // namespace dtensor::nn
