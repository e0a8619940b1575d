// SPDX-License-Identifier: Apache-2.0
// How a model is distributed over a mesh: a list of (pattern of parameter
// names, layout).
//
//   ParallelPlan plan = {
//       {"*.c_fc.weight", {{"tp", Shard(0)}}},    // column-parallel
//       {"*.c_proj.weight", {{"tp", Shard(1)}}},  // row-parallel
//   };
//
// A model is written as if for one device. Megatron's tensor parallelism needs
// no more than such a list. The list is applied when a parameter is made, so
// that no rank ever holds more of the parameter than its part.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/nn/config.h"
#include "dtensor/ops/attention.h"

namespace dtensor::nn {

// The first pattern that matches a name decides its layout; if none does, the
// parameter is replicated. In a pattern, "*" matches any characters, including
// dots.
struct ParallelPlan : std::vector<std::pair<std::string, Placements>> {
  using vector::vector;
  // See zero().
  int zero_stage = 0;
  std::string zero_axis = {};
  // See sequence_parallel().
  std::string sequence_axis = {};
  // How attention is computed if the sequence is split.
  ContextParallel context = ContextParallel::kAuto;
  int64_t context_bytes = 0;  // see AttentionOptions::memory_bytes
  // The number of pipeline stages at each position along the mesh axis "pp";
  // see pipeline_model.h.
  int64_t pipeline_chunks = 1;
};

// Adds ZeRO (Rajbhandari et al., arXiv 1910.02054) to a plan: each parameter
// that is replicated along `axis`, except scalars, is sharded there as follows.
//   stage 1, 2   Optimizer state and gradients are sharded. The optimizer
//                updates its shard, and the shards are then gathered. (For
//                stage 2, set GradOptions::bucket_bytes, so that gradients
//                are sent during the backward pass and not held whole.)
//   stage 3      The parameters are sharded too (DistTensor::gather_on_use()):
//                fully sharded data parallelism.
// Stage 0 changes nothing. Shards may differ in size and may be empty; nothing
// is padded. A parameter is cut along the dimension for which the largest shard
// is smallest; if other axes split that dimension already, `axis` splits their
// parts. If the batch is also split over another axis, along which parameters
// are replicated, the result is hybrid sharding. Throws Error for another
// stage. Unless the stage is 0, a mesh without the axis is an Error when a
// parameter is made.
ParallelPlan zero(ParallelPlan, int stage, std::string_view axis = "dp");

// Adds sequence parallelism (Korthikanti et al., arXiv 2205.05198) to a plan:
// the activations between the blocks of a language model are also split along
// the sequence over `axis`, after the axes that already split them. With tensor
// parallelism over the same axis, each all-reduce of activations becomes an
// all-gather and a reduce-scatter of the same total bytes; norms and sums are
// computed on parts, and the backward pass keeps only parts. In exchange, the
// gradients of the norms' parameters, and of biases added after a row-parallel
// product, are summed over the axis. A mesh without the axis is an Error when a
// model is made.
ParallelPlan sequence_parallel(ParallelPlan, std::string_view axis = "tp");

// Whether a pattern of a plan matches the whole name.
bool matches(std::string_view pattern, std::string_view name);

// The layout that the plan gives a parameter. Throws Error, with the name and
// the pattern, if the placements do not fit or are partial.
Layout layout_of(const ParallelPlan&, std::string_view name, const Mesh&,
                 const Shape&);

// The layouts of a parameter under zero(). `rest`: between uses. `use`: as
// operators see it. `update`: of its gradient and its optimizer state.
struct ParameterLayouts {
  Layout rest, use, update;
};
ParameterLayouts layouts_of(const ParallelPlan&, std::string_view name,
                            const Mesh&, const Shape&);

// Megatron's layouts: the embedding and an untied head are split along the
// vocabulary; queries, keys and values by heads; the attention's output
// projection by the heads of its input; the first matrices of the MLP (or of
// each expert) by columns and its last one by rows. Norms, routers, position
// embeddings, and biases added after a reduction are replicated. Head counts
// that the axis does not divide, and ranks without a head, are fine. In a
// reproducible run, granules of 128 rows or columns stay whole, and so do the
// matrices of experts.
ParallelPlan tensor_parallel(const ModelConfig&, std::string_view axis = "tp");

// Distributes the experts of a mixture over `axis`. (An axis named "ep" also
// splits the batch.) If tensor_axis is not empty, each expert is also split
// over it as in tensor_parallel(). Put these entries before those of another
// plan, because the first pattern that matches counts. Ranks without an expert
// are fine.
ParallelPlan expert_parallel(std::string_view axis = "ep",
                             std::string_view tensor_axis = "");

// The things that a mesh axis splits, as a set of bits.
enum Splits : uint8_t {
  kSplitsBatch = 1,
  kSplitsParameters = 2,  // with zero(); else they are replicated
  kSplitsSequences = 4,
  kSplitsMatrices = 8,
  kSplitsExperts = 16,
  kSplitsStages = 32,
};
// A mesh axis that models know by its name.
struct ModelAxis {
  std::string_view name;
  int splits;              // a set of Splits
  std::string_view about;  // what it does, for errors
};
// pp, dp, fsdp, ep, cp and tp, in the order that a mesh should have them: the
// last axes communicate most, and their ranks have adjacent numbers.
std::span<const ModelAxis> model_axes();
// The number, in the mesh, of the first of model_axes() that the mesh has and
// that splits such a thing; -1 if there is none.
int axis_that(Splits, const Mesh&);

// The plan that make_model() and the example programs use by default:
// tensor_parallel() and expert_parallel() over the axes that split matrices and
// experts. Throws Error for an axis that is not in model_axes(), and for an
// axis that splits experts if the model has none.
ParallelPlan default_plan(const ModelConfig&, const Mesh&);

// The placements of a batch of tokens [b, s], or of any tensor with the batch
// as first dimension: split over all axes that split batches.
Placements batch_placements(const Mesh&);

// The layout of tokens [b, s]: batch_placements(), with the sequences split
// over an axis that splits sequences, in zig-zag order (placement/owned.h).
Layout batch_layout(const Mesh&, const Shape& tokens);

}  // namespace dtensor::nn
