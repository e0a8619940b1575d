// SPDX-License-Identifier: Apache-2.0
// Operators, and how apply() runs them.
//
// An operator provides its rule (placement/rule.h) or a list of layouts, the
// dtypes of its outputs, its local computation and its gradient. apply() does
// the rest, in the same way for every operator:
//   1. decide: choose the assignment, which gives the layouts of inputs and
//      outputs (decision.h; cached)
//   2. move all inputs to these layouts, together
//   3. compute on the local parts (compute.h)
//   4. record a graph node if a gradient is wanted
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/ops/attrs.h"
#include "dtensor/ops/compute.h"
#include "dtensor/ops/decision.h"
#include "dtensor/placement/candidates.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/inline_vec.h"
#include "dtensor/placement/rule.h"
#include "dtensor/saved_calls.h"

namespace dtensor {

// The arguments of Op::gradient().
struct GradientCall {
  const Op& op;
  const Attrs& attrs;
  const std::shared_ptr<const Decision>& decision;
  // The inputs are in the layouts of decision->in.
  std::span<const DistTensor> inputs;      // undefined if not saved
  std::span<const DistTensor> outputs;     // undefined if not saved
  std::span<const DistTensor> cotangents;  // of the outputs; may be undefined
  std::span<const bool> needed;  // whether each input needs a gradient
};

// One gradient for each input of a call. It is undefined if the input has no
// gradient, and may be if none is needed.
using InputGradients = InlineVec<DistTensor, Compute::kMostInputs>;

// An input of a Sample: its shape, and its values, which the operator must
// accept. Use small sizes that meshes do not divide evenly.
struct SampleInput {
  enum class Values : uint8_t {
    kAny,       // positive and negative, mean not zero
    kPositive,  // at least 0.2
    kIndex,     // random i64 in [0, bound)
    kBool,
    kInt8,
    kConstant  // as kAny, but the input has no gradient
  };
  Shape shape;
  Values values = Values::kAny;
  int64_t bound = 0;  // for kIndex
  // The range of the values if `values` is kAny or kConstant.
  double lo = -2, hi = 3;
  bool zeros = false;     // every third element is 0
  bool dominant = false;  // 10 is added to the diagonal of each matrix
};
// A call that the proof driver makes (tests/ops/proof.h).
struct Sample {
  std::vector<SampleInput> inputs;
  Attrs attrs;
  bool smooth = true;  // second derivatives exist everywhere near the values
};

// The facts about an operator that are the same for all calls.
struct OpFacts {
  static constexpr uint32_t kAll = ~uint32_t{0};
  OpWork work = {};
  // False if the operator has no gradient: its outputs never require one, and
  // gradient() is never called.
  bool differentiable = true;
  // Bit i is set if gradient() needs input i.
  uint32_t saved_inputs = kAll;
  bool saves_outputs = false;  // whether gradient() needs the outputs
  // Bit i is set if output i must be stored for gradient(), or for
  // recomputation (grad.h). restore() computes the others from the stored ones.
  uint32_t stored_outputs = kAll;
  // False for operators with layouts that no rule describes, such as views.
  // They override candidates() instead of bind().
  bool has_rule = true;
  // False if compute() sets c.out itself (for example, to a view).
  bool allocates = true;
  // True if the data decide how many bytes the operator moves. Its CommEvents
  // (comm_event.h) then differ between steps, and from a dry run.
  bool data_decide_bytes = false;
  // True if the outputs are the inputs under other indices. An output then has
  // the input's Keep (keep.h): a slice of a parameter may be moved no more
  // freely than the parameter.
  bool renames = false;
  // True if gradient() takes exact cotangents (exact.h) and returns them.
  bool passes_exact = false;
  // How compute() adds floats. It decides which factors a reproducible run
  // (exact.h) pins ("!"), so that the operator gathers what it adds up.
  enum class Sums : uint8_t {
    // In an order that depends on a rank's part: pins factors that an output of
    // floats lacks, unless it is their maximum or minimum.
    kInOrder,
    // Also over factors marked "~": pins them, too.
    kInside,
    // As exact numbers, of any type but f64: the outputs are then P(exact)
    // instead of P(sum), and no factor is pinned. With f64, as kInside.
    kExact,
    // The bits of a row may depend on the other rows of the rank: pins all.
    kTogether,
  };
  Sums sums = Sums::kInOrder;

  bool saves_input(size_t i) const { return saved_inputs >> i & 1; }
  bool stores_output(size_t o) const { return stored_outputs >> o & 1; }
};

// One of several algorithms for a call, such as a ring for attention. `layouts`
// has the inputs' layouts that the algorithm computes on, and their price.
// bind() returns the algorithm's rule if it is given `attrs`.
struct Way {
  Candidate layouts;  // of the inputs; the rule gives the outputs' layouts
  Attrs attrs;
};

class Op {
 public:
  explicit Op(std::string name, const OpFacts& facts = {})
      : name_(std::move(name)), facts_(facts) {}
  virtual ~Op() = default;
  const std::string& name() const { return name_; }
  const OpFacts& facts() const { return facts_; }

  // The rule for inputs of these shapes. Throws Error if the shapes do not fit
  // each other.
  virtual BoundRule bind(const std::vector<Shape>& shapes, const Attrs&) const;
  // For operators without a rule: returns one or more sets of layouts in which
  // compute() can handle these inputs. Throws Error if there is none.
  virtual std::vector<Candidate> candidates(std::span<const OpInput>,
                                            const Attrs&) const;
  // For operators with a rule: returns the algorithms among which choose()
  // picks the cheapest. If the list is empty, as it is by default, choose()
  // picks among the assignments of the rule for the call's own arguments.
  virtual std::vector<Way> ways(std::span<const OpInput>, const Attrs&) const {
    return {};
  }
  // The dtypes of the outputs. By default, one output with input 0's dtype.
  virtual std::vector<DType> out_dtypes(std::span<const DType> in,
                                        const Attrs&) const;
  virtual void compute(Compute& c) const = 0;
  // Computes the outputs that are not stored (OpFacts::stored_outputs) from the
  // stored ones. c.out has all outputs, and c.in is empty.
  virtual void restore(Compute&) const {}
  // Calls for the proof driver, at least one. Pure virtual, so that no operator
  // is left out of the proof.
  virtual std::vector<Sample> samples() const = 0;

  // Makes the storage that compute() and gradient() of one call share. Both get
  // it as Attrs::state. Called only if the call will have a gradient. Null by
  // default.
  virtual std::shared_ptr<void> new_state() const { return nullptr; }
  // Returns the cotangents of the inputs. Calls only operators, so that the
  // result can be differentiated again under create_graph (grad_enabled() is
  // true then). An operator whose fused backward pass is not differentiable
  // must call separate operators in that case.
  virtual InputGradients gradient(const GradientCall&) const;

 private:
  std::string name_;
  OpFacts facts_;
};

// Runs an operator. Collective over the mesh of the inputs. On ranks outside of
// the mesh the outputs have specs and graph nodes, but no data. Throws Error if
// the inputs are on different meshes. If `assignment` is given, it is used
// instead of a chosen one, as decide() says: a gradient passes the assignment
// of its forward pass. apply() copies it.
std::vector<DistTensor> apply(const Op&, TensorList inputs, const Attrs& = {},
                              const Assignment* assignment = nullptr);
// apply() for operators with one output.
DistTensor apply1(const Op& op, TensorList inputs, const Attrs& attrs = {},
                  const Assignment* assignment = nullptr);

// Throws Error if an input is undefined, and names the first such input. Needed
// only by functions that read their inputs before apply(), which checks as
// well.
void check_defined(std::string_view op, TensorList inputs);

// Observes the operators of a function under checkpoint() (grad.h), while the
// function runs for the first or for the second time.
class OpCaptures : public Captures {
 public:
  // For each call of an operator, the functions below are called in this order.
  //
  // Whether the outputs of the next call were kept in an earlier run.
  virtual bool has() const = 0;
  // The layouts of the call have been chosen. `id` is a hash of the operator,
  // its arguments and seeds, and the layouts of its inputs and outputs. Throws
  // Error if the earlier run made another call.
  virtual void decided(const Op&, const Decision&, uint64_t id) = 0;
  // Only if has(): returns this rank's parts of the kept outputs. An output
  // that Op::restore() computes has an undefined part. Throws Error if one was
  // changed in place.
  virtual std::vector<Tensor> take() = 0;
  // The operator has run.
  virtual void ran(const Op&, std::span<const DistTensor> inputs,
                   std::span<const DistTensor> outputs) = 0;
};
// Returns RankContext::captures, which is an OpCaptures or null. It is null
// outside of functions under checkpoint(), and in NoGrad scopes.
inline OpCaptures* captures_of(const RankContext& context) {
  return static_cast<OpCaptures*>(context.captures);
}

// An operator with one fixed rule. A subclass adds compute() and gradient(),
// and also out_dtypes(), unless all inputs and outputs have one float type.
class RuleOp : public Op {
 public:
  RuleOp(std::string name, std::string_view rule, const OpFacts& facts = {})
      : Op(std::move(name), facts), rule_(rule) {}

  BoundRule bind(const std::vector<Shape>&, const Attrs&) const override;
  std::vector<DType> out_dtypes(std::span<const DType>,
                                const Attrs&) const override;
  // One sample. The factors of the rule have the sizes 5, 3, 4, 2, 5, 3, ... in
  // order; "..." is one dimension of size 3.
  std::vector<Sample> samples() const override;
  const Rule& rule() const { return rule_; }

 private:
  Rule rule_;
};

}  // namespace dtensor
