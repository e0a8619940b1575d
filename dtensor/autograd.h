// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation over the graph that operators record.
//
// A cotangent is an ordinary DistTensor: only its global value matters, and its
// consumer redistributes it as needed. Therefore the cotangent of a partial sum
// is replicated (every part receives the whole cotangent), the cotangent of a
// replicated value may be a partial sum of its consumers' contributions, and
// the gradient of redistribution is the identity.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/placement/inline_vec.h"
#include "dtensor/rank_context.h"

namespace dtensor {

// The operation that made some tensors, and its gradient.
class Node {
 public:
  struct Edge {
    std::shared_ptr<Node> node;  // null if no gradient is wanted
    int output = 0;
  };
  // `leaf`: nothing made its tensor; it has no inputs.
  explicit Node(bool leaf = false);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Computes the cotangents of the inputs from those of the outputs. An
  // output's cotangent is undefined if none arrived. `gradients` has one
  // undefined tensor for each input; it stays undefined if `needed` is false or
  // the input has no gradient.
  virtual void backward(std::span<const DistTensor> cotangents,
                        std::span<const bool> needed,
                        std::span<DistTensor> gradients) = 0;
  virtual std::string_view name() const = 0;
  // Drops the saved values; backward() is not called again.
  virtual void release() {}

 protected:
  InlineMemory<192> memory_;  // for the lists of most nodes

 public:
  std::pmr::vector<Edge> inputs{&memory_};
  int num_outputs = 1;
  // Numbers this rank's nodes in a topological order: leaves, and then the
  // others, in the order of creation. REQUIRES: the nodes of the inputs are
  // older, or leaves.
  uint64_t sequence;

 private:
  std::shared_ptr<Node> next_;  // in the destructor's list of nodes
};

// The edge to a tensor. Makes the node of a leaf; empty if the tensor does not
// require a gradient.
Node::Edge edge_to(const DistTensor&);

// Observes the tensors that a function uses. RankContext::captures is the
// active one.
class Captures {
 public:
  virtual ~Captures() = default;
  // Called before a tensor is used, whether that is recorded or not.
  virtual void used(const DistTensor&) = 0;
};
// Whether a use of this tensor has to be recorded. Reports the use to
// RankContext::captures.
bool records(const DistTensor&);

struct BackwardOptions {
  bool create_graph = false;    // record the pass itself
  bool release_graph = false;   // nodes drop their saved values after use
  bool stop_at_inputs = false;  // do not go back beyond the inputs
  // Called with the cotangent of input i as soon as it is complete, while the
  // pass goes on, and not for undefined ones; takes it. Then the pass returns
  // no list. Not for inputs that are listed twice.
  std::function<void(size_t i, DistTensor&)> complete = {};
};

// Returns the cotangents of `inputs`, given those of `outputs`; undefined for
// an input that no output depends on. `add` sums two cotangents of one value.
// Collective over the mesh: the order of the work depends only on the program.
// Throws Error if an input does not require a gradient.
std::vector<DistTensor> backward_pass(
    std::span<const DistTensor> outputs, std::span<const DistTensor> cotangents,
    std::span<const DistTensor> inputs, const BackwardOptions&,
    const std::function<DistTensor(const DistTensor&, const DistTensor&)>& add);

}  // namespace dtensor
