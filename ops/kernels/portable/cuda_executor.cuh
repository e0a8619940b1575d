// SPDX-License-Identifier: Apache-2.0
// Portable kernels on CUDA. For nvcc, and for tests with an emulation of the
// parts of CUDA's runtime that are used here (tests/cuda/emulation).
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "dtensor/device/device.h"
#include "dtensor/device/values.h"
#include "dtensor/ops/cuda_plugin/launch.cuh"
#include "dtensor/ops/kernels/portable/pack.h"

#ifndef DT_DYNAMIC_SHARED
// The block's dynamic shared memory.
#define DT_DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]
#endif

namespace dtensor::portable {
inline namespace on_cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// out[j] = f(j, in[j]...) for the elements j of lane `lane` out of `lanes`.
template <class Out, class F, class... In>
__device__ inline void map_lane(int64_t lane, int64_t lanes, int64_t n,
                                Out* out, F& f, const In*... in) {
  constexpr int W = kPack<Out, In...>;
  int64_t done = 0;
  if constexpr (W > 1) {
    if ((aligned(out, W) && ... && aligned(in, W))) {
      done = n / W * W;
      for (int64_t j = lane * W; j < done; j += lanes * W) {
        Pack<Out, W> result;
        [&](const Pack<In, W>&... pack) {
#pragma unroll
          for (int w = 0; w < W; ++w)
            result.v[w] = static_cast<Out>(f(j + w, pack.v[w]...));
        }(load<W>(in + j)...);
        store(out + j, result);
      }
    }
  }
  for (int64_t j = done + lane; j < n; j += lanes)
    out[j] = static_cast<Out>(f(j, in[j]...));
}

// Loads or stores W elements of an array, from `first` on. Skips those from
// first + left on, which do not exist, and null arrays.
template <int W, class T>
__device__ inline void load_some(const T* from, int64_t first, int64_t left,
                                 Pack<T, W>& to) {
  if (!from) return;
  from += first;
  if (left >= W && aligned(from, W)) {
    to = load<W>(from);
    return;
  }
#pragma unroll
  for (int w = 0; w < W; ++w)
    if (w < left) to.v[w] = from[w];
}
template <int W, class T>
__device__ inline void store_some(T* to, int64_t first, int64_t left,
                                  const Pack<T, W>& from) {
  if (!to) return;
  to += first;
  if (left >= W && aligned(to, W)) {
    store(to, from);
    return;
  }
#pragma unroll
  for (int w = 0; w < W; ++w)
    if (w < left) to[w] = from.v[w];
}
template <int W, class T>
__device__ inline void store_some(const T*, int64_t, int64_t,
                                  const Pack<T, W>&) {}

// As load(), but one element after the other: p need not be aligned.
template <int W, class T>
__device__ inline Pack<T, W> load_each(const T* p) {
  Pack<T, W> pack;
#pragma unroll
  for (int w = 0; w < W; ++w) pack.v[w] = p[w];
  return pack;
}

// Calls f(j, pack...) for each pack of elements of lane `lane` out of `lanes`;
// the pack begins at j. Packs at the end of a row have one element. A lane gets
// the same packs in the same order for every alignment; otherwise the bits of a
// sum would depend on the alignment.
template <class F, class... In>
__device__ inline void each_pack(int64_t lane, int64_t lanes, int64_t n, F& f,
                                 const In*... in) {
  constexpr int W = kPack<In...>;
  const int64_t step = lanes * W, done = n / W * W;
  int64_t j = lane * W;
  if ((aligned(in, W) && ...)) {
    // The loads of two rounds are issued together, because few blocks of long
    // rows share a multiprocessor. Not for doubles, whose functions take all
    // registers.
    for (; W > 2 && j + step < done; j += 2 * step)
      [&](const Pack<In, W>&... first) {
        [&](const Pack<In, W>&... second) {
          f(j, first...);
          f(j + step, second...);
        }(load<W>(in + j + step)...);
      }(load<W>(in + j)...);
    for (; j < done; j += step) f(j, load<W>(in + j)...);
  } else {
    for (; j < done; j += step) f(j, load_each<W>(in + j)...);
  }
  for (j = done + lane; j < n; j += lanes) f(j, load_each<1>(in + j)...);
}

// Calls f(j, in[j]...) for each element of a lane, in the order of each_pack().
template <class F, class... In>
__device__ inline void each_lane(int64_t lane, int64_t lanes, int64_t n, F& f,
                                 const In*... in) {
  if constexpr (sizeof...(In) > 0) {
    const auto take = [&]<int W>(int64_t j, const Pack<In, W>&... pack) {
#pragma unroll
      for (int w = 0; w < W; ++w) f(j + w, pack.v[w]...);
    };
    each_pack(lane, lanes, n, take, in...);
  } else {
    for (int64_t j = lane; j < n; j += lanes) f(j);
  }
}

// Returns the `a` of lane (this lane ^ distance) of the warp, for any type.
template <class A>
__device__ inline A of_lane(const A& a, int distance) {
  static_assert(sizeof(A) % sizeof(unsigned) == 0);
  constexpr int kWords = sizeof(A) / sizeof(unsigned);
  unsigned words[kWords];
  memcpy(words, &a, sizeof(A));
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    words[i] = __shfl_xor_sync(kAllLanes, words[i], distance);
  A other;
  memcpy(&other, words, sizeof(A));
  return other;
}

// Swaps a and b if `really`. Works in registers: choosing between references to
// a and b would put both into memory.
template <class A>
__device__ inline void exchange(bool really, A& a, A& b) {
  constexpr int kWords = sizeof(A) / sizeof(unsigned);
  unsigned first[kWords], second[kWords];
  memcpy(first, &a, sizeof(A));
  memcpy(second, &b, sizeof(A));
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const unsigned word = first[i];
    first[i] = really ? second[i] : word;
    second[i] = really ? word : second[i];
  }
  memcpy(&a, first, sizeof(A));
  memcpy(&b, second, sizeof(A));
}

