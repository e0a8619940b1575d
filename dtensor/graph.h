// A part of a program, a training step say, that is given to the devices once
// and then run by one call as often as one likes: a CUDA graph.
//
//   for (int i = 0; i < 2; ++i) step();  // what is made once is there
//   Graph graph(step);                   // runs nothing
//   for (;;) {
//     assign(inputs, ...);               // write what the step reads
//     optimizer.set_replay_lr(...);
//     graph.replay();
//     loss.item();                       // what the step wrote
//   }
//
// A replay computes what step() would have: with the numbers that are in the
// tensors then, the next streams of the run's own generator (random.h), the
// next step of an optimizer. What the host alone knows stays as it was: shapes,
// numbers given by value (a generator's seed and stream, a clip), branches.
//
// The tensors that step() reads and wrote stay where they are as long as the
// graph lives: what it uses from before must live as long, and what is to be
// written is copied into. What it made, and somebody holds, has its values
// after the first replay, and others after each further one.
#pragma once
#include <functional>
#include <memory>

namespace dtensor {

class Graph {
 public:
  // Calls step(), while nothing runs that is given to the device. Collective
  // over all ranks of the run. Step may not read what is on the device
  // (item(), printing), write to it from the host, or begin what it does not
  // wait for; through NCCL, it calls no collective among ranks that have called
  // none before. Throws Error when it does, and when the device has no graphs;
  // the streams are of no further use then, and the run should end.
  //
  // Ranks that are threads of one process make one graph together; through
  // NCCL, each its own, since the threads have to launch what waits for each
  // other's work.
  explicit Graph(const std::function<void()>& step);
  // By the rank that made it, before its run ends. Waits for the replays.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Gives it all to the device, behind what the ranks' streams were given, and
  // waits for nothing. Collective.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtensor
