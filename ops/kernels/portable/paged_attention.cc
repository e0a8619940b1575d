// SPDX-License-Identifier: Apache-2.0
// Attention to pages of keys and values. A row (of lanes) has one head of one
// query, which goes through the keys in blocks: each lane takes one key.
#include "dtensor/ops/kernels/paged_attention.h"

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::lowest;
using portable::Max;
using portable::Row;
using portable::Sum;
using portable::widened;

constexpr int64_t kBlock = 128;

template <class S, class T = compute_t<S>>
void forward(Stream s, const PagedAttention& a) {
  portable::short_rows(
      s, a.t * a.hq,
      DT_BODY(Row & row, int64_t r) {
        const int64_t i = r / a.hq, h = r % a.hq, g = a.groups.kv_head(h),
                      request = a.row[i], end = a.end(i);
        const S* q = static_cast<const S*>(a.q.data) + h * a.q.strides[1] +
                     i * a.q.strides[2];
        const S* k = static_cast<const S*>(a.k.data) + g * a.k.strides[1];
        const S* v = static_cast<const S*>(a.v.data) + g * a.v.strides[1];
        T* const o = row.fast<T>();
        T* const p = o + a.d;
        const T scale = static_cast<T>(a.scale),
                cap = static_cast<T>(a.soft_cap);
        row.fill(a.d, o, T(0));
        T most = lowest<T>(), all = 0;
        for (int64_t j0 = end > 0 ? a.begin(i) : 0; j0 < end; j0 += kBlock) {
          const int64_t n = end - j0 < kBlock ? end - j0 : kBlock;
          row.each(n, [&](int64_t j) {
            const int64_t slot = a.slot(request, j0 + j);
            T score = 0;
            if (slot >= 0) {
              const S* key = k + slot * a.k.strides[2];
              for (int64_t e = 0; e < a.d; ++e)
                score += widened(q[e]) * scale * widened(key[e]);
              if (cap != 0) score = cap * fn::tanh(score / cap);
            }
            p[j] = slot < 0 ? lowest<T>() : score;
          });
          const T before = most;
          most = row.reduce(
              n, most, Max(), [](int64_t, T x) { return x; }, p);
          if (most == lowest<T>()) continue;
          row.each(n, [&](int64_t j) { p[j] = fn::exp(p[j] - most); });
          const T sum = row.reduce(
              n, T(0), Sum(), [](int64_t, T x) { return x; }, p);
          const T factor = fn::exp(before - most);
          all = all * factor + sum;
          row.each(a.d, [&](int64_t e) {
            T total = o[e] * factor;
            for (int64_t j = 0; j < n; ++j) {
              const int64_t slot = a.slot(request, j0 + j);
              if (slot >= 0)
                total += p[j] * widened(v[slot * a.v.strides[2] + e]);
            }
            o[e] = total;
          });
        }
        const T by = all == 0 ? T(0) : 1 / all;
        S* out = static_cast<S*>(a.out.data) + h * a.out.strides[1] +
                 i * a.out.strides[2];
        row.each(a.d,
                 [&](int64_t e) { out[e] = portable::rounded<S>(o[e] * by); });
        if (a.lse)
          row.put(static_cast<T*>(a.lse) + h * a.t + i,
                  all == 0 ? lowest<T>() : most + fn::log(all));
      },
      (a.d + kBlock) * static_cast<int64_t>(sizeof(T)));
}

}  // namespace

void PortableKernels::run(Stream s, const PagedAttention& a) const {
  visit_float(a.type, "paged attention", [&]<class S>() { forward<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