// See host_executor.h. Here each pass over a row reads it from memory again.
inline constexpr bool kManyPasses = false;

template <class C>
using sum_t = C;

// See executor.h. The lanes of a row are a warp or a whole block.
class Row {
 public:
  // The result of each warp in reduce(). Calls alternate between two places, so
  // that one barrier is enough.
  static constexpr int kMostWarps = 32, kMostBytes = 32;
  struct Results {
    alignas(16) char bytes[2][kMostWarps][kMostBytes];
  };
  static_assert(sizeof(Results) <= cuda::kOwnShared);
  __device__ Row(int lane, int lanes, Results* results, char* fast)
      : lane_(lane), lanes_(lanes), results_(results), fast_(fast) {}
  DT_HD void by_leaves(bool) {}

  template <class F, class... In>
  __device__ void each(int64_t n, F f, const In*... in) {
    each_lane(lane_, lanes_, n, f, in...);
    sync();
  }
  template <class Out, class F, class... In>
  __device__ void map(int64_t n, Out* out, F f, const In*... in) {
    map_at(
        n, out, [&](int64_t, const auto&... x) { return f(x...); }, in...);
  }
  template <class Out, class F, class... In>
  __device__ void map_at(int64_t n, Out* out, F f, const In*... in) {
    const auto item = [&](int64_t j, const In&... x) {
      return rounded<Out>(f(j, widened(x)...));
    };
    map_lane(lane_, lanes_, n, out, item, in...);
    sync();
  }
  template <class Out, class F, class... In>
  __device__ void map_two(int64_t n, Out* first, Out* second, F f,
                          const In*... in) {
    constexpr int W = kPack<Out, In...>;
    each((n + W - 1) / W, [&](int64_t i) {
      const int64_t at = i * W, left = n - at;
      Pack<Out, W> a, b;
      [&](Pack<In, W>... pack) {
        (load_some<W>(in, at, left, pack), ...);
#pragma unroll
        for (int w = 0; w < W; ++w) {
          const auto both = f(widened(pack.v[w])...);
          a.v[w] = rounded<Out>(both.first);
          b.v[w] = rounded<Out>(both.second);
        }
      }(Pack<In, W>{}...);
      store_some<W>(first, at, left, a);
      store_some<W>(second, at, left, b);
    });
  }
  template <class Out, class F, class... R>
  __device__ void update(int64_t n, Out* out, F f, R*... rows) {
    constexpr int W = kPack<Out, R...>;
    each((n + W - 1) / W, [&](int64_t i) {
      Pack<Out, W> result;
      const auto item = [&](int w, auto&... x) {
        result.v[w] = rounded<Out>(f(x...));
      };
      update_pack<W>(i * W, n, item, rows...);
      store_some<W>(out, i * W, n - i * W, result);
    });
  }
  template <class F, class... R>
  __device__ std::invoke_result_t<F&, compute_t<std::remove_const_t<R>>&...>
  update_sum(int64_t n, F f, R*... rows) {
    // The rows that f changes lie in fast (shared) memory. The other rows lie
    // in global memory, where narrow loads cost more, so only their types
    // choose the width of the loads.
    constexpr int W = kPack<std::conditional_t<std::is_const_v<R>, R, char>...>;
    using A = std::invoke_result_t<F&, compute_t<std::remove_const_t<R>>&...>;
    const auto plus = [](const A& a, const A& b) { return a + b; };
    return reduce((n + W - 1) / W, A{}, plus, [&](int64_t i) {
      A sum{};
      const auto item = [&](int w, auto&... x) {
        const A of_one = f(x...);
        if (i * W + w < n) sum = sum + of_one;
      };
      update_pack<W>(i * W, n, item, rows...);
      return sum;
    });
  }
  template <class T>
  __device__ void copy(int64_t n, T* to, const T* from) {
    const auto item = [](int64_t, const T& x) { return x; };
    map_lane(lane_, lanes_, n, to, item, from);
    sync();
  }
  template <class T>
  __device__ void fill(int64_t n, T* to, T value) {
    const auto item = [&](int64_t) { return value; };
    map_lane(lane_, lanes_, n, to, item);
    sync();
  }
  template <class T>
  __device__ void put(T* to, T value) {
    each(1, [&](int64_t) { *to = value; });
  }
  template <class T>
  __device__ compute_t<T> get(const T* from) {
    return widened(*from);
  }
  // The return type is spelled out: nvcc does not accept a call from code that
  // is also for the host (DT_HD) if the type is deduced.
  template <class F, class... In>
  __device__ std::invoke_result_t<F&, compute_t<In>...> sum(int64_t n, F f,
                                                            const In*... in) {
    using A = std::invoke_result_t<F&, compute_t<In>...>;
    return reduce(
        n, A{}, [](const A& a, const A& b) { return a + b; },
        [&](int64_t, const In&... x) { return f(widened(x)...); }, in...);
  }
  template <class A, class Op, class F, class... In>
  __device__ A reduce(int64_t n, A zero, Op op, F f, const In*... in) {
    A a = zero;
    auto take = [&](int64_t j, const In&... x) { a = op(a, f(j, x...)); };
    each_lane(lane_, lanes_, n, take, in...);
    return of_lanes(a, zero, op);
  }
  // As reduce(), but f(a, pack...) returns a combined with all elements of the
  // packs (Pack::v).
  template <class A, class Op, class F, class... In>
  __device__ A reduce_packs(int64_t n, A zero, Op op, F f, const In*... in) {
    A a = zero;
    auto take = [&](int64_t, const auto&... pack) { a = f(a, pack...); };
    each_pack(lane_, lanes_, n, take, in...);
    return of_lanes(a, zero, op);
  }
  template <class T>
  __device__ T* fast() {
    return reinterpret_cast<T*>(fast_);
  }

