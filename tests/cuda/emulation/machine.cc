// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/machine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

namespace emulation {
namespace {

// If the host asks for nothing, GPUs continue after this time.
constexpr std::chrono::milliseconds kWhile{5};

int64_t number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoll(text) : otherwise;
}

// True if GPU a does not reach the memory of GPU b.
bool apart(int a, int b) {
  static const std::string pairs = [] {
    const char* text = std::getenv("CUDA_EMULATION_APART");
    return std::string(text ? text : "");
  }();
  const char pair[] = {static_cast<char>('0' + a), static_cast<char>('0' + b),
                       0};
  return pairs.find(pair) != std::string::npos;
}

// The number of the piece of work at which a GPU fails, from 1; 0 if it does
// not.
int64_t fails_at(int device) {
  static const auto [who, when] = [] {
    std::pair<int, int64_t> said{-1, 0};
    if (const char* text = std::getenv("CUDA_EMULATION_FAILS"))
      if (const char* colon = std::strchr(text, ':'))
        said = {std::atoi(text), std::atoll(colon + 1)};
    return said;
  }();
  return device == who ? when : 0;
}

// Prints the memory that the program has not freed when it ends.
void tell_leaks() {
  Machine& machine = Machine::get();
  for (int d = 0; d < std::ssize(machine.devices); ++d) {
    const Memory::Sizes sizes = machine.memory().sizes(d);
    if (const size_t left = sizes.used)
      std::fprintf(stderr,
                   "[cuda emulation] cuda:%d has %zu bytes that nobody freed\n",
                   d, left);
  }
}

}  // namespace

OfGraph::~OfGraph() {
  for (void* p : blocks) Machine::get().memory().free_of_graph(p);
}

bool Point::passed() const { return !stream || stream->done >= until; }

Machine& Machine::get() {
  static auto* const machine = [] {
    std::atexit(tell_leaks);
    return new Machine;
  }();
  return *machine;
}

Machine::Machine() {
  const auto n = number("CUDA_EMULATION_DEVICES", 2);
  devices.resize(static_cast<size_t>(n));
  memory_ = std::make_unique<Memory>(
      static_cast<int>(n),
      static_cast<size_t>(number("CUDA_EMULATION_MEMORY", int64_t{2} << 30)),
      [](int a, int b) { return !apart(a, b); });
}

void Machine::append(cudaStream_t s, Entry entry) {
  s->entries.push_back(std::move(entry));
  ++s->given;
  poke();
  if (!started_) {
    started_ = true;
    std::thread([this] { live(); }).detach();
  }
}

cudaError_t Machine::give(cudaStream_t s, Work work) {
  if (!s->capture) {
    const auto meeting = work.meet ? work.meet(s) : nullptr;
    append(s, {work.device, std::move(work.run), meeting});
    return cudaSuccess;
  }
  Capture& c = *s->capture;
  if (c.broken) return cudaErrorStreamCaptureInvalidated;
  c.nodes.push_back({std::move(work), std::move(s->last)});
  s->last = {c.nodes.size() - 1};
  return cudaSuccess;
}

void Machine::wait(Lock& lock, const std::vector<Point>& points) {
  const auto over = [&](const Point& p) {
    return p.passed() || of(p.stream).failed != cudaSuccess;
  };
  const auto all_over = [&] { return std::ranges::all_of(points, over); };
  if (all_over()) return;
  asked_.insert(asked_.end(), points.begin(), points.end());
  poke();
  passed_.wait(lock, all_over);
  for (const Point& p : points)
    asked_.erase(std::ranges::find_if(asked_, [&](const Point& a) {
      return a.stream == p.stream && a.until == p.until;
    }));
}

bool Machine::carry_out(int device, const std::function<void()>& fn) {
  Device& d = devices[static_cast<size_t>(device)];
  if (++d.works != fails_at(device)) {
    if (memory_->guarded(device, fn)) return true;
    Block::here().drop();
  }
  std::lock_guard lock(mutex);
  d.failed = cudaErrorIllegalAddress;
  return false;
}

