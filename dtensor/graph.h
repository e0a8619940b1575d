// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: captures a part of a program, such as a training step, and
// replays it any number of times by one call.
//
//   for (int i = 0; i < 2; ++i) step();  // warm-up: does the one-time work
//   Graph graph(step);                   // captures; runs nothing
//   for (;;) {
//     assign(inputs, ...);               // write what the step reads
//     optimizer.set_replay_lr(...);
//     graph.replay();
//     loss.item();                       // the step's result
//   }
//
// A replay computes what step() would compute now: with the current values of
// the tensors, the next streams of the run's own generator (create.h), and the
// next step of an optimizer. State of the host stays as it was at the capture:
// shapes, numbers passed by value (a generator's seed and stream, a clip), and
// branches.
//
// A replay uses the memory of the capture. Tensors from before the capture that
// step() uses must outlive the graph, and new inputs have to be copied into
// them. Tensors that step() made and that are still held get their first values
// at the first replay, and new values at each further replay.
#pragma once
#include <functional>
#include <memory>

namespace dtensor {

class Graph {
 public:
  // Calls step() and captures the work that it enqueues, without running it.
  // Collective over all ranks of the run. step() must not read device memory
  // (item(), printing), write to it from the host, or begin asynchronous work
  // that it does not wait for. With NCCL, it must not be the first to call a
  // collective on a group of ranks. Throws Error if step() does one of these,
  // or if the device has no graphs. After an Error in step(), the run should
  // end, since the ranks' streams cannot be used any more.
  //
  // Without NCCL, ranks that are threads of one process capture one graph
  // together. With NCCL, each rank has a graph of its own, since the ranks'
  // kernels wait for each other, and each thread has to launch those of its
  // rank.
  explicit Graph(const std::function<void()>& step);
  // Waits for the replays. The rank that made the graph has to destroy it
  // before the run ends.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Enqueues the captured work behind the earlier work of the ranks' streams,
  // and returns before the work is done. Collective over all ranks of the run.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtensor
