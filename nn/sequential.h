// SPDX-License-Identifier: Apache-2.0
// Modules one after another, and dropout. For a list of modules of one class
// (torch's ModuleList), write std::vector<Child<M>>.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/nn/module.h"
#include "dtensor/ops/create.h"

namespace dtensor::nn {

// Sets elements to 0 with probability p, as dropout() does, while training() is
// true; else returns x. Modules begin in training, as in torch: call eval() of
// the model before an evaluation, and train() after it. Ranks that hold copies
// of x drop the same elements.
class Dropout : public Module {
 public:
  explicit Dropout(const Scope& at, double p = 0.5) : Module(at), p_(p) {}
  DistTensor forward(const DistTensor& x) const {
    return dropout(x, p_, training());
  }

 private:
  double p_;
};

class Sequential;

// A module of class M that a Sequential makes with (scope, args...).
struct Layer {
  std::function<void(Sequential&)> add_to;
};
template <class M, class... Args>
Layer layer(Args... args);

// Calls its steps one after another, each with the result of the one before:
//
//   Sequential net(at, layer<Linear>(4, 8), gelu, layer<Linear>(8, 2));
//   net.forward(x);
//
// A step is a module whose forward() takes and returns one tensor, or a
// function of a tensor. As in torch, modules have their step's number as their
// name: "0.weight", "2.weight".
class Sequential : public Module {
 public:
  using Function = std::function<DistTensor(const DistTensor&)>;
  template <class... Steps>
  explicit Sequential(const Scope& at, const Steps&... steps) : Module(at) {
    (push_back(steps), ...);
  }
  void push_back(const Layer& layer) { layer.add_to(*this); }
  void push_back(Function step) { steps_.push_back(std::move(step)); }
  template <class M, class... Args>
  Child<M> push_back(const Args&... args) {
    const Child<M> child = add<M>(std::to_string(steps_.size()), args...);
    steps_.push_back([child](const DistTensor& x) { return child(x); });
    return child;
  }
  DistTensor forward(const DistTensor& x) const {
    DistTensor y = x;
    for (const Function& step : steps_) y = step(y);
    return y;
  }

 private:
  std::vector<Function> steps_;
};

template <class M, class... Args>
Layer layer(Args... args) {
  return {[=](Sequential& s) { s.push_back<M>(args...); }};
}

}  // namespace dtensor::nn
