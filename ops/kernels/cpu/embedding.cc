#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/cpu/rows.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// Calls f.template operator()<I>() for an index type; throws Error for others.
template <class F>
void visit_ids(DType t, const char* where, F&& f) {
  if (t == DType::kI32) return f.template operator()<int32_t>();
  DT_CHECK(t == DType::kI64, where, "indices are {}, but must be i32 or i64",
           name(t));
  f.template operator()<int64_t>();
}

template <class S, class G>
void scatter_add(int64_t h, const S* dy, G* to) {
  if constexpr (std::is_integral_v<S>)
    for (int64_t j = 0; j < h; ++j) to[j] = sum_of(to[j], dy[j]);
  else
    each(h, to, [&](auto at) { return at(to) + at(dy); });
}

}  // namespace

void CpuKernels::run(Stream, const Embedding& a) const {
  const int64_t item = size_of(a.table.type);
  const auto bytes = static_cast<size_t>(a.table.n * item);
  if (bytes == 0) return;
  visit_ids(a.ids_type, "embedding", [&]<class I>() {
    const I* id = static_cast<const I*>(a.ids);
    auto* to = static_cast<char*>(a.out);
    for (int64_t i = 0; i < a.count; ++i, to += bytes) {
      if (id[i] >= a.lo && id[i] < a.hi)
        std::memcpy(to,
                    static_cast<const char*>(a.table.data) +
                        (id[i] - a.lo) * a.table.stride * item,
                    bytes);
      else
        std::memset(to, 0, bytes);
    }
  });
}

void CpuKernels::run(Stream, const EmbeddingBackward& a) const {
  const DType t = a.dy.type;
  const int64_t n = a.dy.n;
  DT_CHECK(a.dtable_type == t || (is_float(t) && a.dtable_type == stat_of(t)),
           "embedding backward", "does not take {} with a result of {}",
           name(t), name(a.dtable_type));
  if (!a.accumulate && a.hi > a.lo)
    std::memset(
        a.dtable, 0,
        static_cast<size_t>((a.hi - a.lo) * n * size_of(a.dtable_type)));
  visit_ids(a.ids_type, "embedding backward", [&]<class I>() {
    const I* id = static_cast<const I*>(a.ids);
    visit_numbers(t, "embedding backward", [&]<class S>() {
      auto add = [&]<class G>() {
        for (int64_t i = 0; i < a.dy.rows; ++i)
          if (id[i] >= a.lo && id[i] < a.hi)
            scatter_add(n, row_at<S>(a.dy, i),
                        static_cast<G*>(a.dtable) + (id[i] - a.lo) * n);
      };
      if (a.dtable_type == t)
        add.template operator()<S>();
      else
        add.template operator()<compute_t<S>>();
    });
  });
}

void CpuKernels::run(Stream, const CePick& a) const {
  visit_ids(a.target_type, "cross entropy", [&]<class I>() {
    visit_float(a.logits.type, "cross entropy", [&]<class S>() {
      using T = compute_t<S>;
      const I* target = static_cast<const I*>(a.targets);
      T* to = static_cast<T*>(a.picked);
      for (int64_t r = 0; r < a.logits.rows; ++r) {
        if (target[r] >= a.lo && target[r] < a.hi)
          to[r] = widen(row_at<S>(a.logits, r)[target[r] - a.lo]);
        else if (!a.accumulate)
          to[r] = 0;
      }
    });
  });
}

void CpuKernels::run(Stream, const CeRange& a) const {
  visit_ids(a.target_type, "cross entropy", [&]<class I>() {
    const I* target = static_cast<const I*>(a.targets);
    a.ends[0] = a.ends[1] = std::numeric_limits<int64_t>::min();
    for (int64_t i = 0; i < a.n; ++i) {
      const int64_t t = target[i];
      if (t == a.ignored) continue;
      a.ends[0] = std::max(a.ends[0], t);
      a.ends[1] = std::max(a.ends[1], ~t);
    }
  });
}

void CpuKernels::run(Stream, const CeBackward& a) const {
  visit_ids(a.target_type, "cross entropy", [&]<class I>() {
    visit_float(a.logits.type, "cross entropy", [&]<class S>() {
      using T = compute_t<S>;
      using V = Vec<T>;
      const I* target = static_cast<const I*>(a.targets);
      const int64_t n = a.hi - a.lo;
      const double base = a.smoothing == 0 || a.vocabulary == 0
                              ? 0.0
                              : a.smoothing / static_cast<double>(a.vocabulary);
      for (int64_t r = 0; r < a.logits.rows; ++r) {
        const S* x = row_at<S>(a.logits, r);
        S* dx = static_cast<S*>(a.dlogits) + r * a.dlogits_stride;
        const T scale = static_cast<const T*>(a.scale)[r];
        if (scale == 0) {
          std::fill_n(dx, n, S(0.0f));
          continue;
        }
        const V m(static_cast<const T*>(a.max)[r]);
        const V l(static_cast<const T*>(a.log_sum)[r]);
        const V s(scale), b(base);
        const bool here = target[r] >= a.lo && target[r] < a.hi;
        const int64_t at_target = here ? target[r] - a.lo : 0;
        // Computed before the row overwrites its input, and rounded once.
        V special(0);
        if (here)
          special = s * (exp_softmax(load_n(x + at_target, 1) - m - l) - b -
                         V(1 - a.smoothing));
        each(n, dx,
             [&](auto at) { return s * (exp_softmax(at(x) - m - l) - b); });
        if (here) store_n(dx + at_target, special, 1);
      }
    });
  });
}

}  // namespace dtensor::kernels
