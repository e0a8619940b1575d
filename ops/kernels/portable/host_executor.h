// SPDX-License-Identifier: Apache-2.0
// Portable kernels on the host: they run in the calling thread, immediately.
// Functions that a kernel passes to a Row's map() or sum() usually get a
// register of elements at a time. The one at the end of a row may be partly
// filled.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <type_traits>

#include "dtensor/device/device.h"
#include "dtensor/device/out_of_memory.h"
#include "dtensor/device/values.h"
#include "dtensor/ops/kernels/portable/rows.h"
#include "dtensor/ops/kernels/portable/vec_math.h"

namespace dtensor::portable {
inline namespace on_host {

// Whether one thread computes a whole row. The row then stays in its cache, so
// that another pass over the row is cheaper than more work for each element.
inline constexpr bool kManyPasses = true;

// Whether the elements of these types are computed in registers of one width.
template <class Out, class... In>
inline constexpr bool in_registers =
    (is_floating<Out> && ... && std::is_same_v<compute_t<Out>, compute_t<In>>);

// The type of a sum over a row: floats are added in f64, piece by piece.
template <class C>
using sum_t = std::conditional_t<std::is_floating_point_v<C>, double, C>;

// See executor.h.
class Row {
 public:
  explicit Row(char* fast) : fast_(fast) {}
  void by_leaves(bool on) { by_leaves_ = on; }

  template <class F, class... In>
  void each(int64_t n, F f, const In*... in) {
    for (int64_t j = 0; j < n; ++j) f(j, in[j]...);
  }
  template <class A, class Op, class F, class... In>
  A reduce(int64_t n, A zero, Op op, F f, const In*... in) {
    // Partial results, so that an element does not wait for the one before.
    constexpr int64_t kSide = 32;
    A side[kSide];
    std::fill_n(side, kSide, zero);
    int64_t j = 0;
    for (; n - j >= kSide; j += kSide)
      for (int64_t i = 0; i < kSide; ++i)
        side[i] = op(side[i], f(j + i, in[j + i]...));
    for (int64_t i = 0; j + i < n; ++i)
      side[i] = op(side[i], f(j + i, in[j + i]...));
    for (const A& a : side) zero = op(zero, a);
    return zero;
  }

  template <class Out, class F, class... In>
  void map(int64_t n, Out* out, F f, const In*... in) {
    if constexpr (in_registers<Out, In...>)
      simd::each(n, out, [&](auto at) -> simd::Vec<compute_t<Out>> {
        return f(at(in)...);
      });
    else
      for (int64_t j = 0; j < n; ++j)
        out[j] = rounded<Out>(f(widened(in[j])...));
  }
  template <class Out, class F, class... In>
  void map_two(int64_t n, Out* first, Out* second, F f, const In*... in) {
    simd::each_two(n, first, second, [&](auto at) { return f(at(in)...); });
  }
  template <class Out, class F, class... R>
  void update(int64_t n, Out* out, F f, R*... rows) {
    simd::each(n, out, [&](auto at) {
      return simd::updated<compute_t<Out>>(at, f, rows...);
    });
  }
  template <class F, class... R>
  auto update_sum(int64_t n, F f, R*... rows) {
    using C = std::common_type_t<compute_t<std::remove_const_t<R>>...>;
    const auto sum = [&](auto nulls) {
      return total<C>(
          n, [&](auto at) { return simd::updated<C, nulls>(at, f, rows...); });
    };
    return (rows && ...) ? sum(std::false_type()) : sum(std::true_type());
  }
  template <class F, class In, class... More>
  auto sum(int64_t n, F f, const In* in, const More*... more) {
    using C = compute_t<In>;
    return total<C>(n, [&](auto at) { return f(at(in), at(more)...); });
  }
  // As map(), and returns the sum of f's results.
  template <class Out, class F, class... In>
  auto map_sum(int64_t n, Out* out, F f, const In*... in) {
    const auto result = [&](auto at) { return f(at(in)...); };
    if (!by_leaves_) return simd::stored_total(n, out, result);
    simd::each(n, out, result);
    return total<compute_t<Out>>(n, [&](auto at) { return at(out); });
  }
  template <class S>
  compute_t<S> max(int64_t n, const S* x) {
    return simd::row_maximum(n, x);
  }

  template <class T>
  void copy(int64_t n, T* to, const T* from) {
    if (n > 0) std::memmove(to, from, static_cast<size_t>(n) * sizeof(T));
  }
  template <class T>
  void fill(int64_t n, T* to, T value) {
    std::fill_n(to, n, value);
  }
  void sync() {}
  template <class T>
  void put(T* to, T value) {
    *to = value;
  }
  template <class T>
  compute_t<T> get(const T* from) {
    return widened(*from);
  }
  template <class T>
  T* fast() {
    return reinterpret_cast<T*>(fast_);
  }

 private:
  template <class C, class F>
  auto total(int64_t n, F f) const {
    return by_leaves_ ? simd::leaf_total<C>(n, f) : simd::total<C>(n, f);
  }

  char* const fast_;
  bool by_leaves_ = false;
};

// A block of memory. It loses its contents when it grows.
struct Block {
  void* data = nullptr;
  int64_t size = 0;
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { std::free(data); }
  void grow(int64_t bytes) {
    if (size >= bytes) return;
    std::free(data);
    const int64_t wanted = (bytes + bytes / 4 + 4095) / 4096 * 4096;
    data = std::aligned_alloc(64, static_cast<size_t>(wanted));
    size = data ? wanted : 0;
    if (!data) out_of_memory(wanted, "");
  }
};

// Memory for as long as the object lives. The thread keeps the memory for its
// next Scratch at the same depth of nesting. REQUIRES: a thread has at most
// kMost objects at once.
class Scratch {
 public:
  Scratch(Stream, int64_t bytes) : block_(blocks()[depth() % kMost]) {
    block_.grow(bytes);
    ++depth();
  }
  ~Scratch() { --depth(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T>
  T* as() {
    return static_cast<T*>(block_.data);
  }

 private:
  static constexpr int kMost = 8;
  static Block* blocks() {
    static thread_local Block all[kMost];
    return all;
  }
  static int& depth() {
    static thread_local int depth = 0;
    return depth;
  }

  Block& block_;
};

// An array of n elements that fill(T*) writes. Each thread keeps its last
// array. If the next Kept has the same key, it uses that array, and does not
// call fill().
template <class T, class Key>
class Kept {
 public:
  template <class Fill>
  Kept(Stream, const Key& key, int64_t n, Fill fill) : mine_(mine()) {
    if (mine_.key == key) return;
    mine_.key.reset();
    mine_.block.grow(n * static_cast<int64_t>(sizeof(T)));
    fill(static_cast<T*>(mine_.block.data));
    mine_.key = key;
  }
  const T* data() const { return static_cast<const T*>(mine_.block.data); }

 private:
  struct Mine {
    std::optional<Key> key;
    Block block;
  };
  static Mine& mine() {
    static thread_local Mine mine;
    return mine;
  }
  Mine& mine_;
};

// Calls body(i) for all i in [0, n), in any order.
template <class Body>
void each(Stream, int64_t n, Body body) {
  for (int64_t i = 0; i < n; ++i) body(i);
}

// out[i] = f(i, in[i]...) for all i in [0, n). out may be one of the inputs.
template <class Out, class F, class... In>
void map(Stream s, int64_t n, Out* out, F f, const In*... in) {
  each(s, n, [=](int64_t i) { out[i] = static_cast<Out>(f(i, in[i]...)); });
}

// Calls body(row, r) for all r in [0, count). Rows have about n elements; n
// only determines how many lanes serve a row.
template <class Body>
void rows(Stream s, int64_t count, int64_t /*n*/, Body body,
          int64_t fast_bytes = 0) {
  std::optional<Scratch> fast;
  if (fast_bytes > 0) fast.emplace(s, fast_bytes);
  Row row(fast ? fast->as<char>() : nullptr);
  for (int64_t r = 0; r < count; ++r) body(row, r);
}

// Like rows(), for rows that are short in every call and need much work per
// element. On a GPU, a lane gets fewer registers, so more rows run at once.
template <class Body>
void short_rows(Stream s, int64_t count, Body body, int64_t fast_bytes = 0) {
  rows(s, count, 1, body, fast_bytes);
}

}  // namespace on_host
}  // namespace dtensor::portable
