// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/pointwise.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dtensor/device/copy.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/cpu/pointwise_loops.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// Derivatives of this order are computed in f64 for every float type: they are
// rare, and their loops take long to compile.
constexpr int kWideOrder = 3;

// The type in which a stored type is computed; a bool is computed as its byte.
template <class S>
using computed_t =
    std::conditional_t<std::is_same_v<S, bool>, uint8_t, compute_t<S>>;

// Runs `loop`, which takes operands of type T, on K operands that have strides,
// and a storage type that may differ from T: in pieces of kChunk elements,
// through buffers where needed. There are one or two outputs.
template <class S, int K, int outputs = 1, class T = computed_t<S>>
void run_block(Loop loop, const double* p, const Pointwise& a,
               bool gives_bool) {
  using M = std::conditional_t<std::is_same_v<S, bool>, uint8_t, S>;
  constexpr bool kSame = std::is_same_v<M, T>;
  const Shape* strides[K];
  for (int k = 0; k < K; ++k) strides[k] = &a.strides[k];
  const auto w = [&]<size_t... k>(std::index_sequence<k...>) {
    return Walk<K>(a.shape, {strides[k]...});
  }
  (std::make_index_sequence<K>());
  if (w.empty) return;
  const int64_t n = w.inner();
  const int64_t item = gives_bool ? 1 : static_cast<int64_t>(sizeof(M));
  const M* x[K];
  Span span{.n = n};
  bool direct = kSame, repeats = false;
  for (int k = 0; k < K; ++k) {
    x[k] = static_cast<const M*>(a.in[k]);
    span.step[k] = w.inner_stride(k);
    const bool repeat = span.step[k] == 0;
    direct &=
        span.step[k] == 1 || (repeat && in_whole_registers<T>(gives_bool));
    repeats |= repeat;
  }
  char* out[] = {static_cast<char*>(a.out), static_cast<char*>(a.second)};
  const auto move_on = [&](int64_t bytes) {
    for (int k = 0; k < outputs; ++k) out[k] += bytes;
  };
  const void* in[K];
  if (direct) {
    if (w.nd > 1) {
      span.rows = w.shape[w.nd - 2];
      for (int k = 0; k < K; ++k) span.row[k] = w.strides[k][w.nd - 2];
    }
    return w.rows(
        [&](const int64_t(&o)[K]) {
          for (int k = 0; k < K; ++k) in[k] = x[k] + o[k];
          void* const to[] = {out[0], out[1]};
          loop(p, span, in, to);
          move_on(span.rows * n * item);
        },
        2);
  }
  // A repeated element fills a buffer anew in each row.
  const int64_t chunk = repeats ? std::min<int64_t>(kChunk, 256) : kChunk;
  T buffer[K][kChunk], result[outputs][kSame ? 1 : kChunk];
  void* const results[] = {result[0], result[outputs - 1]};
  Span piece;
  w.rows([&](const int64_t(&o)[K]) {
    for (int64_t i = 0; i < n; i += chunk) {
      const int64_t m = piece.n = std::min(chunk, n - i);
      for (int k = 0; k < K; ++k)  // a broadcast operand fills its buffer once
        if (const int64_t step = span.step[k]; i == 0 || step != 0)
          in[k] = fetch(x[k] + o[k] + i * step, step, m, buffer[k]);
      if (kSame || gives_bool) {
        void* const to[] = {out[0], out[1]};
        loop(p, piece, in, to);
      } else {
        loop(p, piece, in, results);
        if constexpr (!kSame)
          for (int k = 0; k < outputs; ++k)
            narrow(result[k], m, reinterpret_cast<M*>(out[k]));
      }
      move_on(m * item);
    }
  });
}

