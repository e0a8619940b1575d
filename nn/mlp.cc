#include "dtensor/nn/layers.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor::nn {

MLP::MLP(const Scope& at, int64_t hidden, int64_t ffn)
    : FeedForward(at),
      c_fc_(add<Linear>("c_fc", hidden, ffn)),
      c_proj_(add<Linear>("c_proj", ffn, hidden)) {}

DistTensor MLP::forward(const DistTensor& x) const {
  return c_proj_(c_fc_(x, Activation::kGeluTanh));
}

SwiGLU::SwiGLU(const Scope& at, int64_t hidden, int64_t ffn)
    : FeedForward(at),
      gate_proj_(add<Linear>("gate_proj", hidden, ffn, false)),
      up_proj_(add<Linear>("up_proj", hidden, ffn, false)),
      down_proj_(add<Linear>("down_proj", ffn, hidden, false)) {}

DistTensor SwiGLU::forward(const DistTensor& x) const {
  return down_proj_(swiglu(gate_proj_(x), up_proj_(x)));
}

}  // namespace dtensor::nn