  __device__ void sync() {
    if (lanes_ == kWarp)
      __syncwarp();
    else
      __syncthreads();
  }

 private:
  // Returns the `a` of all lanes, combined.
  template <class A, class Op>
  __device__ A of_lanes(A a, A zero, Op op) {
#pragma unroll
    for (int d = 1; d < kWarp; d *= 2) {
      // Combine in the order of the lanes, so that all lanes get the same bits:
      // the compiler may round a * b + c once or twice.
      A other = of_lane(a, d);
      exchange(lane_ & d, a, other);
      a = op(a, other);
    }
    if (lanes_ == kWarp) {
      __syncwarp();
      return a;
    }
    static_assert(sizeof(A) <= kMostBytes);
    turn_ ^= 1;
    auto* of_warp = results_->bytes[turn_];
    if (lane_ % kWarp == 0) memcpy(of_warp[lane_ / kWarp], &a, sizeof(A));
    __syncthreads();
    A all = zero;
    for (int w = 0; w < lanes_ / kWarp; ++w) {
      A other;
      memcpy(&other, of_warp[w], sizeof(A));
      all = op(all, other);
    }
    return all;
  }
  // Calls f(w, x...) with the elements x at + w of the rows, for all w < W, and
  // stores the elements again. Elements from n on and those of null rows are 0.
  template <int W, class F, class... R>
  static __device__ void update_pack(int64_t at, int64_t n, F& f, R*... rows) {
    [&](Pack<std::remove_const_t<R>, W>... pack) {
      (load_some<W>(rows, at, n - at, pack), ...);
#pragma unroll
      for (int w = 0; w < W; ++w)
        [&](auto... x) {
          f(w, x...);
          ((pack.v[w] = rounded<std::remove_const_t<R>>(x)), ...);
        }(widened(pack.v[w])...);
      (store_some<W>(rows, at, n - at, pack), ...);
    }(Pack<std::remove_const_t<R>, W>{}...);
  }

