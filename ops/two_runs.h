// What checkpoint() (recompute.h) has to know of a function's first run, and to
// check of its second.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/ops/op.h"

namespace dtensor {

// A call of an operator, and this rank's parts of its outputs: those that the
// operator cannot restore.
struct KeptCall {
  const Op* op;
  Attrs attrs;
  std::vector<const Spec*> specs;
  std::vector<Tensor> parts;
  std::vector<uint64_t> versions;
};

// The tensors that a run uses. What is moved meanwhile they remember for the
// operators to come (DistTensor::Impl::copies); when this ends, no more.
class Uses {
 public:
  // A tensor, and the version that it had.
  struct Left {
    std::weak_ptr<DistTensor::Impl> tensor;
    uint64_t version;
  };

  Uses() = default;
  Uses(const Uses&) = delete;
  Uses& operator=(const Uses&) = delete;
  ~Uses();
  // True the first time.
  bool add(const DistTensor&);
  // Those that there still are, but for the results that the run made.
  std::vector<Left> left(const std::vector<DistTensor>& results,
                         const std::vector<size_t>& made) const;

 private:
  struct Use {
    std::weak_ptr<DistTensor::Impl> tensor;
    // When it was first used; unset where the part was still to come.
    std::optional<uint64_t> version;
    std::vector<DistTensor::Impl::Copy> copies;
  };
  std::unordered_set<const DistTensor::Impl*> known_;
  std::vector<Use> list_;
};

// Nothing is recorded; `outer`: what was told before, and is told further on.
class FirstRun final : public Captures {
 public:
  FirstRun(const std::function<bool(const Op&)>& save, Captures* outer)
      : save_(save), outer_(outer) {}

  void used(const DistTensor&) override;
  // What an outer checkpoint kept is there in its second run.
  bool has(const Op& op) override { return outer_ && outer_->has(op); }
  std::vector<Tensor> take(const Op&, const Attrs&, const Decision&) override;
  void ran(const Op&, const Attrs&, const Decision&,
           std::span<const DistTensor> outputs) override;

  // What wants a gradient and was there before: what was made inside nobody
  // else has. To be asked once.
  std::vector<DistTensor> captured();
  std::vector<KeptCall> kept() { return std::move(kept_); }
  const Uses& uses() const { return uses_; }

 private:
  const std::function<bool(const Op&)>& save_;
  Captures* const outer_;
  Uses uses_;
  std::vector<DistTensor> captured_;
  std::vector<KeptCall> kept_;
  bool taken_ = false;  // the outputs of the call that runs
};

// Throws Error where the second run does not what the first did.
class SecondRun final : public Captures {
 public:
  // Nodes of the graph before number `first` are older than the first run.
  SecondRun(const std::vector<KeptCall>& kept,
            const std::vector<DistTensor>& captured, uint64_t first);

  void used(const DistTensor&) override;
  bool has(const Op& op) override { return kept_ops_.contains(&op); }
  std::vector<Tensor> take(const Op&, const Attrs&, const Decision&) override;
  void ran(const Op&, const Attrs&, const Decision&,
           std::span<const DistTensor>) override {}

  // Behind its end: did it all that the first did?
  void check_complete() const;

 private:
  const std::vector<KeptCall>& kept_;
  const std::vector<DistTensor>& captured_;
  const uint64_t first_;
  std::unordered_set<const Op*> kept_ops_;
  size_t next_ = 0;                                        // of kept_
  std::unordered_map<const DistTensor::Impl*, bool> met_;  // of captured_
  Uses uses_;
};

}  // namespace dtensor
