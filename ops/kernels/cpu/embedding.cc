#include <cstring>
#include <type_traits>

#include "dtensor/device/portable/rows.h"
#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"

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

}  // namespace dtensor::kernels
