// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string_view>
#include <utility>

#include "dtensor/nn/more_layers.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {

LSTM::LSTM(const Scope& at, int64_t input_size, int64_t hidden_size,
           const LSTMOptions& options)
    : Module(at),
      options_(options),
      input_(input_size),
      hidden_(hidden_size),
      directions_(options.bidirectional ? 2 : 1) {
  DT_CHECK(input_ > 0 && hidden_ > 0 && options_.num_layers > 0 &&
               options_.dropout >= 0 && options_.dropout <= 1,
           "lstm",
           "{} has input_size {}, hidden_size {}, num_layers {} and dropout "
           "{}; write sizes above 0, and a dropout in [0, 1]",
           path().empty() ? "the module" : path(), input_, hidden_,
           options_.num_layers, options_.dropout);
  const Init init = Init::uniform(1 / std::sqrt(static_cast<double>(hidden_)));
  for (int64_t layer = 0; layer < options_.num_layers; ++layer)
    for (int64_t d = 0; d < directions_; ++d) {
      const auto make = [&](std::string_view name, const Shape& shape) {
        return add_parameter(
            fmt::format("{}_l{}{}", name, layer, d ? "_reverse" : ""), shape,
            init);
      };
      const int64_t in = layer ? directions_ * hidden_ : input_;
      Cell cell;
      cell.weight_ih = make("weight_ih", {4 * hidden_, in});
      cell.weight_hh = make("weight_hh", {4 * hidden_, hidden_});
      if (options_.bias) {
        cell.bias_ih = make("bias_ih", {4 * hidden_});
        cell.bias_hh = make("bias_hh", {4 * hidden_});
      }
      cells_.push_back(std::move(cell));
    }
}

LSTM::Result LSTM::forward(const DistTensor& x, const State& initial) const {
  const int time = options_.batch_first ? 1 : 0;
  DT_CHECK(x.ndim() == 3 && x.size(2) == input_ && x.size(time) > 0, "lstm",
           "the input is {}; pass [{}, {}], with a step or more",
           x.spec()->to_string(), time ? "batch, steps" : "steps, batch",
           input_);
  const Shape state{std::ssize(cells_), x.size(1 - time), hidden_};
  const bool begins = initial.h.defined() || initial.c.defined();
  for (const DistTensor& s : {initial.h, initial.c})
    DT_CHECK(!begins || (s.defined() && s.shape() == state), "lstm",
             "the initial state has {}, but h and c must be {}; pass both, or "
             "neither",
             s.defined() ? to_string(s.shape()) : "an undefined tensor",
             to_string(state));
  DistTensor y = x;
  std::vector<DistTensor> last_h, last_c;
  for (size_t k = 0; k < cells_.size();) {
    std::vector<DistTensor> sides;
    for (int64_t d = 0; d < directions_; ++d, ++k) {
      const Cell& cell = cells_[k];
      const DistTensor inputs = linear(y, cell.weight_ih, cell.bias_ih);
      DistTensor h, c;
      if (begins) {
        h = select(initial.h, 0, static_cast<int64_t>(k));
        c = select(initial.c, 0, static_cast<int64_t>(k));
      }
      std::vector<DistTensor> outputs(static_cast<size_t>(x.size(time)));
      for (int64_t i = 0; i < x.size(time); ++i) {
        const int64_t t = d ? x.size(time) - 1 - i : i;
        DistTensor gates = select(inputs, time, t);
        if (h.defined())
          gates = gates + linear(h, cell.weight_hh, cell.bias_hh);
        else if (cell.bias_hh.defined())
          gates = gates + cell.bias_hh;
        const std::vector<DistTensor> part = chunk(gates, 4, 1);
        const DistTensor written = sigmoid(part[0]) * tanh(part[2]);
        c = c.defined() ? sigmoid(part[1]) * c + written : written;
        h = sigmoid(part[3]) * tanh(c);
        outputs[static_cast<size_t>(t)] = h;
      }
      sides.push_back(stack(outputs, time));
      last_h.push_back(h);
      last_c.push_back(c);
    }
    y = directions_ == 1 ? sides[0] : cat(sides, 2);
    if (options_.dropout > 0 && k < cells_.size())
      y = dropout(y, options_.dropout, training());
  }
  return {y, {stack(last_h, 0), stack(last_c, 0)}};
}

}  // namespace dtensor::nn