// Copies blocks of rows, so that each block is contiguous in all operands. Used
// where the loop would start again too often, or read a cache line for each
// element: [n, 4] + [4], [n, 4] * [n, 1], and transposed matrices.
template <int K>
class Blocks {
 public:
  explicit Blocks(const Pointwise& a, int64_t item) : a_(a), item_(item) {
    // kLong: the longest row of a transposed operand. A block has at least as
    // many rows as a cache line has items, and must fit in a cache.
    constexpr int64_t kShort = 128, kShortColumn = 16, kLong = 1 << 14,
                      kLeast = 4096;
    const int dims = a.shape.size();
    if (dims < 2) return;
    n_ = a.shape.back();
    const int64_t all = numel(a.shape);
    if (n_ < 2 || all < kLeast) return;
    rows_ = all / n_;
    const Shape whole = contiguous_strides(a.shape);
    Shape column = whole;
    for (int64_t& stride : column) stride /= n_;  // the last one becomes 0
    bool copies = false;
    for (int k = 0; k < K; ++k) {
      const Shape& s = a.strides[k];
      const bool row =
          s.back() == 1 &&
          std::all_of(s.begin(), s.end() - 1, [](int64_t d) { return d == 0; });
      const bool across = dims == 2 && n_ <= kLong && s[0] == 1 &&
                          s[1] >= rows_ && rows_ * item >= kLine;
      if (s == whole)
        kinds_[k] = kWhole;
      else if (row && n_ <= kShort)
        kinds_[k] = kRow;
      else if (s == column && n_ <= kShortColumn)
        kinds_[k] = kColumn;
      else if (across)
        kinds_[k] = kAcross;
      else
        return;
      copies |= kinds_[k] != kWhole;
    }
    used_ = copies;
  }
  bool used() const { return used_; }

  // Calls fn for each block, which has one dimension. The outputs' items have
  // `out` bytes.
  template <class Fn>
  void run(int64_t out, Fn&& fn) const {
    constexpr int64_t kElements = 1 << 12;
    const int64_t most = std::max<int64_t>(kLine / item_, kElements / n_),
                  bytes = most * n_ * item_;
    auto* const scratch = scratch_bytes(kScratchRows, K * bytes);
    const auto copied = [&](int k) {
      return static_cast<char*>(scratch) + k * bytes;
    };
    const auto in = [&](int k, int64_t at) {
      return static_cast<const char*>(a_.in[k]) + at * item_;
    };
    for (int64_t r = 0; r < rows_; r += most) {
      const int64_t m = std::min(most, rows_ - r);
      Pointwise block{.type = a_.type, .shape = {m * n_}};
      const auto moved = [&](void* p) {
        return p ? static_cast<char*>(p) + r * n_ * out : nullptr;
      };
      block.out = moved(a_.out);
      block.second = moved(a_.second);
      for (int k = 0; k < K; ++k) {
        block.strides[k] = {1};
        block.in[k] = kinds_[k] == kWhole ? in(k, r * n_) : copied(k);
        const Shape shape{m, n_}, to{n_, 1};
        if (kinds_[k] == kRow && r == 0)
          copy_strided(item_, shape, copied(k), to, in(k, 0), Shape{0, 1});
        if (kinds_[k] == kColumn)
          copy_strided(item_, shape, copied(k), to, in(k, r), Shape{1, 0});
        if (kinds_[k] == kAcross)
          copy_strided(item_, shape, copied(k), to, in(k, r), a_.strides[k]);
      }
      fn(block);
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  enum Kind : uint8_t { kWhole, kRow, kColumn, kAcross };
  const Pointwise& a_;
  const int64_t item_;
  int64_t n_ = 0, rows_ = 0;
  Kind kinds_[K] = {};
  bool used_ = false;
};

template <class S, int K, int outputs = 1, class T = computed_t<S>>
void run_loop(Loop loop, const double* p, const Pointwise& a, bool gives_bool) {
  constexpr auto kItem = static_cast<int64_t>(sizeof(S));
  const Blocks<K> blocks(a, kItem);
  const auto run = [&](const Pointwise& block) {
    run_block<S, K, outputs, T>(loop, p, block, gives_bool);
  };
  if (!blocks.used()) return run(a);
  blocks.run(gives_bool ? 1 : kItem, run);
}

template <int K, int outputs = 1>
void run_float(Loop loop, const double* p, const Pointwise& a,
               bool gives_bool) {
  visit_float(a.type, "pointwise", [&]<class S>() {
    run_loop<S, K, outputs>(loop, p, a, gives_bool);
  });
}

// As run_float(), for a loop that computes in f64.
template <int K>
void run_wide(Loop loop, const double* p, const Pointwise& a) {
  visit_float(a.type, "pointwise",
              [&]<class S>() { run_loop<S, K, 1, double>(loop, p, a, false); });
}

template <class T>
void mul_add(const double*, const Span& s, const void* const* in,
             void* const* out) {
  using V = Vec<T>;
  registers<3, T>(s, in, out, [](V x, V a, V b) { return x + a * b; });
}

void check(const fn::Function& f, bool exists, DType t, int order) {
  if (!exists || (is_half_float(t) && !f.rounds)) no_kernel(f, order, t);
}

}  // namespace

DT_KERNEL(Unary)
void run(Stream, const Unary& a) {
  const int index = a.index, order = a.order;
  const DType t = a.of.type;
  const double* const params = a.params.data();
  const fn::Function& f = checked_unary(index, order);
  Loop loop = nullptr;
  auto look = [&]<int k>() {
    if (t == DType::kF64 || (is_float(t) && order == kWideOrder))
      loop = unary_loop<double, k>(index);
    else if constexpr (k < kWideOrder)
      if (is_float(t)) loop = unary_loop<float, k>(index);
  };
  [&]<int... k>(std::integer_sequence<int, k...>) {
    (void)((order == k && (look.template operator()<k>(), true)) || ...);
  }
  (std::make_integer_sequence<int, fn::kMaxOrder + 1>());
  if (order == 0 && t == DType::kI32) loop = unary_loop<int32_t, 0>(index);
  if (order == 0 && t == DType::kI64) loop = unary_loop<int64_t, 0>(index);
  if (order == 0 && t == DType::kBool) loop = unary_loop<uint8_t, 0>(index);
  check(f, loop, t, order);
  const bool b = f.gives_bool;
  if (t == DType::kI32) return run_loop<int32_t, 1>(loop, params, a.of, b);
  if (t == DType::kI64) return run_loop<int64_t, 1>(loop, params, a.of, b);
  if (t == DType::kBool) return run_loop<bool, 1>(loop, params, a.of, b);
  if (order == kWideOrder) return run_wide<2>(loop, params, a.of);
  if (order > 0) return run_float<2>(loop, params, a.of, b);
  run_float<1>(loop, params, a.of, b);
}

DT_KERNEL(Binary)
void run(Stream, const Binary& a) {
  const int index = a.index;
  const fn::By by = a.by;
  const DType t = a.of.type;
  const double* const params = a.params.data();
  const fn::Function& f = checked_binary(index);
  const int order = fn::order_of(by);
  Loop loop = nullptr;
  auto look = [&]<fn::By k>() {
    if (t == DType::kF64 || (is_float(t) && order == kWideOrder))
      loop = binary_loop<double, k>(index);
    else if constexpr (fn::order_of(k) < kWideOrder)
      if (is_float(t)) loop = binary_loop<float, k>(index);
  };
  [&]<int... k>(std::integer_sequence<int, k...>) {
    (void)((by == fn::By{k} && (look.template operator()<fn::By{k}>(), true)) ||
           ...);
  }
  (std::make_integer_sequence<int, fn::kNumBy>());
  constexpr auto kNone = fn::By::kNone;
  if (order == 0 && t == DType::kI32) loop = binary_loop<int32_t, kNone>(index);
  if (order == 0 && t == DType::kI64) loop = binary_loop<int64_t, kNone>(index);
  if (order == 0 && t == DType::kBool)
    loop = binary_loop<uint8_t, kNone>(index);
  check(f, loop, t, order);
  const bool b = f.gives_bool;
  if (t == DType::kI32) return run_loop<int32_t, 2>(loop, params, a.of, b);
  if (t == DType::kI64) return run_loop<int64_t, 2>(loop, params, a.of, b);
  if (t == DType::kBool) return run_loop<bool, 2>(loop, params, a.of, b);
  if (by == fn::By::kBoth) return run_float<3, 2>(loop, params, a.of, b);
  if (order == kWideOrder) return run_wide<3>(loop, params, a.of);
  if (order > 0) return run_float<3>(loop, params, a.of, b);
  run_float<2>(loop, params, a.of, b);
}

DT_KERNEL(MulAdd)
void run(Stream, const MulAdd& a) {
  visit_float(a.of.type, "addcmul", [&]<class S>() {
    run_loop<S, 3>(&mul_add<computed_t<S>>, nullptr, a.of, false);
  });
}

}  // namespace dtensor::kernels
