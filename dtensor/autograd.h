// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation over the graph that operators record.
//
// A cotangent is an ordinary DistTensor: only its global value matters, and its
// consumer redistributes it as needed. Therefore the cotangent of a partial sum
// may be replicated (every part receives the whole cotangent), the cotangent of
// a replicated value may be a partial sum of its consumers' contributions, and
// redistribution passes the global value of a cotangent on unchanged.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/hooks.h"
#include "dtensor/placement/inline_vec.h"
#include "dtensor/rank_context.h"

namespace dtensor {

// The operation that made some tensors, and its gradient.
class Node {
 public:
  // Replaces the cotangent of one output (register_hook() in hooks.h).
  struct Hook {
    int output;
    std::function<DistTensor(const DistTensor&)> replace;
  };
  struct Edge {
    std::shared_ptr<Node> node;  // null if no gradient is wanted
    int output = 0;
  };
  // `leaf`: no operation made the tensor, so the node has no inputs.
  explicit Node(bool leaf = false);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Computes the cotangents of the inputs from those of the outputs.
  // cotangents[i] is undefined if no gradient has reached output i. On entry,
  // gradients[i] is undefined. backward() sets it to the cotangent of input i
  // if needed[i] is true and the operation can be differentiated by that input.
  virtual void backward(std::span<const DistTensor> cotangents,
                        std::span<const bool> needed,
                        std::span<DistTensor> gradients) = 0;
  virtual std::string_view name() const = 0;
  // The type to which an exact cotangent (dtype.h) of an output is reduced and
  // rounded before backward() gets it; kExact: it stays as it is.
  virtual DType type_of(int /*output*/) const { return DType::kF32; }
  // Drops the saved values. A backward() that needs them then throws Error.
  virtual void release() {}
  // Calls fn with the memory of the saved values. Leaves out leaves and tensors
  // that require no gradient: others own their memory, and use it again.
  using EachStorage = std::function<void(Storage&)>;
  virtual void each_saved(const EachStorage&) const {}
  // The sequence of the calling thread's newest node that is not a leaf.
  static uint64_t newest();

 protected:
  InlineMemory<192> memory_;  // for lists of the node; most nodes' lists fit

 public:
  std::pmr::vector<Edge> inputs{&memory_};
  int num_outputs = 1;
  Hooks<Hook> hooks;
  // Numbers this rank's nodes in a topological order: first all leaves, then
  // the other nodes, each in the order of creation. REQUIRES: the nodes of the
  // inputs are leaves, or older than this node.
  uint64_t sequence;
  // Whether saved values go back to the host once backward() has used them
  // (offload_saved()).
  bool offloads = false;

 protected:
  // Calls fn for one saved tensor and its moved copies, as each_saved() does.
  static void each_of(const DistTensor&, const EachStorage& fn);

 private:
  std::shared_ptr<Node> next_;  // links the nodes that ~Node() destroys
};

// Returns the edge to a tensor's node, or an empty edge if the tensor does not
// require a gradient. Makes the node first if the tensor is a leaf without one.
Node::Edge edge_to(const DistTensor&);

// Observes the tensors that a function uses. RankContext::captures points to
// the active observer; null if there is none.
class Captures {
 public:
  virtual ~Captures() = default;
  // Called before a tensor is used, whether the use is recorded or not.
  virtual void used(const DistTensor&) = 0;
};
// Whether a use of this tensor has to be recorded in the graph. Also reports
// the use to RankContext::captures, unless that is null.
bool records(const DistTensor&);

// Moves saved values to the host's memory (Storage::offload()): those of the
// nodes behind `results` that are newer than `after` (Node::newest()), except
// the results themselves.
void offload_saved(std::span<const DistTensor> results, uint64_t after);

struct BackwardOptions {
  bool create_graph = false;    // record the pass itself in the graph
  bool release_graph = false;   // nodes drop their saved values after use
  bool stop_at_inputs = false;  // do not go back beyond the inputs
  // If set, the pass calls this function with the cotangent of input i once the
  // cotangent is known to be complete, at the latest at the end of the pass.
  // backward_pass() then returns an empty list. The function may move from the
  // tensor. It is not called for undefined cotangents. REQUIRES: no input is
  // listed twice.
  std::function<void(size_t i, DistTensor&)> complete = {};
};

// Returns the cotangents of `inputs`, given those of `outputs`; undefined for
// an input that no cotangent reaches. `add` sums two cotangents of one value.
// Collective over the mesh. (All ranks go through the nodes in the same order,
// since the order depends only on the program.) Throws Error if an input does
// not require a gradient.
std::vector<DistTensor> backward_pass(
    std::span<const DistTensor> outputs, std::span<const DistTensor> cotangents,
    std::span<const DistTensor> inputs, const BackwardOptions&,
    const std::function<DistTensor(const DistTensor&, const DistTensor&)>& add);

}  // namespace dtensor
