// Portable kernels on the host: they run in the calling thread, immediately.
#pragma once
#include <barrier>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "dtensor/device/device.h"

namespace dtensor::portable {
inline namespace on_host {

// While it lives, each row of the calling thread is served by this many
// threads, as on a GPU, and each() and map() run from the last index to the
// first. For tests, which then detect a body that depends on its order (and the
// thread sanitizer names it). Slow.
class Lanes {
 public:
  explicit Lanes(int lanes) : old_(count()) { count() = lanes; }
  ~Lanes() { count() = old_; }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  static int& count() {
    static thread_local int lanes = 1;
    return lanes;
  }

 private:
  const int old_;
};

// See executor.h.
class Row {
 public:
  // The state that the lanes of a row share.
  struct Shared {
    explicit Shared(int lanes, int64_t fast_bytes)
        : barrier(lanes),
          results(static_cast<size_t>(lanes)),
          fast(static_cast<size_t>(fast_bytes + 15) / 16) {}
    struct alignas(16) Block {
      char bytes[16];
    };
    std::barrier<> barrier;
    std::vector<const void*> results;  // by lane, in reduce()
    std::vector<Block> fast;
  };
  Row(int lane, int lanes, Shared& shared)
      : lane_(lane), lanes_(lanes), shared_(shared) {}

  // f(j, in[j]...) for all j in [0, n).
  template <class F, class... In>
  void each(int64_t n, F f, const In*... in) {
    for (int64_t j = lane_; j < n; j += lanes_) f(j, in[j]...);
    sync();
  }
  // out[j] = f(j, in[j]...). out may be one of the inputs.
  template <class Out, class F, class... In>
  void map(int64_t n, Out* out, F f, const In*... in) {
    for (int64_t j = lane_; j < n; j += lanes_)
      out[j] = static_cast<Out>(f(j, in[j]...));
    sync();
  }
  // Combines f(j, in[j]...) for all j, starting with `zero`, the identity of
  // op. Every lane gets the same result.
  template <class A, class Op, class F, class... In>
  A reduce(int64_t n, A zero, Op op, F f, const In*... in) {
    A mine = zero;
    for (int64_t j = lane_; j < n; j += lanes_) mine = op(mine, f(j, in[j]...));
    if (lanes_ == 1) return mine;
    shared_.results[static_cast<size_t>(lane_)] = &mine;
    sync();
    A all = zero;
    for (const void* r : shared_.results)
      all = op(all, *static_cast<const A*>(r));
    sync();
    return all;
  }
  // The row's fast memory, of the size passed to rows(), 16-byte aligned. It
  // contains whatever the previous row left there.
  template <class T>
  T* fast() {
    return reinterpret_cast<T*>(shared_.fast.data());
  }

 private:
  void sync() {
    if (lanes_ > 1) shared_.barrier.arrive_and_wait();
  }

  const int lane_, lanes_;
  Shared& shared_;
};

// body(i) for all i in [0, n), in any order.
template <class Body>
void each(Stream, int64_t n, Body body) {
  if (Lanes::count() == 1)
    for (int64_t i = 0; i < n; ++i) body(i);
  else
    for (int64_t i = n; i-- > 0;) body(i);
}

// out[i] = f(i, in[i]...) for all i in [0, n). out may be one of the inputs.
template <class Out, class F, class... In>
void map(Stream s, int64_t n, Out* out, F f, const In*... in) {
  each(s, n, [=](int64_t i) { out[i] = static_cast<Out>(f(i, in[i]...)); });
}

// body(row, r) for all r in [0, count). Rows have about n elements; n only
// determines how many lanes serve a row.
template <class Body>
void rows(Stream, int64_t count, int64_t /*n*/, Body body,
          int64_t fast_bytes = 0) {
  const int lanes = Lanes::count();
  Row::Shared shared(lanes, fast_bytes);
  const auto serve = [&](int lane) {
    Row row(lane, lanes, shared);
    for (int64_t r = 0; r < count; ++r) body(row, r);
  };
  std::vector<std::thread> others;
  for (int lane = 1; lane < lanes; ++lane) others.emplace_back(serve, lane);
  serve(0);
  for (std::thread& t : others) t.join();
}

// As rows(), for rows that are short for every input and do much work per
// element: on a GPU, a lane then has more registers.
template <class Body>
void short_rows(Stream s, int64_t count, Body body, int64_t fast_bytes = 0) {
  rows(s, count, 1, body, fast_bytes);
}

// Memory of the device for the length of a function; work enqueued until then
// may use it.
class Scratch {
 public:
  Scratch(Stream, int64_t bytes)
      : bytes_(static_cast<size_t>(bytes + 15) / 16) {}
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes_.data());
  }

 private:
  std::vector<Row::Shared::Block> bytes_;
};

}  // namespace on_host
}  // namespace dtensor::portable
