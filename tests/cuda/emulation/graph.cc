// SPDX-License-Identifier: Apache-2.0
// CUDA's functions for graphs.
#include <algorithm>
#include <utility>

#include "tests/cuda/emulation/api.h"

using namespace emulation;

struct CUgraph_st {
  std::vector<Node> nodes;
  std::shared_ptr<OfGraph> memory;
  bool instantiated = false;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<Node>> nodes;
  std::shared_ptr<OfGraph> memory;
  Point last;  // its last launch; the next one runs after it
  bool launched = false;
};

namespace {

Machine& machine() { return Machine::get(); }

// True if all work of the captured streams comes before the origin's next work.
bool joined(const Capture& c) {
  std::vector<bool> ahead(c.nodes.size());
  std::vector<size_t> todo = c.origin->last;
  while (!todo.empty()) {
    const size_t node = todo.back();
    todo.pop_back();
    if (ahead[node]) continue;
    ahead[node] = true;
    todo.insert(todo.end(), c.nodes[node].behind.begin(),
                c.nodes[node].behind.end());
  }
  return std::ranges::all_of(ahead, std::identity());
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  // Other modes forbid calls of the whole process during the capture.
  if (mode != cudaStreamCaptureModeRelaxed) return say(cudaErrorNotSupported);
  Lock lock(machine().mutex);
  if (const cudaError_t e = failed(s->device)) return say(e);
  if (s->capture) return say(cudaErrorIllegalState);
  s->capture = std::make_shared<Capture>();
  static unsigned long long last_id = 0;
  s->capture->id = ++last_id;
  s->capture->origin = s;
  s->capture->streams = {s};
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  *graph = nullptr;
  Lock lock(machine().mutex);
  const std::shared_ptr<Capture> c = s->capture;
  if (!c) return say(cudaErrorIllegalState);
  if (c->origin != s)
    return say(break_capture(*c, cudaErrorStreamCaptureUnmatched));
  const bool all = joined(*c);
  c->ended = true;
  for (const cudaStream_t of : c->streams) {
    of->capture = nullptr;
    of->last.clear();
  }
  if (c->broken) return say(cudaErrorStreamCaptureInvalidated);
  if (!all) return say(cudaErrorStreamCaptureUnjoined);
  if (const cudaError_t e = failed(s->device)) return say(e);
  *graph = new CUgraph_st{std::move(c->nodes), std::move(c->memory)};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s,
                                  cudaStreamCaptureStatus* status) {
  Lock lock(machine().mutex);
  *status = !s->capture          ? cudaStreamCaptureStatusNone
            : s->capture->broken ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  return say(failed(s->device));
}

// Sets the id only if the capture is active.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s,
                                     cudaStreamCaptureStatus* status,
                                     unsigned long long* id) {
  const cudaError_t e = cudaStreamIsCapturing(s, status);
  Lock lock(machine().mutex);
  if (*status == cudaStreamCaptureStatusActive) *id = s->capture->id;
  return e;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long) {
  // A graph that allocates memory can be instantiated only once.
  if (graph->instantiated && !graph->memory->blocks.empty())
    return say(cudaErrorNotSupported);
  graph->instantiated = true;
  *exec = new CUgraphExec_st{
      std::make_shared<const std::vector<Node>>(graph->nodes),
      graph->memory,
      {},
      false};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  Lock lock(machine().mutex);
  if (const cudaError_t e = failed(s->device)) return say(e);
  if (s->capture) return say(cudaErrorNotSupported);
  // Memory that the last launch has allocated and not freed would be lost.
  if (exec->launched && !exec->memory->kept.empty())
    return say(cudaErrorInvalidValue);
  exec->launched = true;
  const auto replay = std::make_shared<Replay>();
  replay->nodes = exec->nodes;
  for (const Node& node : *exec->nodes)
    replay->meetings.push_back(node.work.meet ? node.work.meet(s) : nullptr);
  replay->done.resize(exec->nodes->size());
  replay->left = exec->nodes->size();
  if (exec->last.stream && exec->last.stream != s)
    machine().append(s, Entry{.device = s->device, .behind = exec->last});
  machine().append(s, Entry{.device = s->device, .replay = replay});
  exec->last = machine().now(s);
  return cudaSuccess;
}
