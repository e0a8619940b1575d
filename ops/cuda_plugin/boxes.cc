// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/cuda_plugin/boxes.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <type_traits>

#include "dtensor/device/combine.h"
#include "dtensor/device/convert.h"
#include "dtensor/device/copy.h"
#include "dtensor/device/reduce_op.h"
#include "dtensor/ops/kernels/portable/executor.h"
#include "dtensor/ops/kernels/portable/tiles.h"
#include "dtensor/ops/kernels/portable/walk.h"

namespace dtensor::portable {
inline namespace DT_PORTABLE {
namespace {

void copy_bytes(Stream s, void* dst, const void* src, int64_t bytes) {
  const auto n = static_cast<size_t>(bytes);
  const cudaStream_t stream = cuda::enter(s);
  cuda::check(cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToDevice, stream),
              "copy");
}

template <class T>
void copy_items(Stream s, const Walk<2>& walk,
                const std::optional<Tiles>& tiles, void* dst, const void* src) {
  auto* to = static_cast<T*>(dst);
  const auto* from = static_cast<const T*>(src);
  if (tiles)
    copy(s, *tiles, to, from);
  else
    map(
        s, walk, to, DT_BODY(T x) { return x; }, from);
}

// Copies items of any size, byte by byte.
void copy_any(Stream s, const Walk<2>& walk, int64_t item, void* dst,
              const void* src) {
  auto* to = static_cast<char*>(dst);
  const auto* from = static_cast<const char*>(src);
  each(
      s, walk.count(), DT_BODY(int64_t i) {
        int64_t at[2];
        walk.at(i, at);
        for (int64_t b = 0; b < item; ++b)
          to[at[0] * item + b] = from[at[1] * item + b];
      });
}

template <class D, class Source>
void cast_items(Stream s, const Walk<2>& walk, void* dst, const void* src) {
  // The byte of a bool may have any value.
  using S = std::conditional_t<std::is_same_v<Source, bool>, uint8_t, Source>;
  map(
      s, walk, static_cast<D*>(dst), DT_BODY(S x) { return convert<D>(x); },
      static_cast<const S*>(src));
}

template <class T>
void fill_items(Stream s, const Walk<1>& walk, void* dst, double value) {
  const T x = fill_value<T>(value);
  map(
      s, walk, static_cast<T*>(dst), DT_BODY() { return x; });
}

template <class T>
void divide_items(Stream s, int64_t n, void* dst, const void* a,
                  const void* b) {
  map(
      s, n, static_cast<T*>(dst),
      DT_BODY(int64_t, T x, T y) {
        return rounded<T>(widened(x) / widened(y));
      },
      static_cast<const T*>(a), static_cast<const T*>(b));
}

// The most operands that one pass combines, the most different strides among
// them, and the most results that it writes: kernel arguments have no room for
// more.
constexpr int kOperands = 64, kStrides = 4, kResults = 64;

// Combines the operands of one pass. Call i combines pack i of W elements or,
// after the packs, one element. Array 0 of the walk is a destination, and array
// 1 + k an operand with the k-th of N different strides. All passes but the
// last write the unrounded result to `partial`.
template <class T, class Op, int N>
struct Combine {
  using C = compute_t<T>;
  static constexpr int W = kPack<T>;

  Walk<1 + N> walk;
  T* dsts[kResults];
  int results;
  C* partial;
  bool from_partial, to_partial;
  C divisor;
  int64_t packs;
  int operands;
  const T* data[kOperands];
  int8_t strides[kOperands];  // index of each operand's strides, below N

  DT_HD void operator()(int64_t i) const {
    if (i < packs)
      run<W>(i * W);
    else
      run<1>(i + packs * (W - 1));
  }

 private:
  template <int K>
  DT_HD void run(int64_t i) const {
    int64_t at[1 + N];
    walk.at(i, at);
    C all[K];
    int j = 0;
    if (from_partial) {
      DT_UNROLL(K)
      for (int k = 0; k < K; ++k) all[k] = partial[i + k];
    } else {
      widen(load<K>(data[0] + offset(j++, at)), all);
    }
    for (; j < operands; ++j) {
      C next[K];
      widen(load<K>(data[j] + offset(j, at)), next);
      DT_UNROLL(K)
      for (int k = 0; k < K; ++k) all[k] = Op::apply(all[k], next[k]);
    }
    if (to_partial) {
      DT_UNROLL(K)
      for (int k = 0; k < K; ++k) partial[i + k] = all[k];
      return;
    }
    Pack<T, K> result;
    DT_UNROLL(K)
    for (int k = 0; k < K; ++k) result.v[k] = finished(all[k]);
    for (int r = 0; r < results; ++r) store(dsts[r] + at[0], result);
  }
  DT_HD int64_t offset(int j, const int64_t (&at)[1 + N]) const {
    if constexpr (N == 1)
      return at[1];
    else
      return at[1 + strides[j]];
  }
  template <int K>
  DT_HD static void widen(const Pack<T, K>& pack, C (&to)[K]) {
    DT_UNROLL(K)
    for (int k = 0; k < K; ++k) to[k] = widened(pack.v[k]);
  }
  DT_HD T finished(C x) const {
    if constexpr (std::is_floating_point_v<C>)
      if (divisor != C(1)) x /= divisor;
    return rounded<T>(x);
  }
};

// The operands of one pass: as many as it can take, from `first` on.
struct Pass {
  Pass(Sizes shape, std::span<const Operand> srcs, size_t first)
      : begin(first), end(first) {
    for (; end < srcs.size() && end - begin < kOperands; ++end) {
      const Sizes of_this = srcs[end].strides;
      int which = 0;
      while (which < different && !same(shape, strides[at(which)], of_this))
        ++which;
      if (which == kStrides) break;
      if (which == different) strides[at(different++)] = of_this;
      of[end - begin] = static_cast<int8_t>(which);
    }
  }
  static size_t at(int i) { return static_cast<size_t>(i); }
  // Whether strides are the same, apart from those of dimensions of size 1.
  static bool same(Sizes shape, Sizes a, Sizes b) {
    for (size_t i = 0; i < shape.size(); ++i)
      if (shape[i] != 1 && a[i] != b[i]) return false;
    return true;
  }

  size_t begin, end;
  int different = 0;
  std::array<Sizes, kStrides> strides;
  int8_t of[kOperands];
};

template <class T, class Op, int N>
void combine(Stream s, Sizes shape, std::span<char* const> dsts,
             Sizes dst_strides, std::span<const Operand> srcs, const Pass& pass,
             int64_t divisor, compute_t<T>* partial) {
  using Body = Combine<T, Op, N>;
  std::array<Sizes, 1 + N> strides;
  strides[0] = dst_strides;
  for (int a = 0; a < N; ++a)  // unused arrays walk like the first operand
    strides[Pass::at(1 + a)] =
        pass.strides[Pass::at(a < pass.different ? a : 0)];
  Body body{Walk<1 + N>(shape, strides),
            {},
            static_cast<int>(dsts.size()),
            partial,
            pass.begin > 0,
            pass.end < srcs.size(),
            static_cast<compute_t<T>>(divisor),
            0,
            static_cast<int>(pass.end - pass.begin),
            {},
            {}};
  bool together = true;
  for (int r = 0; r < body.results; ++r) {
    body.dsts[r] = reinterpret_cast<T*>(dsts[Pass::at(r)]);
    together &= body.walk.packs(0, body.dsts[r], Body::W);
  }
  for (int j = 0; j < body.operands; ++j) {
    const int which = 1 + pass.of[j];
    body.data[j] = static_cast<const T*>(srcs[pass.begin + Pass::at(j)].data);
    body.strides[j] = pass.of[j];
    together &= body.walk.inner_step(which) == 1 &&
                body.walk.packs(which, body.data[j], Body::W);
  }
  const int64_t count = body.walk.count();
  if (together) body.packs = count / Body::W;
  each(s, count - body.packs * (Body::W - 1), body);
}

template <class T, class Op>
void reduce_items(Stream s, Sizes shape, int64_t count,
                  std::span<char* const> dsts, Sizes dst_strides,
                  std::span<const Operand> srcs, int64_t divisor) {
  using C = compute_t<T>;
  Pass pass(shape, srcs, 0);
  std::optional<Scratch> scratch;
  C* partial = nullptr;
  if (pass.end < srcs.size())
    partial = scratch.emplace(s, count * int64_t{sizeof(C)}).as<C>();
  for (;;) {
    if (pass.different == 1)
      combine<T, Op, 1>(s, shape, dsts, dst_strides, srcs, pass, divisor,
                        partial);
    else
      combine<T, Op, kStrides>(s, shape, dsts, dst_strides, srcs, pass, divisor,
                               partial);
    if (pass.end == srcs.size()) return;
    pass = Pass(shape, srcs, pass.end);
  }
}

class PortableBoxes final : public Boxes {
 public:
  int64_t copy(Stream s, int64_t item, Sizes shape, void* dst,
               Sizes dst_strides, const void* src,
               Sizes src_strides) const override {
    const Walk<2> walk(shape, {dst_strides, src_strides});
    const int64_t bytes = walk.count() * item;
    if (bytes == 0) return 0;
    std::optional<Tiles> tiles;
    if (std::abs(walk.inner_step(1)) > 1)
      tiles = Tiles::of(item, shape, dst_strides, src_strides);
    if (walk.count() == 1 ||
        (walk.inner() == walk.count() && walk.inner_step(0) == 1 &&
         walk.inner_step(1) == 1))
      copy_bytes(s, dst, src, bytes);
    else if (item == 1)
      copy_items<uint8_t>(s, walk, tiles, dst, src);
    else if (item == 2)
      copy_items<uint16_t>(s, walk, tiles, dst, src);
    else if (item == 4)
      copy_items<uint32_t>(s, walk, tiles, dst, src);
    else if (item == 8)
      copy_items<uint64_t>(s, walk, tiles, dst, src);
    else
      copy_any(s, walk, item, dst, src);
    return bytes;
  }

  void cast(Stream s, Sizes shape, DType dst_type, void* dst, Sizes dst_strides,
            DType src_type, const void* src, Sizes src_strides) const override {
    if (dst_type == src_type) {
      copy(s, size_of(dst_type), shape, dst, dst_strides, src, src_strides);
      return;
    }
    const Walk<2> walk(shape, {dst_strides, src_strides});
    visit_stored(dst_type, [&]<class D>() {
      visit_stored(src_type,
                   [&]<class S>() { cast_items<D, S>(s, walk, dst, src); });
    });
  }

  void fill(Stream s, DType dtype, Sizes shape, void* dst, Sizes dst_strides,
            double value) const override {
    const Walk<1> walk(shape, {dst_strides});
    visit_stored(dtype, [&]<class T>() { fill_items<T>(s, walk, dst, value); });
  }

  int64_t reduce(Stream s, ReduceOp op, DType dtype, Sizes shape,
                 std::span<char* const> dsts, Sizes dst_strides,
                 std::span<const Operand> srcs, int64_t count) const override {
    if (srcs.empty()) {
      for (char* dst : dsts)
        fill(s, dtype, shape, dst, dst_strides, identity(op));
      return 0;
    }
    const int64_t divisor = op == ReduceOp::kAvg ? count : 1;
    if (srcs.size() == 1 && dsts.size() == 1 && divisor == 1)
      return copy(s, size_of(dtype), shape, dsts[0], dst_strides, srcs[0].data,
                  srcs[0].strides);
    int64_t n = 1;
    for (int64_t size : shape) n *= size;
    if (n == 0) return 0;
    const auto together = dsts.first(std::min<size_t>(dsts.size(), kResults));
    visit(dtype, [&]<class T>() {
      reduce_op::visit(op, [&]<class Op>() {
        reduce_items<T, Op>(s, shape, n, together, dst_strides, srcs, divisor);
      });
    });
    for (char* dst : dsts.subspan(together.size()))
      copy(s, size_of(dtype), shape, dst, dst_strides, dsts[0], dst_strides);
    return n * size_of(dtype);
  }

  void divide(Stream s, DType dtype, int64_t n, void* dst, const void* a,
              const void* b) const override {
    visit(dtype, [&]<class T>() {
      if constexpr (is_floating<T>) divide_items<T>(s, n, dst, a, b);
    });
  }
};

}  // namespace

}  // namespace DT_PORTABLE

const Boxes& cuda_boxes() {
  static const PortableBoxes all;
  return all;
}

}  // namespace dtensor::portable
