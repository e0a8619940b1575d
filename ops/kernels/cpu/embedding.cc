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
  if constexpr (std::is_same_v<G, compute_t<S>> || std::is_same_v<G, S>)
    each(h, to, [&](auto at) { return at(to) + at(dy); });
}

}  // namespace

void CpuKernels::embedding(Stream, DType t, DType ids_type, int64_t count,
                           int64_t h, const void* table, int64_t table_stride,
                           const void* ids, int64_t lo, int64_t hi,
                           void* out) const {
  const int64_t item = size_of(t);
  const auto bytes = static_cast<size_t>(h * item);
  if (bytes == 0) return;
  visit_ids(ids_type, "embedding", [&]<class I>() {
    const I* id = static_cast<const I*>(ids);
    auto* to = static_cast<char*>(out);
    for (int64_t i = 0; i < count; ++i, to += bytes) {
      if (id[i] >= lo && id[i] < hi)
        std::memcpy(to,
                    static_cast<const char*>(table) +
                        (id[i] - lo) * table_stride * item,
                    bytes);
      else
        std::memset(to, 0, bytes);
    }
  });
}

void CpuKernels::embedding_backward(Stream, DType t, DType ids_type,
                                    int64_t count, int64_t h, const void* dy,
                                    int64_t dy_stride, const void* ids,
                                    int64_t lo, int64_t hi, DType dtable_type,
                                    bool accumulate, void* dtable) const {
  DT_CHECK(dtable_type == t || dtable_type == stat_of(t), "embedding backward",
           "does not take {} with a result of {}", name(t), name(dtable_type));
  if (!accumulate && hi > lo)
    std::memset(dtable, 0,
                static_cast<size_t>((hi - lo) * h * size_of(dtable_type)));
  visit_ids(ids_type, "embedding backward", [&]<class I>() {
    visit_float(t, "embedding backward", [&]<class S>() {
      auto add = [&]<class G>() {
        const I* id = static_cast<const I*>(ids);
        for (int64_t i = 0; i < count; ++i)
          if (id[i] >= lo && id[i] < hi)
            scatter_add(h, static_cast<const S*>(dy) + i * dy_stride,
                        static_cast<G*>(dtable) + (id[i] - lo) * h);
      };
      if (dtable_type == t)
        add.template operator()<S>();
      else
        add.template operator()<compute_t<S>>();
    });
  });
}

void CpuKernels::ce_pick(Stream, DType t, DType target_type, int64_t rows,
                         const void* logits, int64_t stride,
                         const void* targets, int64_t lo, int64_t hi,
                         bool accumulate, void* picked) const {
  visit_ids(target_type, "cross entropy", [&]<class I>() {
    visit_float(t, "cross entropy", [&]<class S>() {
      using T = compute_t<S>;
      const I* target = static_cast<const I*>(targets);
      T* to = static_cast<T*>(picked);
      for (int64_t r = 0; r < rows; ++r) {
        if (target[r] >= lo && target[r] < hi)
          to[r] =
              widen(static_cast<const S*>(logits)[r * stride + target[r] - lo]);
        else if (!accumulate)
          to[r] = 0;
      }
    });
  });
}

void CpuKernels::ce_range(Stream, DType target_type, int64_t n,
                          const void* targets, int64_t ignored,
                          int64_t* ends) const {
  visit_ids(target_type, "cross entropy", [&]<class I>() {
    const I* target = static_cast<const I*>(targets);
    ends[0] = ends[1] = std::numeric_limits<int64_t>::min();
    for (int64_t i = 0; i < n; ++i) {
      const int64_t t = target[i];
      if (t == ignored) continue;
      ends[0] = std::max(ends[0], t);
      ends[1] = std::max(ends[1], ~t);
    }
  });
}

void CpuKernels::ce_backward(Stream, DType t, DType target_type,
                             const CeBackward& a) const {
  visit_ids(target_type, "cross entropy", [&]<class I>() {
    visit_float(t, "cross entropy", [&]<class S>() {
      using T = compute_t<S>;
      using V = Vec<T>;
      const I* target = static_cast<const I*>(a.targets);
      const int64_t n = a.hi - a.lo;
      const double base = a.smoothing == 0 || a.vocabulary == 0
                              ? 0.0
                              : a.smoothing / static_cast<double>(a.vocabulary);
      for (int64_t r = 0; r < a.rows; ++r) {
        const S* x = static_cast<const S*>(a.logits) + r * a.stride;
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
