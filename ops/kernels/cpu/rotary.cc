#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "dtensor/device/portable/rows.h"
#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

template <class T>
void fill_table(const RotaryTable& a) {
  const int64_t half = a.d / 2;
  auto *c = static_cast<T*>(a.cos), *sn = static_cast<T*>(a.sin);
  std::vector<double> frequency(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i)
    frequency[static_cast<size_t>(i)] = std::pow(
        a.theta, -2.0 * static_cast<double>(i) / static_cast<double>(a.d));
  for (int64_t r = 0; r < a.s; ++r) {
    const auto pos = static_cast<double>(a.positions ? a.positions[r]
                                                     : r + a.position_offset);
    for (int64_t i = 0; i < half; ++i) {
      const double angle = pos * frequency[static_cast<size_t>(i)];
      c[r * half + i] = static_cast<T>(std::cos(angle));
      sn[r * half + i] = static_cast<T>(std::sin(angle));
    }
  }
}

// Identifies the table in the thread's scratch. A model needs the same one for
// queries and keys, in each layer, forward and backward.
struct TableKey {
  DType type;
  int64_t s, d, offset;
  double theta;
  bool operator==(const TableKey&) const = default;
};
thread_local std::optional<TableKey> there;

// The table for these positions: cosines, then sines. It is always filled anew
// if `positions` is given, because they may have changed.
template <class T>
const T* table_of(const Rotary& a) {
  const TableKey key{dtype_of<T>, a.s, a.d, a.position_offset, a.theta};
  if (a.positions || there != key) there.reset();
  const int64_t size = a.s * (a.d / 2);
  T* const table = scratch<T>(kScratchRotary, 2 * size);
  if (there) return table;
  fill_table<T>(table_for(a, dtype_of<T>, table, table + size));
  if (!a.positions) there = key;
  return table;
}

// Rotates the halves of one row. out may be x.
template <class S>
void rotate(int64_t half, const S* x, const compute_t<S>* c,
            const compute_t<S>* s, Vec<compute_t<S>> sign, S* out) {
  using T = compute_t<S>;
  constexpr int64_t w = Vec<T>::n;
  for (int64_t i = 0; i < half; i += w) {
    const int64_t m = std::min(w, half - i);
    auto get = [&](const auto* p) { return m == w ? load(p) : load_n(p, m); };
    auto put = [&](S* p, Vec<T> v) { m == w ? store(p, v) : store_n(p, v, m); };
    const Vec<T> x1 = get(x + i), x2 = get(x + half + i);
    const Vec<T> cs = get(c + i), sn = get(s + i) * sign;
    put(out + i, x1 * cs - x2 * sn);
    put(out + half + i, x2 * cs + x1 * sn);
  }
}

}  // namespace

void CpuKernels::run(Stream, const RotaryTable& a) const {
  if (a.type == DType::kF64)
    fill_table<double>(a);
  else
    fill_table<float>(a);
}

void CpuKernels::run(Stream, const Rotary& a) const {
  check_rotary(a);
  visit_float(a.type, "rotary", [&]<class S>() {
    using T = compute_t<S>;
    const int64_t half = a.d / 2;
    const T* c = static_cast<const T*>(a.cos);
    const T* s = static_cast<const T*>(a.sin);
    if (!c) {
      c = table_of<T>(a);
      s = c + a.s * half;
    }
    const Vec<T> sign(a.inverse ? -1 : 1);
    const auto& xs = a.x.strides;
    const auto& os = a.out.strides;
    for (int64_t b = 0; b < a.b; ++b)
      for (int64_t h = 0; h < a.h; ++h)
        for (int64_t i = 0; i < a.s; ++i)
          rotate(
              half,
              static_cast<const S*>(a.x.data) + b * xs[0] + h * xs[1] +
                  i * xs[2],
              c + i * half, s + i * half, sign,
              static_cast<S*>(a.out.data) + b * os[0] + h * os[1] + i * os[2]);
  });
}

}  // namespace dtensor::kernels
