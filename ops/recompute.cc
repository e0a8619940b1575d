// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/two_runs.h"
#include "dtensor/placement/error.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

// The settings under which the first run begins. The second run restores them.
struct Where {
  explicit Where(const RankContext& ctx)
      : random(random_state()),
        path(ctx.path),
        ordinal(ctx.ordinal),
        kind(ctx.memory_kind) {}
  RandomState random;
  std::string path;
  int64_t ordinal;
  MemoryKind kind;
};

class CheckpointNode final : public Node {
 public:
  CheckpointNode(Recomputed fn, std::vector<DistTensor> given, Where where)
      : fn_(std::move(fn)),
        given_(std::move(given)),
        where_(std::move(where)) {}

  void save(FirstRun& run, std::vector<DistTensor> captured,
            const std::vector<DistTensor>& results,
            const std::vector<size_t>& made) {
    captured_ = std::move(captured);
    used_ = run.uses().left(results, made);
    calls_ = run.calls();
    for (const DistTensor& x : captured_) inputs.push_back(edge_to(x));
    for (const DistTensor& y : results) specs_.push_back(y.spec());
    num_outputs = 0;
  }
  // Returns y, result i of the function, as the next output of this node, `me`.
  DistTensor output(size_t i, const DistTensor& y, std::shared_ptr<Node> me) {
    DistTensor out = y.detach();
    out.impl()->node = std::move(me);
    out.impl()->output = num_outputs++;
    out.impl()->requires_grad = true;
    places_.push_back(i);
    return out;
  }

  void backward(std::span<const DistTensor> cotangents,
                std::span<const bool> needed,
                std::span<DistTensor> gradients) override {
    DT_CHECK(
        !released_, "checkpoint",
        "the gradient of this call was taken before, with release_graph or by "
        "SplitGrad, and the tensors that it needs were freed; run the forward "
        "pass again, or take all gradients at once");
    check_untouched();
    SecondRun run(calls_, captured_, sequence);
    std::vector<DistTensor> outputs, arrived, wanted;
    {
      const std::vector<DistTensor> results = run_again(run);
      for (size_t o = 0; o < places_.size(); ++o) {
        if (!cotangents[o].defined()) continue;
        outputs.push_back(results[places_[o]]);
        arrived.push_back(cotangents[o]);
      }
    }
    for (size_t i = 0; i < captured_.size(); ++i)
      if (needed[i]) wanted.push_back(captured_[i]);
    const std::vector<DistTensor> back = backward_pass(
        outputs, arrived, wanted,
        {.create_graph = grad_enabled(),
         .release_graph = !grad_enabled(),
         .stop_at_inputs = true},
        [](const DistTensor& a, const DistTensor& b) { return add(a, b); });
    for (size_t i = 0, next = 0; i < captured_.size(); ++i)
      if (needed[i]) gradients[i] = back[next++];
  }

  void release() override {
    released_ = true;
    fn_ = nullptr;
    given_.clear();
    captured_.clear();
    used_.clear();
    calls_ = {};
  }
  void each_saved(const EachStorage& fn) const override {
    for (const DistTensor& x : given_) each_of(x, fn);
    for (const DistTensor& x : captured_) each_of(x, fn);
    for (const auto& [call, kept] : calls_.kept)
      for (const Tensor& part : kept.parts)
        if (part.defined()) fn(*part.storage());
  }
  std::string_view name() const override { return "checkpoint"; }

 private:
  void check_untouched() const {
    for (const auto& [tensor, version] : used_)
      if (const auto impl = tensor.lock())
        DT_CHECK(impl->version() == version, "checkpoint",
                 "{} was changed in place after the function used it, and its "
                 "old values are needed to run the function again; change a "
                 "copy of it instead",
                 impl->spec->to_string());
  }

