// What an operator is, and how it runs.
//
// An operator says: its rule (placement/rule.h), the dtypes of its outputs, the
// local computation, and its gradient. apply() does the rest, for every
// operator alike:
//   1. decide: which assignment (chosen once per op, specs and attributes, then
//      remembered), hence the layouts of inputs and outputs
//   2. redistribute the inputs to these layouts
//   3. compute on the local parts
//   4. record a node when a gradient is wanted
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/ops/attrs.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/rule.h"
#include "dtensor/runtime/autograd.h"
#include "dtensor/runtime/dist_tensor.h"

namespace dtensor {

// Everything that was decided for one call, and the calls like it.
struct Decision {
  std::optional<BoundRule> rule;  // none for operators that decide themselves
  Assignment assignment;
  std::vector<const Spec*> in, out;
  std::vector<Shape> out_local;  // shapes of this rank's parts
  bool here = true;              // this rank is in the mesh; else no part
  bool communicates = false;     // some input has to be sent
  Choice choice;                 // with its price; for explain
};

class Op;

// One local computation.
class Compute {
 public:
  const Op& op;
  const Attrs& attrs;
  const Decision& decision;
  std::vector<Tensor> in;   // parts in the decided layouts, any strides
  std::vector<Tensor> out;  // allocated, contiguous; or to be set (see Op)
  RankContext& context;
  // All that touches data is given to these; in a dry run they do nothing.
  const Kernels& k;
  Stream stream;
  Device& device() const { return *context.device; }

  const Mesh& mesh() const { return decision.in[0]->mesh(); }
  const Coord& coord() const { return context.coordinate(mesh()); }
  // Scratch that lives as long as the returned tensor.
  Tensor scratch(const Shape& shape, DType t) {
    return Tensor::empty(shape, t);
  }
  // The axes that split a factor, and the ranges of it that this rank has.
  AxisMask axes_of(char factor) const;
  IntervalList ranges_of(char factor) const;
  int64_t global_size(char factor) const;
  // A small collective inside the operator, in place on a contiguous tensor;
  // nothing when `axes` is empty. Recorded, and counted, as any other.
  void all_reduce(const Tensor&, AxisMask axes, ReduceOp op);
  // Overlapping boxes. holds(c) and wants(c) are the global indices that the
  // rank at coordinate c has of a tensor, and needs; `part` is what this rank
  // has. fetch() returns what it needs, from the ranks that differ in `axes`.
  using RegionOf = std::function<Region(const Coord&)>;
  Tensor fetch(const Tensor& part, AxisMask axes, const RegionOf& holds,
               const RegionOf& wants);
  // The opposite, accumulating: the sum of what the ranks hold of the indices
  // that this rank wants. The gradient of fetch() with the two exchanged.
  Tensor collect_sum(const Tensor& part, AxisMask axes, const RegionOf& holds,
                     const RegionOf& wants);
};

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
  virtual BoundRule bind(const std::vector<Shape>& shapes,
                         const Attrs&) const = 0;
  // By default one output of the first input's type.
  virtual std::vector<DType> out_dtypes(std::span<const DType> in,
                                        const Attrs&) const;
  virtual OpWork work() const { return {}; }
  // Operators whose layouts are no rule (views, slices): the input and output
  // specs. `in` are the inputs as they come. Default: choose by the rule.
  virtual std::optional<Decision> decide(std::span<const OpInput> in,
                                         const Attrs&) const {
    (void)in;
    return std::nullopt;
  }
  // False: compute() sets c.out itself (a view of an input).
  virtual bool allocates() const { return true; }
  virtual void compute(Compute& c) const = 0;
  // At least one; pure, so that an operator cannot escape the proof.
  virtual std::vector<Sample> samples() const = 0;

  virtual bool differentiable() const { return true; }
  virtual bool saves_inputs() const { return true; }
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

// What apply() would decide. Sends nothing.
std::shared_ptr<const Decision> decide(const Op&,
                                       std::span<const OpInput> inputs,
                                       const Attrs& = {},
                                       const Assignment* assignment = nullptr);

}  // namespace dtensor
