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
  std::vector<SpecRef> specs;
  std::vector<Tensor> parts;
  std::vector<uint64_t> versions;
};

// The tensors that a run uses. Moved copies that tensors cache during the run
// (DistTensor::Impl::copies) are dropped when this is destroyed.
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
  // Returns true if the tensor is new.
  bool add(const DistTensor&);
  // The tensors that still exist, except the results that the run made:
  // results[i] for each i of `made`.
  std::vector<Left> left(const std::vector<DistTensor>& results,
                         const std::vector<size_t>& made) const;

 private:
  struct Use {
    std::weak_ptr<DistTensor::Impl> tensor;
    // At its first use; unset if its data was still being received.
    std::optional<uint64_t> version;
    std::vector<DistTensor::Impl::Copy> copies;
  };
  std::unordered_set<const DistTensor::Impl*> known_;
  std::vector<Use> list_;
};

// Used while nothing is recorded. `outer` is the one that was active before;
// it is notified as well.
class FirstRun final : public OpCaptures {
 public:
  FirstRun(const std::function<bool(std::string_view op)>& save,
           OpCaptures* outer)
      : save_(save), outer_(outer) {}

  void used(const DistTensor&) override;
  // Outputs that an outer checkpoint kept are available in its second run.
  bool has(const Op& op) override { return outer_ && outer_->has(op); }
  std::vector<Tensor> take(const Op&, const Attrs&, const Decision&) override;
  void ran(const Op&, const Attrs&, const Decision&,
           std::span<const DistTensor> outputs) override;

  // The tensors that want a gradient and were made outside of the run. Those
  // made inside have no other owner by now. Call it once.
  std::vector<DistTensor> captured();
  std::vector<KeptCall> kept() { return std::move(kept_); }
  const Uses& uses() const { return uses_; }

 private:
  const std::function<bool(std::string_view op)>& save_;
  OpCaptures* const outer_;
  Uses uses_;
  std::vector<DistTensor> captured_;
  std::vector<KeptCall> kept_;
  bool taken_ = false;  // the current call's outputs came from outer_
};

// Throws Error if the second run differs from the first.
class SecondRun final : public OpCaptures {
 public:
  // Graph nodes numbered below `first` are older than the first run.
  SecondRun(const std::vector<KeptCall>& kept,
            const std::vector<DistTensor>& captured, uint64_t first);

  void used(const DistTensor&) override;
  bool has(const Op& op) override { return kept_ops_.contains(&op); }
  std::vector<Tensor> take(const Op&, const Attrs&, const Decision&) override;
  void ran(const Op&, const Attrs&, const Decision&,
           std::span<const DistTensor>) override {}

  // Call it after the run: throws Error if the run left out anything.
  void check_complete() const;

 private:
  const std::vector<KeptCall>& kept_;
  const std::vector<DistTensor>& captured_;
  const uint64_t first_;
  std::unordered_set<const Op*> kept_ops_;
  size_t next_ = 0;                                        // in kept_
  std::unordered_map<const DistTensor::Impl*, bool> met_;  // for captured_
  Uses uses_;
};

}  // namespace dtensor
