// SPDX-License-Identifier: Apache-2.0
// The records that checkpoint() (grad.h) keeps of a function's first run,
// and the checks that it makes in the second.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/op.h"

namespace dtensor {

// A call of an operator, with this rank's parts of the outputs that
// Op::restore() cannot compute.
struct KeptCall {
  const Op* op;
  Attrs attrs;
  std::vector<SpecRef> specs;  // of all outputs
  std::vector<Tensor> parts;   // undefined if Op::restore() computes the output
  std::vector<uint64_t> versions;  // of the parts, to detect later changes
};

// The tensors that a run uses. While it runs, tensors may cache moved copies
// (DistTensor::Impl::copies); the destructor drops those copies.
class Uses {
 public:
  // A tensor, and its version when it was first used.
  struct Left {
    std::weak_ptr<DistTensor::Impl> tensor;
    uint64_t version;
  };

  Uses() = default;
  Uses(const Uses&) = delete;
  Uses& operator=(const Uses&) = delete;
  ~Uses();
  // Adds a tensor. Returns true if it was not in the list.
  bool add(const DistTensor&);
  // The tensors that still exist, except the results that the run itself made:
  // results[i] for each i in `made`.
  std::vector<Left> left(const std::vector<DistTensor>& results,
                         const std::vector<size_t>& made) const;

 private:
  struct Use {
    std::weak_ptr<DistTensor::Impl> tensor;
    // The version at the first use; unset if the data was still being received.
    std::optional<uint64_t> version;
    std::vector<DistTensor::Impl::Copy> copies;
  };
  std::unordered_set<const DistTensor::Impl*> known_;
  std::vector<Use> list_;
};

// Observes the first run, which records no graph. `outer` is the observer that
// was active before, or null; it is notified as well.
class FirstRun final : public OpCaptures {
 public:
  // This first run may be part of the second run of an outer checkpoint(). Then
  // kept_calls selects the calls whose outputs the outer one has kept.
  FirstRun(SavedCalls save, OpCaptures* outer)
      : OpCaptures(outer ? outer->kept_calls : SavedCalls()),
        save_(std::move(save)),
        outer_(outer) {}

  void used(const DistTensor&) override;
  std::vector<Tensor> take(const Op&, const Attrs&, const Decision&) override;
  void ran(const Op&, const Attrs&, const Decision&,
           std::span<const DistTensor> inputs,
           std::span<const DistTensor> outputs) override;

  // The used tensors that want a gradient and were made outside of the run.
  // Call it once, after the run, when nothing else owns a tensor that was made
  // inside and wants a gradient.
  std::vector<DistTensor> captured();
  std::vector<KeptCall> kept() { return std::move(kept_); }
  // Selects the calls of kept(): those to save, and those that the outer
  // checkpoint() has kept.
  SavedCalls selected() const;
  const Uses& uses() const { return uses_; }

 private:
  const SavedCalls save_;
  OpCaptures* const outer_;
  Uses uses_;
  std::vector<DistTensor> captured_;
  std::vector<KeptCall> kept_;
  bool taken_ = false;  // the current call's outputs came from outer_
};

// Observes the second run. Throws Error if it uses other tensors than the first
// run, or differs in the calls of operators with kept outputs.
class SecondRun final : public OpCaptures {
 public:
  // `selected` selects the calls of `kept`. Graph nodes numbered below `first`
  // are older than the first run.
  SecondRun(SavedCalls selected, const std::vector<KeptCall>& kept,
            const std::vector<DistTensor>& captured, uint64_t first);

  void used(const DistTensor&) override;
  std::vector<Tensor> take(const Op&, const Attrs&, const Decision&) override;
  void ran(const Op&, const Attrs&, const Decision&,
           std::span<const DistTensor>, std::span<const DistTensor>) override {}

  // Call it after the run. Throws Error if a tensor or a kept call of the first
  // run is missing.
  void check_complete() const;

 private:
  const std::vector<KeptCall>& kept_;
  const std::vector<DistTensor>& captured_;
  const uint64_t first_;
  size_t next_ = 0;  // index in kept_
  // Whether the run has used each tensor of captured_.
  std::unordered_map<const DistTensor::Impl*, bool> met_;
  Uses uses_;
};

}  // namespace dtensor
