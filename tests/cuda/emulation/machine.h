// SPDX-License-Identifier: Apache-2.0
// What the emulated GPUs have to do, and who does it: one thread for all of
// them, a piece of work at a time.
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

// Work that runs when others of its kind have come to theirs.
class Meeting {
 public:
  virtual ~Meeting() = default;
  // Its stream is at it. True when it can run; then, of those that meet, one
  // run()s and end()s it, and all are over.
  virtual bool come() = 0;
  // Who has not come, has yet to do this.
  virtual std::vector<cudaStream_t> behind() = 0;
  virtual void run() = 0;  // the only one without the machine's mutex
  virtual void end() = 0;
  bool over = false;
};

struct Work {
  int device = 0;
  // One of the two. The second makes what meets, for this stream.
  std::function<void()> run;
  std::function<std::shared_ptr<Meeting>(cudaStream_t)> meet;
};

// Of a graph: behind others of these numbers.
struct Node {
  Work work;
  std::vector<size_t> behind;
};

// Memory that a graph allocates.
struct OfGraph {
  ~OfGraph();
  std::vector<void*> blocks;
  std::set<void*> kept;  // those that it does not free itself
};

struct Capture {
  cudaStream_t origin = nullptr;
  bool broken = false, ended = false;
  unsigned long long id = 0;
  int in_memory_calls = 0;  // threads that allocate or free its memory now
  std::vector<Node> nodes;
  std::vector<cudaStream_t> streams;
  std::shared_ptr<OfGraph> memory = std::make_shared<OfGraph>();
};

// Where a stream is when it has done so much.
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

// What a stream was given: one of these.
struct Entry {
  int device = 0;
  std::function<void()> run = {};
  std::shared_ptr<Meeting> meeting = {};
  Point behind = {};  // waits, and is nothing else
  std::shared_ptr<Replay> replay = {};
};

}  // namespace emulation

struct CUstream_st {
  int device;
  std::deque<emulation::Entry> entries;
  int64_t given = 0, done = 0;
  // While it is captured: what it is given next comes behind these.
  std::shared_ptr<emulation::Capture> capture;
  std::vector<size_t> last;
};

struct CUevent_st {
  int device;
  // What was recorded last, if anything: in a stream, or in a capture.
  emulation::Point at;
  std::shared_ptr<emulation::Capture> capture;
  std::vector<size_t> last;
};

namespace emulation {

class Machine {
 public:
  // For ever.
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
  // As a node where the stream is captured.
  cudaError_t give(cudaStream_t, Work);
  cudaError_t give(cudaStream_t s, int device, std::function<void()> run) {
    return give(s, Work{device, std::move(run), {}});
  }
  // Something has changed that work may have waited for.
  void poke() {
    changed_ = true;
    given_.notify_one();
  }
  Point now(cudaStream_t s) const { return {s, s->given}; }
  // By a thread of the host. Returns also when the device has failed.
  void wait(std::unique_lock<std::mutex>&, const std::vector<Point>&);
  // By what the machine's thread runs: fn, with what this one may touch. False
  // when it touched something else: then the device has failed.
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
  std::vector<cudaStream_t> tried_;  // on the way to what is asked for
  std::vector<Entry> over_;          // to be destroyed without the mutex
};

}  // namespace emulation