  const int lane_, lanes_;
  int turn_ = 0;
  Results* const results_;
  char* const fast_;
};

inline constexpr int kThreads = 256;

template <class Body>
__global__ void __launch_bounds__(kThreads) each_kernel(int64_t n, Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < n; i += step)
    body(i);
}

template <class Out, class F, class... In>
__global__ void __launch_bounds__(kThreads)
    map_kernel(int64_t n, Out* out, F f, const In*... in) {
  map_lane(static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x,
           static_cast<int64_t>(gridDim.x) * kThreads, n, out, f, in...);
}

// `lanes` is kWarp or blockDim.x. A block has at most kMost threads. Registers
// are limited so that kBlocks blocks fit into a multiprocessor, which has 64 Ki
// of them; if kBlocks is 0, the compiler chooses.
template <int kMost, int kBlocks, class Body>
__global__ void __launch_bounds__(kMost, kBlocks)
    rows_kernel(int64_t count, int lanes, int64_t fast_bytes, Body body) {
  __shared__ Row::Results results;
  DT_DYNAMIC_SHARED(fast);
  const int lane = static_cast<int>(threadIdx.x) % lanes,
            group = static_cast<int>(threadIdx.x) / lanes,
            groups = static_cast<int>(blockDim.x) / lanes;
  Row row(lane, lanes, &results, fast + group * fast_bytes);
  const int64_t step = static_cast<int64_t>(gridDim.x) * groups;
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * groups + group; r < count;
       r += step)
    body(row, r);
}

// As many blocks as the work needs and a launch allows; a loop in the kernel
// does the rest.
inline unsigned blocks_for(int64_t work, int64_t per_block) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return static_cast<unsigned>(
      std::clamp<int64_t>((work + per_block - 1) / per_block, 1, kMost));
}

// The configuration of a launch by run().
inline cudaLaunchConfig_t prepared(Stream s, const void* kernel,
                                   unsigned blocks, unsigned threads,
                                   int64_t shared) {
  cudaLaunchConfig_t config = {};
  config.stream = cuda::enter(s);
  cuda::allow_shared_memory(kernel, shared);
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  return config;
}

// Launches kernel(args...) with `blocks` blocks of `threads` threads, each
// block with `shared` bytes of dynamic shared memory.
template <class... Parameters, class... Args>
void run(Stream s, void (*kernel)(Parameters...), unsigned blocks,
         unsigned threads, int64_t shared, const Args&... args) {
  const cudaLaunchConfig_t config = prepared(
      s, reinterpret_cast<const void*>(kernel), blocks, threads, shared);
  cuda::check(cudaLaunchKernelEx(&config, kernel, args...), "launch");
}

