// What an operator is, and how it runs.
//
// An operator says: its rule (placement/rule.h), the dtypes of its outputs, the
// local computation, and its gradient. apply() does the rest, for every
// operator alike:
//   1. decide: which assignment, hence the layouts of inputs and outputs
//      (decision.h; remembered)
//   2. move the inputs to these layouts, all in one go
//   3. compute on the local parts (compute.h)
//   4. record a node when a gradient is wanted
#pragma once
#include <cstdint>
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
#include "dtensor/placement/rule.h"

namespace dtensor {

// A gradient being taken.
struct GradientCall {
  const Op& op;
  const Attrs& attrs;
  const std::shared_ptr<const Decision>& decision;
  std::span<const DistTensor> inputs;  // as computed on; undefined if not saved
  std::span<const DistTensor> outputs;     // undefined if not saved
  std::span<const DistTensor> cotangents;  // of the outputs; may be undefined
  std::span<const bool> needed;            // of the inputs
};

// A call that the proof driver makes: inputs of these shapes with values that
// the operator accepts. Small sizes that do not divide.
struct SampleInput {
  enum class Values : uint8_t {
    kAny,       // of both signs, no zero mean
    kPositive,  // at least 0.2
    kIndex,     // i64 in [0, bound), a few outside where the op allows it
    kBool
  };
  Shape shape;
  Values values = Values::kAny;
  int64_t bound = 0;
  // Of kAny: other values than from -2 to 3.
  double lo = -2, hi = 3;
};
struct Sample {
  std::vector<SampleInput> inputs;
  Attrs attrs;
  bool smooth = true;  // has second derivatives everywhere near the values
};

class Op {
 public:
  explicit Op(std::string name) : name_(std::move(name)) {}
  virtual ~Op() = default;
  const std::string& name() const { return name_; }

  // The rule for inputs of these shapes. Throws Error on shapes that do not
  // fit.
  virtual BoundRule bind(const std::vector<Shape>& shapes, const Attrs&) const;
  // Operators whose layouts no rule says (views, windows) have none, and list
  // the layouts that they can compute on, at least one, for inputs as they
  // come. Throws Error when the operator cannot take them.
  virtual bool has_rule() const { return true; }
  virtual std::vector<Candidate> candidates(std::span<const OpInput>,
                                            const Attrs&) const;
  // By default one output of the first input's type.
  virtual std::vector<DType> out_dtypes(std::span<const DType> in,
                                        const Attrs&) const;
  virtual OpWork work() const { return {}; }
  // False: compute() sets c.out itself (a view of an input).
  virtual bool allocates() const { return true; }
  // True: the outputs are the inputs under other indices, so that what may not
  // be done with parameters may not be done with what is made of them (Keep).
  virtual bool renames() const { return false; }
  virtual void compute(Compute& c) const = 0;
  // May compute() be called for one box of input i after the other, each time
  // with what of the other operands belongs to it? Of an input of the outputs'
  // type, under a rule without groups. Then the input need not be gathered from
  // ranks whose memory can be read (in_boxes.h).
  enum class InBoxes : uint8_t {
    kNo,
    kContiguous,  // if each box's parts of the outputs are contiguous
    kStrided,
    kAdded  // and if several make up a part of an output: Compute::accumulate
  };
  virtual InBoxes in_boxes(size_t /*i*/, DType) const { return InBoxes::kNo; }
  // Of a call whose outputs are kept (recompute.h), those that have to be, a
  // bit for each, and what computes the others in c.out of them, without
  // inputs.
  virtual uint32_t outputs_to_keep() const { return ~uint32_t{0}; }
  virtual void restore(Compute&) const {}
  // At least one; pure, so that an operator cannot escape the proof.
  virtual std::vector<Sample> samples() const = 0;

  virtual bool differentiable() const { return true; }
  // Of a call that will have a gradient: where compute() leaves what gradient()
  // needs, as Attrs::state of both. None by default.
  virtual std::shared_ptr<void> new_state() const { return nullptr; }
  virtual bool saves_inputs() const { return true; }
  // Of them, input i.
  virtual bool saves_input(size_t /*i*/) const { return saves_inputs(); }
  virtual bool saves_outputs() const { return false; }
  // Cotangents of the inputs. Uses operators only, so that with create_graph
  // (grad_enabled() is then true) it can be differentiated again; an operator
  // with a fused backward that cannot be takes the long way in that case.
  virtual std::vector<DistTensor> gradient(const GradientCall&) const;

 private:
  std::string name_;
};

// Runs an operator. Collective over the mesh; on other ranks the outputs have
// specs, and a place in the graph, and no data. Throws Error when the inputs
// are on different meshes. With `assignment`, that is taken instead of
// choosing: a gradient inherits its forward's (whose Decision it belongs to and
// outlives nothing: it is copied).
std::vector<DistTensor> apply(const Op&, std::span<const DistTensor> inputs,
                              const Attrs& = {},
                              const Assignment* assignment = nullptr);
// The only output.
DistTensor apply1(const Op& op, std::span<const DistTensor> inputs,
                  const Attrs& attrs = {},
                  const Assignment* assignment = nullptr);

// Throws Error that names the first input without a tensor. Functions that look
// at their inputs before apply() call it; apply() does itself.
void check_defined(std::string_view op, std::span<const DistTensor> inputs);

// A call that has run, as RankContext::trace is told of it.
struct OpCall {
  const Op& op;
  const Attrs& attrs;
  const Decision& decision;
  std::span<const DistTensor> in, out;  // in: as they were given
  std::string_view path;  // of the module that made the call; see PathScope
  int64_t ordinal;        // of the call among those of this path, from 0
};

// An operator whose rule is one text and whose outputs have the first input's
// type: what remains to write is compute() and gradient().
class RuleOp : public Op {
 public:
  enum class Types : uint8_t {
    kAny,      // each input as it comes
    kFloats,   // floats, all inputs of one type
    kOneType,  // any type, all inputs of one
  };
  struct Is {
    Types types = Types::kFloats;
    double flops = 1;  // per point
    bool saves_inputs = true, saves_outputs = false;
    bool differentiable = true;
  };
  RuleOp(std::string name, std::string_view rule, Is);
  RuleOp(std::string name, std::string_view rule)
      : RuleOp(std::move(name), rule, Is()) {}

  BoundRule bind(const std::vector<Shape>&, const Attrs&) const override;
  std::vector<DType> out_dtypes(std::span<const DType>,
                                const Attrs&) const override;
  // Inputs of sizes 5, 3, 4, 2 by factor, in the rule's order.
  std::vector<Sample> samples() const override;
  OpWork work() const override { return {is_.flops}; }
  bool saves_inputs() const override { return is_.saves_inputs; }
  bool saves_outputs() const override { return is_.saves_outputs; }
  bool differentiable() const override { return is_.differentiable; }
  const Rule& rule() const { return rule_; }

 private:
  Rule rule_;
  Is is_;
};

}  // namespace dtensor
