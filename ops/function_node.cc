// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/function_node.h"

#include <memory>
#include <utility>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

class FunctionNode : public Node,
                     public std::enable_shared_from_this<FunctionNode> {
 public:
  FunctionNode(std::string_view name, TensorList ins, GradientFunction gradient,
               TensorList saved)
      : name_(name), gradient_(std::move(gradient)) {
    for (const DistTensor& in : ins) {
      inputs.push_back(edge_to(in));
      specs_.push_back(in.spec());
    }
    for (const DistTensor& x : saved) hold("input", x);
  }
  ~FunctionNode() override { FunctionNode::release(); }

  void made(std::span<const DistTensor> outputs, Needs needs) {
    num_outputs = static_cast<int>(outputs.size());
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (needs == Needs::kOutputs) {
        // The outputs own this node, so that holding them would make a cycle.
        outs_.push_back(outputs[o].detach());
        hold("output", outs_[o]);
      }
      if (is_float(outputs[o].dtype())) join(outputs[o], o);
    }
  }

  void backward(std::span<const DistTensor> cotangents,
                std::span<const bool> needed,
                std::span<DistTensor> gradients) override {
    DT_CHECK(gradient_, name_,
             "the gradient of this call was taken before, with release_graph "
             "or by SplitGrad, and the tensors that it needs were freed; run "
             "the forward pass again, or take all gradients at once");
    for (const Held& h : held_)
      DT_CHECK(h.x.impl()->version() == h.version, name_,
               "an {}, {}, was changed in place after it was {}, and its old "
               "values are needed for the gradient; change a copy of it "
               "instead",
               h.what, h.x.spec()->to_string(),
               h.what == "input" ? "used" : "made");
    std::vector<DistTensor> outs;
    for (size_t o = 0; o < outs_.size(); ++o) {
      outs.push_back(outs_[o].detach());
      if (is_float(outs[o].dtype())) join(outs[o], o);
    }
    std::vector<DistTensor> back = gradient_(outs, cotangents, needed);
    DT_CHECK(back.size() == gradients.size(), name_,
             "the number of gradients is {}, but that of inputs is {}; return "
             "one, which may be undefined, for each input",
             back.size(), gradients.size());
    for (size_t i = 0; i < back.size(); ++i) {
      if (!needed[i] || !back[i].defined()) continue;
      const Spec* in = specs_[i];
      DT_CHECK(back[i].shape() == in->shape() && back[i].mesh() == in->mesh(),
               name_,
               "the gradient of input {} is {} on {}, but the input is {} on "
               "{}; return a tensor of the input's shape on its mesh",
               i, back[i].spec()->to_string(), back[i].mesh().to_string(),
               in->to_string(), in->mesh().to_string());
      gradients[i] = std::move(back[i]);
    }
  }
  void release() override {
    gradient_ = nullptr;
    held_.clear();
    outs_.clear();
  }
  void each_saved(const EachStorage& fn) const override {
    for (const Held& h : held_) each_of(h.x, fn);
    for (const DistTensor& out : outs_)
      if (const Tensor& part = out.impl()->local; part.defined())
        fn(*part.storage());
  }
  std::string_view name() const override { return name_; }

 private:
  struct Held {
    std::string_view what;
    DistTensor x;
    uint64_t version;
  };
  void hold(std::string_view what, const DistTensor& x) {
    held_.push_back({what, x, x.impl()->version()});
  }
  void join(const DistTensor& output, size_t o) {
    output.impl()->node = shared_from_this();
    output.impl()->output = static_cast<int>(o);
    output.impl()->requires_grad = true;
  }

  const std::string_view name_;
  GradientFunction gradient_;
  std::vector<SpecRef> specs_;  // of the inputs
  std::vector<Held> held_;
  std::vector<DistTensor> outs_;
};

}  // namespace

bool any_records(TensorList inputs) {
  bool any = false;
  // Without a shortcut, because records() also reports the use.
  for (const DistTensor& in : inputs) any |= records(in);
  return any;
}

std::vector<DistTensor> with_gradient(std::string_view name, TensorList inputs,
                                      std::vector<DistTensor> outputs,
                                      GradientFunction gradient,
                                      TensorList saved, Needs needs) {
  std::make_shared<FunctionNode>(name, inputs, std::move(gradient), saved)
      ->made(outputs, needs);
  return outputs;
}

}  // namespace dtensor
