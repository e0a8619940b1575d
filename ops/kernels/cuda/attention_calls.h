// SPDX-License-Identifier: Apache-2.0
// Decides which attention calls cuDNN computes, and with which graphs.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "dtensor/ops/kernels/attention.h"

namespace dtensor::kernels::cuda {

// Facts, besides the call, that decide whether cuDNN computes it.
struct Cudnn {
  int64_t version = 0;         // 91900 is 9.19.0
  int compute = 0;             // the GPU's major version: 9 is Hopper
  bool deterministic = false;  // CudaOptions::deterministic
};

// With s queries and t keys: the keys j that query i attends to.
enum class Diagonal : uint8_t {
  kNone,        // all
  kTopLeft,     // j <= i
  kBottomRight  // j <= i + t - s
};

// Everything that a graph is built from. Equal calls share a graph.
struct AttentionGraph {
  enum Operand { kQ, kK, kV, kOut, kDOut, kDQ, kDK, kDV, kNumOperands };

  DType type = DType::kBF16;
  bool backward = false;
  bool deterministic = false;  // of the backward pass
  Diagonal diagonal = Diagonal::kNone;
  float scale = 1;
  // Sizes of one run of the graph. A call needs one or more runs, which cover
  // all batches, b at a time, and all heads of k and v, hkv at a time. No query
  // attends to keys from t on.
  int64_t b = 0, hq = 0, hkv = 0, s = 0, t = 0, d = 0;
  // Strides after kOut are for the backward pass, and 0 in the forward pass.
  // Along an extent of 1, where a stride has no meaning, they are as if packed.
  int64_t strides[kNumOperands][4] = {};
  bool operator==(const AttentionGraph&) const = default;
};

// The call's graph; nullopt if cuDNN is known not to compute it correctly.
std::optional<AttentionGraph> attention_graph(const Cudnn&,
                                              const AttentionForward&);
std::optional<AttentionGraph> attention_graph(const Cudnn&,
                                              const AttentionBackward&);

// Whether this message of cuDNN means that it has no kernel for a graph on this
// GPU. Otherwise the message reports an error.
bool says_not_supported(std::string_view words);

}  // namespace dtensor::kernels::cuda
