// Which attention cuDNN computes, and as what graphs.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "dtensor/ops/kernels/attention.h"

namespace dtensor::kernels::cuda {

// What decides besides the call.
struct Cudnn {
  int64_t version = 0;  // 91900 is 9.19.0
  int compute = 0;      // the GPU's: 9 is 9.0, Hopper
};

// Which keys query i of s sees, of t.
enum class Diagonal : uint8_t {
  kNone,        // all
  kTopLeft,     // j <= i
  kBottomRight  // j <= i + t - s
};

// All that a graph is built from: calls of one AttentionGraph share it.
struct AttentionGraph {
  enum Operand { kQ, kK, kV, kOut, kDOut, kDQ, kDK, kDV, kNumOperands };

  DType type = DType::kBF16;
  bool backward = false;
  Diagonal diagonal = Diagonal::kNone;
  float scale = 1;
  // Of one run of the graph. The call is runs for all batches, b at a time, and
  // all heads of k and v, hkv at a time; keys from t on are seen by no query.
  int64_t b = 0, hq = 0, hkv = 0, s = 0, t = 0, d = 0;
  // The backward pass's after kOut are 0 in the forward pass. Along an extent
  // of 1, where they say nothing: as if packed.
  int64_t strides[kNumOperands][4] = {};
  bool operator==(const AttentionGraph&) const = default;
};

// Nothing when cuDNN cannot compute it, or not rightly.
std::optional<AttentionGraph> attention_graph(const Cudnn&, DType,
                                              const Attention&, const void* out,
                                              const int64_t out_strides[4],
                                              const void* lse);
std::optional<AttentionGraph> attention_graph(const Cudnn&, DType,
                                              const Attention&,
                                              const AttentionGrad&);

// Whether these words of cuDNN mean that it has no kernel for a graph on this
// GPU; otherwise something is wrong.
bool says_not_supported(std::string_view words);

}  // namespace dtensor::kernels::cuda