  std::vector<DistTensor> run_again(SecondRun& run) const {
    RankContext& ctx = RankContext::current();
    const RandomScope random(where_.random);
    const Scoped<bool> grad(ctx.grad_enabled, true);
    const Scoped<Captures*> captures(ctx.captures, &run);
    const Scoped<std::string> phase(ctx.phase, "recompute");
    const Scoped<std::string_view> path(ctx.path, where_.path);
    const Scoped<int64_t> ordinal(ctx.ordinal, where_.ordinal);
    const Scoped<MemoryKind> kind(ctx.memory_kind, where_.kind);
    std::vector<DistTensor> results = fn_(given_);
    DT_CHECK(
        results.size() == specs_.size(), "checkpoint",
        "the number of the function's results is {} in its second run, but was "
        "{} in its first; return the same in both runs",
        results.size(), specs_.size());
    for (size_t i = 0; i < results.size(); ++i)
      DT_CHECK(
          results[i].defined() && results[i].spec() == specs_[i], "checkpoint",
          "result {} of the function is {} in its second run, but was {} in "
          "its first; compute the same in both runs",
          i,
          results[i].defined() ? results[i].spec()->to_string() : "undefined",
          specs_[i]->to_string());
    run.check_complete();
    return results;
  }

  Recomputed fn_;
  std::vector<DistTensor> given_;
  const Where where_;
  std::vector<DistTensor> captured_;  // in the order of `inputs`
  // The tensors that the first run used, without its results, and their
  // versions.
  std::vector<Uses::Left> used_;
  CallsMade calls_;             // of the first run
  std::vector<SpecRef> specs_;  // of the results
  std::vector<size_t> places_;  // of the outputs among the results
  bool released_ = false;
};

}  // namespace

std::vector<DistTensor> checkpoint(const Recomputed& fn,
                                   const std::vector<DistTensor>& inputs,
                                   const RecomputeOptions& options) {
  RankContext& ctx = RankContext::current();
  if (!ctx.grad_enabled) return fn(inputs);
  Where where(ctx);
  FirstRun run(options.save, captures_of(ctx));
  std::vector<DistTensor> results;
  {
    const Scoped<bool> grad(ctx.grad_enabled, false);
    const Scoped<Captures*> captures(ctx.captures, &run);
    results = fn(inputs);
  }
  for (size_t i = 0; i < results.size(); ++i)
    DT_CHECK(results[i].defined(), "checkpoint",
             "result {} of the function is undefined; return defined tensors",
             i);
  std::vector<DistTensor> captured = run.captured();
  if (captured.empty()) return results;
  // A tensor that the function returns unchanged keeps its own place in the
  // graph. The first run made the other results, and the node makes them again.
  std::vector<size_t> made;
  for (size_t i = 0; i < results.size(); ++i)
    if (!results[i].requires_grad() &&
        std::none_of(inputs.begin(), inputs.end(),
                     [&](const auto& x) { return x.same_as(results[i]); }))
      made.push_back(i);
  const auto node =
      std::make_shared<CheckpointNode>(fn, inputs, std::move(where));
  node->save(run, std::move(captured), results, made);
  for (size_t i : made)
    if (is_float(results[i].dtype()))
      results[i] = node->output(i, results[i], node);
  return results;
}

DistTensor checkpoint(const std::function<DistTensor(const DistTensor&)>& fn,
                      const DistTensor& x, const RecomputeOptions& options) {
  return checkpoint(
      [fn](const std::vector<DistTensor>& in) {
        return std::vector<DistTensor>{fn(in[0])};
      },
      std::vector<DistTensor>{x}, options)[0];
}

std::vector<DistTensor> save_on_host(const Recomputed& fn,
                                     const std::vector<DistTensor>& inputs) {
  const uint64_t before = Node::newest();
  std::vector<DistTensor> results = fn(inputs);
  for (size_t i = 0; i < results.size(); ++i)
    DT_CHECK(results[i].defined(), "save_on_host",
             "result {} of the function is undefined; return defined tensors",
             i);
  offload_saved(results, before);
  return results;
}

DistTensor save_on_host(const std::function<DistTensor(const DistTensor&)>& fn,
                        const DistTensor& x) {
  return save_on_host(
      [fn](const std::vector<DistTensor>& in) {
        return std::vector<DistTensor>{fn(in[0])};
      },
      std::vector<DistTensor>{x})[0];
}

}  // namespace dtensor
