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
  FunctionNode(std::string_view name, TensorList ins, GradientFunction gradient)
      : name_(name), gradient_(std::move(gradient)) {
    for (const DistTensor& in : ins) {
      inputs.push_back(edge_to(in));
      ins_.push_back({in, in.impl()->version()});
    }
  }
  ~FunctionNode() override { FunctionNode::release(); }

  void made(std::span<const DistTensor> outputs) {
    num_outputs = static_cast<int>(outputs.size());
    for (size_t o = 0; o < outputs.size(); ++o) {
      // The outputs own this node, so that holding them would make a cycle.
      outs_.push_back(outputs[o].detach());
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
    for (size_t i = 0; i < ins_.size(); ++i)
      DT_CHECK(ins_[i].x.impl()->version() == ins_[i].version, name_,
               "input {}, {}, was changed in place after it was used, and its "
               "old values are needed for the gradient; change a copy of it "
               "instead",
               i, ins_[i].x.spec()->to_string());
    std::vector<DistTensor> outs;
    for (size_t o = 0; o < outs_.size(); ++o) {
      outs.push_back(outs_[o].detach());
      if (is_float(outs[o].dtype())) join(outs[o], o);
    }
    std::vector<DistTensor> back = gradient_(outs, cotangents, needed);
    DT_CHECK(back.size() == gradients.size(), name_,
             "the gradient has {} tensors, but the number of inputs is {}; "
             "return one, which may be undefined, for each input",
             back.size(), gradients.size());
    for (size_t i = 0; i < back.size(); ++i) {
      if (!needed[i] || !back[i].defined()) continue;
      const Spec* in = ins_[i].x.spec();
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
    ins_.clear();
    outs_.clear();
  }
  std::string_view name() const override { return name_; }

 private:
  struct Saved {
    DistTensor x;
    uint64_t version;
  };
  void join(const DistTensor& output, size_t o) {
    output.impl()->node = shared_from_this();
    output.impl()->output = static_cast<int>(o);
    output.impl()->requires_grad = true;
  }

  const std::string_view name_;
  GradientFunction gradient_;
  std::vector<Saved> ins_;
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
                                      GradientFunction gradient) {
  std::make_shared<FunctionNode>(name, inputs, std::move(gradient))
      ->made(outputs);
  return outputs;
}

}  // namespace dtensor
