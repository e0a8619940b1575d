// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/op_node.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/gather.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/scoped.h"

namespace dtensor {
namespace {

struct SavedOutput {
  Tensor part;
  uint64_t version = 0;
  bool untouched() const {
    return !part.defined() || part.storage()->version() == version;
  }
};

class OpNode : public Node, public std::enable_shared_from_this<OpNode> {
 public:
  OpNode(const Op& op, const Attrs& attrs,
         std::shared_ptr<const Decision> decision)
      : op_(op),
        attrs_(attrs),
        decision_(std::move(decision)),
        path_(RankContext::current().kept_path()) {}
  ~OpNode() override { OpNode::release(); }

  void save(std::span<const DistTensor> given, std::span<const DistTensor> used,
            std::span<const DistTensor> outs) {
    num_outputs = static_cast<int>(outs.size());
    ins_.resize(used.size());
    for (size_t i = 0; i < ins_.size(); ++i)
      if (op_.facts().saves_input(i))
        ins_[i] = SavedInput(given[i], used[i], decision_->in[i]);
    // The output tensors own this node, so saving them would make a cycle.
    // Their parts are saved instead, except those that Op::restore() could
    // compute from the others.
    if (!op_.facts().saves_outputs) return;
    outs_.resize(outs.size());
    for (size_t o = 0; o < outs.size(); ++o)
      if (op_.facts().stores_output(o))
        outs_[o] = {outs[o].impl()->part(), outs[o].impl()->version()};
  }

  void backward(std::span<const DistTensor> cotangents,
                std::span<const bool> needed,
                std::span<DistTensor> gradients) override {
    DT_CHECK(
        !released_, op_.name(),
        "the gradient of this call was taken before, with release_graph or by "
        "SplitGrad, and the tensors that it needs were freed; run the forward "
        "pass again, or take all gradients at once");
    check_untouched();
    InlineVec<DistTensor, Compute::kMostInputs> ins;
    for (const SavedInput& in : ins_) ins.push_back(in.read());
    InlineVec<DistTensor, Compute::kMostOutputs> outs;
    outs.resize(static_cast<size_t>(num_outputs));
    for (size_t i = 0; i < outs_.size(); ++i) {
      if (!op_.facts().stores_output(i)) continue;
      outs[i] = DistTensor::wrap(outs_[i].part, decision_->out[i]);
      if (!is_differentiable(outs[i].dtype())) continue;
      outs[i].impl()->node = shared_from_this();
      outs[i].impl()->output = static_cast<int>(i);
      outs[i].impl()->requires_grad = true;
    }
    const Scoped<std::string_view> of(RankContext::current().gradient_of,
                                      path_);
    InputGradients back =
        op_.gradient({op_, attrs_, decision_, ins, outs, cotangents, needed});
    DT_CHECK(back.size() == gradients.size(), op_.name(),
             "gradient() returned a list of size {}, but the number of inputs "
             "is {}; return one gradient, which may be undefined, for each",
             back.size(), gradients.size());
    std::move(back.begin(), back.end(), gradients.begin());
  }
  void release() override {
    if (released_) return;
    released_ = true;
    ins_.clear();
    outs_.clear();
    attrs_.state.reset();
  }
  void each_saved(const EachStorage& fn) const override {
    for (const SavedInput& in : ins_) each_of(in.tensor(), fn);
    for (const SavedOutput& out : outs_)
      if (out.part.defined()) fn(*out.part.storage());
  }
  std::string_view name() const override { return op_.name(); }
  DType type_of(int output) const override {
    if (op_.facts().passes_exact) return DType::kExact;
    return decision_->out[static_cast<size_t>(output)]->dtype();
  }

 private:
  // Throws Error if a saved tensor was changed in place after it was saved.
  void check_untouched() const {
    const auto check = [&](bool untouched, std::string_view what, size_t i,
                           const Spec* spec) {
      DT_CHECK(
          untouched, op_.name(),
          "{} {}, {}, was changed in place after it was {}, and its old "
          "values are needed for the gradient; change a copy of it instead",
          what, i, spec->to_string(), what == "input" ? "used" : "made");
    };
    for (size_t i = 0; i < ins_.size(); ++i)
      check(ins_[i].untouched(), "input", i, decision_->in[i]);
    for (size_t i = 0; i < outs_.size(); ++i)
      check(outs_[i].untouched(), "output", i, decision_->out[i]);
  }

  const Op& op_;
  Attrs attrs_;
  std::shared_ptr<const Decision> decision_;
  const std::string_view path_;  // of the module that made the call
  std::pmr::vector<SavedInput> ins_{&memory_};
  std::pmr::vector<SavedOutput> outs_{&memory_};
  bool released_ = false;
};

}  // namespace

void record_node(const Op& op, const Attrs& attrs,
                 std::shared_ptr<const Decision> d,
                 std::span<const DistTensor> given,
                 std::span<const DistTensor> used,
                 std::span<const DistTensor> sources,
                 std::span<DistTensor> outputs) {
  auto node = std::make_shared<OpNode>(op, attrs, std::move(d));
  node->save(given, used, outputs);
  node->inputs.reserve(used.size());
  for (const DistTensor& in : sources) node->inputs.push_back(edge_to(in));
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!is_differentiable(outputs[o].dtype())) continue;
    outputs[o].impl()->node = node;
    outputs[o].impl()->output = static_cast<int>(o);
    outputs[o].impl()->requires_grad = true;
  }
}

}  // namespace dtensor
