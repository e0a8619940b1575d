// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/layers.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor::nn {
namespace {

DistTensor activated(const DistTensor& x, Act act) {
  switch (act) {
    case Act::kGeluTanh:
      return gelu_tanh(x);
    case Act::kGelu:
      return gelu(x);
    case Act::kSilu:
      break;
  }
  return silu(x);
}

}  // namespace

MLP::MLP(const Scope& at, int64_t hidden, int64_t ffn, bool bias,
         Act activation)
    : FeedForward(at),
      c_fc_(add<Linear>("c_fc", hidden, ffn, bias)),
      c_proj_(add<Linear>("c_proj", ffn, hidden, bias)),
      activation_(activation) {}

DistTensor MLP::forward(const DistTensor& x) const {
  if (activation_ == Act::kGeluTanh)
    return c_proj_(c_fc_(x, Activation::kGeluTanh));
  return c_proj_(activated(c_fc_(x), activation_));
}

GatedMLP::GatedMLP(const Scope& at, int64_t hidden, int64_t ffn, bool bias,
                   Act activation)
    : FeedForward(at),
      gate_proj_(add<Linear>("gate_proj", hidden, ffn, bias)),
      up_proj_(add<Linear>("up_proj", hidden, ffn, bias)),
      down_proj_(add<Linear>("down_proj", ffn, hidden, bias)),
      activation_(activation) {}

DistTensor GatedMLP::forward(const DistTensor& x) const {
  const DistTensor gate = gate_proj_(x), up = up_proj_(x);
  if (activation_ == Act::kSilu) return down_proj_(swiglu(gate, up));
  return down_proj_(activated(gate, activation_) * up);
}

}  // namespace dtensor::nn
