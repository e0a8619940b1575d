// SPDX-License-Identifier: Apache-2.0
// The records that checkpoint() (grad.h) keeps of a function's first run,
// and the checks that it makes in the second.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/op.h"

namespace dtensor {

// A call of an operator in the first run.
struct CallMade {
  const Op* op;
  SpecRef out;  // output 0
  uint64_t id;  // see OpCaptures::decided()
};
// This rank's parts of a call's outputs. Those that Op::restore() computes are
// undefined. The versions of the parts detect later changes.
struct KeptOutputs {
  std::vector<Tensor> parts;
  std::vector<uint64_t> versions;
};
// The calls of a run, and the outputs that are kept, by the numbers of calls.
struct CallsMade {
  std::vector<CallMade> list;
  std::unordered_map<size_t, KeptOutputs> kept;
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
// was active before, or null; it is notified as well. It may observe the second
// run of an outer checkpoint().
class FirstRun final : public OpCaptures {
 public:
  FirstRun(SavedCalls save, OpCaptures* outer)
      : save_(std::move(save)), outer_(outer) {}

  void used(const DistTensor&) override;
  bool has() const override { return outer_ && outer_->has(); }
  void decided(const Op&, const Decision&, uint64_t id) override;
  std::vector<Tensor> take() override;
  void ran(const Op&, std::span<const DistTensor> inputs,
           std::span<const DistTensor> outputs) override;

  // The used tensors that want a gradient and were made outside of the run.
  // Call it once, after the run, when nothing else owns a tensor that was made
  // inside and wants a gradient.
  std::vector<DistTensor> captured();
  CallsMade calls() { return std::move(calls_); }
  const Uses& uses() const { return uses_; }

 private:
  const SavedCalls save_;
  OpCaptures* const outer_;
  Uses uses_;
  std::vector<DistTensor> captured_;
  CallsMade calls_;
  bool taken_ = false;  // the current call's outputs came from outer_
};

// Observes the second run. Throws Error if it uses other tensors than the first
// run, or makes other calls.
class SecondRun final : public OpCaptures {
 public:
  // Graph nodes numbered below `first` are older than the first run.
  SecondRun(const CallsMade& calls, const std::vector<DistTensor>& captured,
            uint64_t first);

  void used(const DistTensor&) override;
  bool has() const override { return calls_.kept.contains(next_); }
  void decided(const Op&, const Decision&, uint64_t id) override;
  std::vector<Tensor> take() override;
  void ran(const Op&, std::span<const DistTensor>,
           std::span<const DistTensor>) override {}

  // Call it after the run. Throws Error if a tensor or a call of the first run
  // is missing.
  void check_complete() const;

 private:
  const CallsMade& calls_;
  const std::vector<DistTensor>& captured_;
  const uint64_t first_;
  size_t next_ = 0;  // the number of the next call
  // Whether the run has used each tensor of captured_.
  std::unordered_map<const DistTensor::Impl*, bool> met_;
  Uses uses_;
};

}  // namespace dtensor
