// SPDX-License-Identifier: Apache-2.0
// Layers that the models here do not use: convolutions and recurrences.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/nn/module.h"
#include "dtensor/ops/convolution.h"

namespace dtensor::nn {

// conv2d() with weight [out, in / groups, kernel...] and bias [out]. Both begin
// uniform in +-1 / sqrt(in / groups * kernel[0] * kernel[1]), as in torch.
// Throws Error if a size is below 1, or the groups do not divide the channels.
class Conv2d : public Module {
 public:
  Conv2d(const Scope& at, int64_t in, int64_t out, const PerDimension& kernel,
         ConvOptions = {}, bool bias = true);
  DistTensor forward(const DistTensor& x) const {
    return conv2d(x, weight_, bias_, options_);
  }

 private:
  ConvOptions options_;
  DistTensor weight_, bias_;
};

// Under torch's names, with its defaults.
struct LSTMOptions {
  int64_t num_layers = 1;
  bool bias = true, batch_first = false;
  double dropout = 0;  // of each layer's output but the last one's, in training
  bool bidirectional = false;
};

// Long short-term memory (Hochreiter and Schmidhuber, Neural Computation 9,
// 1997), as torch.nn.LSTM computes it:
//
//   i, f, g, o = chunk(x_t W_ih^T + b_ih + h_(t-1) W_hh^T + b_hh, 4)
//   c_t = sigmoid(f) * c_(t-1) + sigmoid(i) * tanh(g)
//   h_t = sigmoid(o) * tanh(c_t)
//
// With D = 2 if bidirectional, else 1, layer k has weight_ih_lk [4 hidden,
// input, or D hidden if k > 0], weight_hh_lk [4 hidden, hidden], and bias_ih_lk
// and bias_hh_lk [4 hidden]; those of the other direction end in "_reverse".
// All begin uniform in +-1 / sqrt(hidden). The products with x are one for all
// steps of a layer. If the batch is split, no step sends anything; if weights
// are, each does.
class LSTM : public Module {
 public:
  // [num_layers * D, b, hidden], also if batch_first.
  struct State {
    DistTensor h, c;
  };
  struct Result {
    DistTensor output;  // h of each step of the last layer: [t, b, D hidden]
    State state;        // h and c of each layer after its last step
  };
  // Throws Error if a number is below 1, or dropout is not in [0, 1].
  LSTM(const Scope& at, int64_t input_size, int64_t hidden_size,
       const LSTMOptions& = {});
  // x [t, b, input_size]. If batch_first, x and the output are [b, t, ...].
  // Without an initial state, h and c begin at 0. Throws Error for another
  // shape, or for no steps.
  Result forward(const DistTensor& x, const State& initial = {}) const;

 private:
  struct Cell {
    DistTensor weight_ih, weight_hh, bias_ih, bias_hh;
  };
  LSTMOptions options_;
  int64_t input_, hidden_, directions_;
  std::vector<Cell> cells_;  // layer by layer, of each direction
};

}  // namespace dtensor::nn
