// SPDX-License-Identifier: Apache-2.0
// Hooks for code that runs while a graph is captured (graph.h). Values of the
// host that change from replay to replay, such as a learning rate, have to lie
// in device memory, and the host has to write them before each replay.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "dtensor/tensor.h"

namespace dtensor {

// The hooks of one graph. While the graph is captured, RankContext::capture
// points to them. Only the rank's main thread may use them.
class Capture {
 public:
  // Calls fn before every replay, in the order of registration. Work that fn
  // enqueues on the rank's stream runs before the replay. fn must not wait for
  // the device or for other ranks.
  void before_replay(std::function<void()> fn) {
    before_.push_back(std::move(fn));
  }
  // Returns an uninitialised tensor that the functions of before_replay() may
  // write to. (Tensor::empty() may return memory that earlier work of the
  // captured step has used and freed. A replay would overwrite the values.)
  static Tensor written_before_replay(const Shape&, DType);
  // Calls fn when the capture has ended or failed. By then, none of the
  // captured work has run.
  void at_end(std::function<void()> fn) { at_end_.push_back(std::move(fn)); }

 private:
  friend class Graph;
  std::vector<std::function<void()>> before_, at_end_;
};

}  // namespace dtensor