// The machine's thread. While the host waits for something, it does only the
// work that this takes.
void Machine::live() {
  bool idle = false;
  for (Lock lock(mutex);;) {
    if (changed_) idle = changed_ = false;
    const bool did = serve_one(lock) || (idle && serve_any(lock));
    tell();
    if (!over_.empty()) {
      std::vector<Entry> over = std::move(over_);
      over_.clear();
      lock.unlock();
      over.clear();
      lock.lock();
    }
    if (did) continue;
    memory_->close();
    const auto changed = [&] { return changed_; };
    if (idle)
      given_.wait(lock, changed);
    else
      idle = !given_.wait_for(lock, kWhile, changed);
  }
}

// Closes the memory before it wakes the host, which may look at what it must
// not.
void Machine::tell() {
  for (const Point& p : asked_)
    if (p.passed() || of(p.stream).failed != cudaSuccess) {
      memory_->close();
      return passed_.notify_all();
    }
}

bool Machine::serve_one(Lock& lock) {
  ++turn_;
  for (size_t i = 0; i < asked_.size(); ++i) {
    const Point p = asked_[(turn_ + i) % asked_.size()];
    tried_.clear();
    if (!p.passed() && advance(lock, p.stream)) return true;
  }
  return false;
}

bool Machine::serve_any(Lock& lock) {
  for (Device& d : devices)
    for (auto s = d.streams.rbegin(); s != d.streams.rend(); ++s) {
      tried_.clear();
      if (advance(lock, s->get())) return true;
    }
  return false;
}

// Does a piece of the stream's next work, or of a stream's that it waits for.
bool Machine::advance(Lock& lock, cudaStream_t s) {
  if (s->entries.empty() || std::ranges::count(tried_, s)) return false;
  tried_.push_back(s);
  Entry& e = s->entries.front();
  if (e.behind.stream && !e.behind.passed())
    return advance(lock, e.behind.stream);
  if (e.replay && e.replay->left > 0) return advance(lock, *e.replay);
  switch (perform(lock, e.device, e.run, e.meeting.get())) {
    case Did::kIt:
      finish(s);
      return true;
    case Did::kSomethingElse:
      return true;
    case Did::kNothing:
      break;
  }
  return false;
}

// Does the last of those nodes that may run.
bool Machine::advance(Lock& lock, Replay& r) {
  for (size_t i = r.nodes->size(); i-- > 0;) {
    const Node& node = (*r.nodes)[i];
    if (r.done[i] ||
        !std::ranges::all_of(node.behind, [&](size_t b) { return r.done[b]; }))
      continue;
    switch (
        perform(lock, node.work.device, node.work.run, r.meetings[i].get())) {
      case Did::kIt:
        r.done[i] = true;
        --r.left;
        return true;
      case Did::kSomethingElse:
        return true;
      case Did::kNothing:
        break;
    }
  }
  return false;
}

// A device that has failed drops its work.
Machine::Did Machine::perform(Lock& lock, int device,
                              const std::function<void()>& run,
                              Meeting* meeting) {
  if (devices[static_cast<size_t>(device)].failed != cudaSuccess)
    return Did::kIt;
  if (meeting && !meeting->over) {
    if (!meeting->come()) {
      for (const cudaStream_t other : meeting->behind())
        if (advance(lock, other)) return Did::kSomethingElse;
      return Did::kNothing;
    }
    lock.unlock();
    meeting->run();
    lock.lock();
    meeting->end();
  } else if (run) {
    lock.unlock();
    carry_out(device, run);
    lock.lock();
  }
  return Did::kIt;
}

void Machine::finish(cudaStream_t s) {
  over_.push_back(std::move(s->entries.front()));
  s->entries.pop_front();
  ++s->done;
}

}  // namespace emulation
