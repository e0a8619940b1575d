// SPDX-License-Identifier: Apache-2.0
// Sharded parameters that are gathered where operators use them (ZeRO stage 3;
// see DistTensor::gather_on_use()).
//
// A parameter is gathered when an operator needs it, and the gathered copy is
// freed afterwards unless a gradient will need it again. Copies for gradients
// are held as long as they fit into half of RankContext::gather_budget; the
// least recently used are freed first. (The latest operator's copies are held
// even if they do not fit.) So the copies of the last parameters of the forward
// pass are still there when the backward pass begins. The order of uses alone
// determines which copies are held, so all ranks hold the same ones.
//
// The other half of the budget is for prefetching: the rank's second thread
// gathers ahead, in the order in which the previous step gathered. (A step lies
// between two calls of end_gather_step().) Once a step uses a parameter out of
// that order, the rest of the step gathers on demand. Under a CommBudget,
// nothing is gathered ahead.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/choose.h"
#include "dtensor/rank_context.h"

namespace dtensor {

// Whether x is gathered on use.
inline bool gathers(const DistTensor& x) {
  return x.defined() && x.impl()->use != nullptr;
}

// An input as decide() (ops/decision.h) gets it. Operators see a parameter that
// is gathered on use in the gathered layout, and do not move it from there.
inline OpInput as_input(const DistTensor& x) {
  return {x.use_spec(), gathers(x) ? Keep::kStay : x.keep()};
}

// Replaces each x[i] that is gathered on use by its copy, of spec
// x[i].use_spec(). Gathers the copies that are missing, together. Collective
// over the mesh.
void gather_inputs(RankContext&, std::span<DistTensor> x);

// The parameter in layout `to`. The result's part is made when it is first
// read: by gathering, or by a redistribution if gather_on_use() was not called
// for the parameter. The first read is collective over the mesh.
DistTensor gathered_when_read(const DistTensor& parameter, const Spec* to);

// Frees the copy after an operator has used it, unless a gradient will need it.
void free_gathered(RankContext&, const DistTensor& parameter);

// An operator's input that its gradient will read. For a parameter with
// Keep::kGatherOnUse, a SavedInput holds the parameter itself. If the gradient
// reads it in another layout, free_gathered() keeps the gathered copy, which
// exists only after gather_on_use(). The budget may still free the copy.
class SavedInput {
 public:
  SavedInput() = default;  // saves nothing
  // `given` is the input as the operator got it, and `used` the tensor on which
  // it computed, in layout `in`. `in` must outlive this object.
  SavedInput(const DistTensor& given, const DistTensor& used, const Spec* in);
  SavedInput(SavedInput&& o) noexcept { swap(o); }
  SavedInput& operator=(SavedInput&& o) noexcept {
    swap(o);
    return *this;
  }
  ~SavedInput();
  const DistTensor& tensor() const { return x_; }
  // The input in layout `in`, or an undefined tensor if nothing was saved. A
  // parameter is gathered as by gathered_when_read().
  DistTensor read() const;
  // False if the input has been changed in place since it was saved.
  bool untouched() const {
    return !x_.defined() || x_.impl()->version() == version_;
  }

 private:
  bool awaits() const { return x_.defined() && x_.spec() != in_; }
  void swap(SavedInput& o) noexcept {
    std::swap(x_, o.x_);
    std::swap(in_, o.in_);
    std::swap(version_, o.version_);
  }
  DistTensor x_;
  const Spec* in_ = nullptr;
  uint64_t version_ = 0;
};

// Drops all gathered copies, since the parameters are about to change, and
// begins the next step.
void end_gather_step(RankContext&);

}  // namespace dtensor