template <class Body>
void each(Stream s, int64_t n, const Body& body) {
  if (n <= 0) return;
  run(s, &each_kernel<Body>, blocks_for(n, kThreads), kThreads, 0, n, body);
}

template <class Out, class F, class... In>
void map(Stream s, int64_t n, Out* out, F f, const In*... in) {
  if (n <= 0) return;
  run(s, &map_kernel<Out, F, In...>,
      blocks_for(n, kThreads * kPack<Out, In...>), kThreads, 0, n, out, f,
      in...);
}

template <int kMost, int kBlocks, class Body>
void rows_of(Stream s, int64_t count, int lanes, Body body,
             int64_t fast_bytes) {
  if (count <= 0) return;
  const int threads = fast_bytes > 4096 ? lanes : std::max(lanes, 128);
  const int64_t groups = threads / lanes;
  fast_bytes = (fast_bytes + 15) / 16 * 16;
  run(s, &rows_kernel<kMost, kBlocks, Body>, blocks_for(count, groups),
      static_cast<unsigned>(threads), groups * fast_bytes, count, lanes,
      fast_bytes, body);
}

template <class Body>
void rows(Stream s, int64_t count, int64_t n, Body body,
          int64_t fast_bytes = 0) {
  // Several short rows share a block, unless each needs much fast memory; each
  // longer row has a block of its own. Two or more blocks fit into a
  // multiprocessor, so that one computes while another waits at a barrier. Rows
  // beyond 8192 are an exception if the body needs more than 64 registers per
  // lane: to fit two, it would have to keep some in memory.
  const int lanes = n <= 512 ? kWarp : n <= 8192 ? 256 : 512;
  rows_of<512, 1>(s, count, lanes, body, fast_bytes);
}
// As rows(), but a lane has at most 96 registers instead of 128.
template <class Body>
void short_rows(Stream s, int64_t count, Body body, int64_t fast_bytes = 0) {
  rows_of<128, 5>(s, count, kWarp, body, fast_bytes);
}

// See host_executor.h.
class Scratch {
 public:
  Scratch(Stream s, int64_t bytes)
      : stream_(cuda::enter(s)),
        data_(cuda::allocate_scratch(stream_, bytes)) {}
  ~Scratch() { cuda::release(data_, stream_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }

 private:
  const cudaStream_t stream_;
  void* const data_;
};

// See host_executor.h. A thread keeps the elements of its last key and stream.
// In a capture, it keeps the elements of each key and stream in the graph's
// memory, so that a replay fills them once.
template <class T, class Key>
class Kept {
 public:
  template <class Fill>
  Kept(Stream s, const Key& key, int64_t n, Fill fill) {
    const cudaStream_t stream = cuda::enter(s);
    const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
    if (const auto capture = cuda::capture_of(stream)) {
      Captured& captured = Kept::captured();
      if (captured.capture != capture) captured = {capture, {}};
      for (const Table& t : captured.tables)
        if (t.key == key && t.stream == s.handle) {
          data_ = t.data;
          return;
        }
      data_ = static_cast<T*>(cuda::graph_memory(stream, bytes));
      if (!data_) data_ = own_.emplace(s, bytes).template as<T>();
      fill(data_);
      if (!own_) captured.tables.push_back({key, s.handle, data_});
      return;
    }
    Last& last = Kept::last();
    if (last.key != key || last.stream != s.handle) {
      last.key.reset();
      last.memory.emplace(s, bytes);
      fill(last.memory->template as<T>());
      last.key = key;
      last.stream = s.handle;
    }
    data_ = last.memory->template as<T>();
  }
  const T* data() const { return data_; }

 private:
  struct Last {
    std::optional<Key> key;
    const void* stream = nullptr;
    std::optional<Scratch> memory;
  };
  struct Table {
    Key key;
    const void* stream;
    T* data;
  };
  struct Captured {
    unsigned long long capture = 0;
    std::vector<Table> tables;
  };
  static Last& last() {
    static thread_local Last last;
    return last;
  }
  static Captured& captured() {
    static thread_local Captured captured;
    return captured;
  }

  T* data_;
  std::optional<Scratch> own_;  // if the graph has no memory for it
};

}  // namespace on_cuda
}  // namespace dtensor::portable
