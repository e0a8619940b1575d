// SPDX-License-Identifier: Apache-2.0
// The work of the emulated GPUs, and the one thread that does it for all of
// them, a piece at a time.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/cuda/emulation/cuda_runtime.h"
#include "tests/cuda/emulation/memory.h"

namespace emulation {

// Work that runs when the streams that take part have all come to it.
class Meeting {
 public:
  virtual ~Meeting() = default;
  // Called when the stream has come to it. True if it can run. Then run() and
  // end() are called once, on one of the Meetings, for all that meet.
  virtual bool come() = 0;
  // The streams of members that have not come, which must advance first.
  virtual std::vector<cudaStream_t> behind() = 0;
  virtual void run() = 0;  // called without the machine's mutex
  virtual void end() = 0;
  bool over = false;
};

struct Work {
  int device = 0;
  // One of the two is set. `meet` makes the Meeting for a stream.
  std::function<void()> run;
  std::function<std::shared_ptr<Meeting>(cudaStream_t)> meet;
};

// Work of a graph, which runs after the nodes with these numbers.
struct Node {
  Work work;
  std::vector<size_t> behind;
};

// Memory that a graph allocates.
struct OfGraph {
  ~OfGraph();
  std::vector<void*> blocks;
  std::set<void*> kept;  // blocks that it does not free itself
};

struct Capture {
  cudaStream_t origin = nullptr;
  bool broken = false, ended = false;
  unsigned long long id = 0;
  int in_memory_calls = 0;  // threads that now allocate or free in it
  std::vector<Node> nodes;
  std::vector<cudaStream_t> streams;
  std::shared_ptr<OfGraph> memory = std::make_shared<OfGraph>();
};

// The state of a stream that has done this many entries.
struct Point {
  cudaStream_t stream = nullptr;
  int64_t until = 0;
  bool passed() const;
};

// A launch of a graph.
struct Replay {
  std::shared_ptr<const std::vector<Node>> nodes;
  std::vector<std::shared_ptr<Meeting>> meetings;
  std::vector<bool> done;
  size_t left = 0;
};

// Something that a stream was given to do. Exactly one member after `device` is
// set.
struct Entry {
  int device = 0;
  std::function<void()> run = {};
  std::shared_ptr<Meeting> meeting = {};
  Point behind = {};  // the stream only waits for this point
  std::shared_ptr<Replay> replay = {};
};

}  // namespace emulation

struct CUstream_st {
  int device;
  std::deque<emulation::Entry> entries;
  int64_t given = 0, done = 0;
  // While the stream is captured: its next work runs after the nodes `last`.
  std::shared_ptr<emulation::Capture> capture;
  std::vector<size_t> last;
};

struct CUevent_st {
  int device;
  // The last record, if there was one: in a stream, or in a capture.
  emulation::Point at;
  std::shared_ptr<emulation::Capture> capture;
  std::vector<size_t> last;
};

namespace emulation {

class Machine {
 public:
  // Never destroyed.
  static Machine& get();

  struct Device {
    cudaError_t failed = cudaSuccess;  // for good
    int64_t works = 0;                 // that it has begun
    std::vector<std::unique_ptr<CUstream_st>> streams;
  };
  std::mutex mutex;  // of all that follows, but for the memory
  std::vector<Device> devices;
  Memory& memory() { return *memory_; }
  Device& of(cudaStream_t s) { return devices[static_cast<size_t>(s->device)]; }

  void append(cudaStream_t, Entry);
  // If the stream is captured, adds a node to the capture.
  cudaError_t give(cudaStream_t, Work);
  cudaError_t give(cudaStream_t s, int device, std::function<void()> run) {
    return give(s, Work{device, std::move(run), {}});
  }
  // Says that something has changed for which work may have waited.
  void poke() {
    changed_ = true;
    given_.notify_one();
  }
  Point now(cudaStream_t s) const { return {s, s->given}; }
  // Waits until each point has passed, or its device has failed. Called by a
  // thread of the host.
  void wait(std::unique_lock<std::mutex>&, const std::vector<Point>&);
  // Called by what the machine's thread runs. Runs fn with access to the memory
  // that the device may touch. False if fn touched other memory: then the
  // device has failed.
  bool carry_out(int device, const std::function<void()>& fn);

 private:
  enum class Did { kIt, kSomethingElse, kNothing };
  using Lock = std::unique_lock<std::mutex>;

  Machine();
  void live();
  bool serve_one(Lock&);
  bool serve_any(Lock&);
  bool advance(Lock&, cudaStream_t);
  bool advance(Lock&, Replay&);
  Did perform(Lock&, int device, const std::function<void()>& run,
              Meeting* meeting);
  void finish(cudaStream_t);
  void tell();

  std::unique_ptr<Memory> memory_;
  std::condition_variable given_, passed_;
  std::vector<Point> asked_;  // what the host waits for
  size_t turn_ = 0;
  bool started_ = false, changed_ = false;
  std::vector<cudaStream_t> tried_;  // by advance(), each once
  std::vector<Entry> over_;          // to be destroyed without the mutex
};

}  // namespace emulation
