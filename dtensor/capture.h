// SPDX-License-Identifier: Apache-2.0
// Hooks for code that runs while a graph is captured (graph.h). Values that
// change from replay to replay lie in device memory, and the host writes them
// before each replay.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "dtensor/tensor.h"

namespace dtensor {

// RankContext::capture is the active one. For the rank's main thread only.
class Capture {
 public:
  // Calls fn before every replay, in the order of registration. Work that fn
  // enqueues on the rank's stream runs before the replay. fn must not wait for
  // the device or for other ranks.
  void before_replay(std::function<void()> fn) {
    before_.push_back(std::move(fn));
  }
  // An uninitialised tensor for such a function to write. (Tensor::empty() may
  // return memory that the captured step uses, which a replay overwrites.)
  static Tensor written_before_replay(const Shape&, DType);
  // Calls fn when the capture has ended or failed; no captured work has run
  // then.
  void at_end(std::function<void()> fn) { at_end_.push_back(std::move(fn)); }

 private:
  friend class Graph;
  std::vector<std::function<void()>> before_, at_end_;
};

}  // namespace dtensor
