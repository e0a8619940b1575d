// Reverse-mode differentiation over the graph that operators record.
//
// A cotangent is a DistTensor like any other: its global value is what counts,
// and whoever consumes it redistributes it as it needs. Hence the table in the
// design: the cotangent of a partial sum is replicated (every part receives
// the whole), that of a replicated value may be a partial sum of what its
// consumers contribute, and redistribution itself has the identity as its
// gradient.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/rank_context.h"

namespace dtensor {

class Attrs;
class Op;
struct Decision;

// What made some tensors, and how cotangents go back through it.
class Node {
 public:
  struct Edge {
    std::shared_ptr<Node> node;  // null: no gradient wanted
    int output = 0;
  };
  Node();
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // The cotangents of the inputs (undefined where `needed` is false or there is
  // none) from those of the outputs (undefined where none arrived).
  virtual std::vector<DistTensor> backward(
      std::span<const DistTensor> cotangents, std::span<const bool> needed) = 0;
  virtual std::string_view name() const = 0;
  // Lets go of what it saved; backward() is not called again.
  virtual void release() {}

  std::vector<Edge> inputs;
  int num_outputs = 1;
  // Grows with every node that this rank makes: a topological order.
  uint64_t sequence;

 private:
  std::shared_ptr<Node> next_;  // of those that end
};

// The edge to a tensor: its node, or a leaf's own when its gradient is wanted.
Node::Edge edge_to(const DistTensor&);

// No operator inside this scope is recorded, nor known to
// RankContext::captures.
class NoGrad {
 public:
  NoGrad() : NoGrad(RankContext::current()) {}

 private:
  explicit NoGrad(RankContext& c)
      : grad_(c.grad_enabled, false), captures_(c.captures, nullptr) {}
  Scoped<bool> grad_;
  Scoped<Captures*> captures_;
};
bool grad_enabled();

// What happens inside of a function that will be run again to record it, or
// is being run again (ops/recompute.h).
class Captures {
 public:
  virtual ~Captures() = default;
  // The tensor is about to be used, recorded or not.
  virtual void used(const DistTensor&) = 0;
  // Are the outputs of the call that comes next there already, if it is one of
  // this operator?
  virtual bool has(const Op&) = 0;
  // This rank's parts of them, as far as they have to be kept. Throws Error
  // when it was another call.
  virtual std::vector<Tensor> take(const Op&, const Attrs&,
                                   const Decision&) = 0;
  // A call has its outputs.
  virtual void ran(const Op&, const Attrs&, const Decision&,
                   std::span<const DistTensor> outputs) = 0;
};
// Is a use of this tensor to be recorded? RankContext::captures is told of it.
bool records(const DistTensor&);

struct BackwardOptions {
  bool create_graph = false;    // the pass itself is recorded
  bool release_graph = false;   // nodes let go of what they saved, once used
  bool stop_at_inputs = false;  // what the inputs were made of has no part
  // Told of the cotangent of input i when it is complete, while the pass goes
  // on; may take or replace it. Not for an input that is listed twice.
  std::function<void(size_t i, DistTensor&)> complete = {};
};

// The engine: cotangents of `inputs` given those of `outputs`. Undefined for
// an input that no output depends on. `add` sums two cotangents of one value.
// Every rank of the mesh calls it; the order of the work depends on the program
// alone.
std::vector<DistTensor> backward_pass(
    std::span<const DistTensor> outputs, std::span<const DistTensor> cotangents,
    std::span<const DistTensor> inputs, const BackwardOptions&,
    const std::function<DistTensor(const DistTensor&, const DistTensor&)>& add);

}  // namespace dtensor
