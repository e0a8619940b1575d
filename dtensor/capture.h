// What code that runs while a graph is made (graph.h) leaves for its replays:
// what changes from one to the next lies in memory of the device, and the host
// writes it ahead of each.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "dtensor/tensor.h"

namespace dtensor {

// The one that is being made is RankContext::capture. By the rank's thread.
class Capture {
 public:
  // fn is called ahead of every replay, in the order in which they were given.
  // What it gives to the rank's stream runs before the replay. It may wait for
  // nothing.
  void before_replay(std::function<void()> fn) {
    before_.push_back(std::move(fn));
  }
  // A tensor for such a function to write, uninitialised. (A Tensor::empty()
  // may have memory that the step has used before: a replay writes to it.)
  static Tensor written_before_replay(const Shape&, DType);
  // fn is called when the graph is made, or given up: nothing of it has run.
  void at_end(std::function<void()> fn) { at_end_.push_back(std::move(fn)); }

 private:
  friend class Graph;
  std::vector<std::function<void()>> before_, at_end_;
};

}  // namespace dtensor
