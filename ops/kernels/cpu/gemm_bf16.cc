// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/gemm_bf16.h"

#include <dnnl.hpp>

#include "dtensor/ops/kernels/cpu/dnnl_cache.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels::cpu {
namespace {

struct Entry {
  dnnl::matmul primitive;
  dnnl::memory a, b, c;
  // If not empty, b is packed before each product.
  dnnl::reorder pack = {};
  dnnl::memory packed = {};
};

// m, n, k, lda, ldb, ldc, flags
using Cache = DnnlCache<7, Entry>;
using Key = Cache::Key;

// Whether b is packed as a whole, to about 16 MiB of scratch memory at most,
// which the thread keeps, instead of piece by piece in the product. A
// transposed b takes longer to pack.
bool packs(int64_t m, int64_t n, int64_t k, bool tb) {
  return !tb && m >= 512 && n * k >= 1 << 19 && n * k <= 1 << 23;
}

Entry make(const dnnl::engine& engine, const Key& key, bool ta, bool tb,
           bool accumulate, DType c_type) {
  using dnnl::memory;
  const auto [m, n, k, lda, ldb, ldc, flags] = key;
  const auto bf = memory::data_type::bf16;
  const auto ct = c_type == DType::kF32 ? memory::data_type::f32 : bf;
  const memory::desc a({m, k}, bf,
                       ta ? memory::dims{1, lda} : memory::dims{lda, 1});
  const memory::desc b({k, n}, bf,
                       tb ? memory::dims{1, ldb} : memory::dims{ldb, 1});
  const memory::desc c({m, n}, ct, memory::dims{ldc, 1});
  dnnl::primitive_attr attr;
  if (accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  const memory::desc any({k, n}, bf, memory::format_tag::any);
  const dnnl::matmul::primitive_desc pd(
      dnnl::matmul::desc(a, packs(m, n, k, tb) ? any : b, c), attr, engine);
  const auto at = [&](const memory::desc& d) {
    return memory(d, engine, nullptr);
  };
  Entry e{dnnl::matmul(pd), at(a), at(b), at(c)};
  if (const memory::desc best = pd.weights_desc(); best != b) {
    e.packed = at(best);
    e.pack = dnnl::reorder(e.b, e.packed);
  }
  return e;
}

}  // namespace

bool gemm_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const bf16* a,
               int64_t lda, const bf16* b, int64_t ldb, bool accumulate,
               DType c_type, void* c, int64_t ldc) {
  thread_local Cache cache;
  const int64_t flags = int64_t{ta} | int64_t{tb} << 1 |
                        int64_t{accumulate} << 2 |
                        int64_t{c_type == DType::kF32} << 3;
  const Key key = {m, n, k, lda, ldb, ldc, flags};
  Entry* const found = cache.find(key, [&](const dnnl::engine& engine) {
    return make(engine, key, ta, tb, accumulate, c_type);
  });
  if (!found) return false;
  Entry& e = *found;
  e.a.set_data_handle(const_cast<bf16*>(a));
  e.b.set_data_handle(const_cast<bf16*>(b));
  e.c.set_data_handle(c);
  const bool packed = static_cast<bool>(e.pack);
  if (packed) {
    const auto bytes = static_cast<int64_t>(e.packed.get_desc().get_size());
    e.packed.set_data_handle(scratch<char>(kScratchProduct, bytes));
    if (!cache.execute(e.pack, {{DNNL_ARG_FROM, e.b.get()},
                                {DNNL_ARG_TO, e.packed.get()}}))
      return false;
  }
  return cache.execute(e.primitive,
                       {{DNNL_ARG_SRC, e.a.get()},
                        {DNNL_ARG_WEIGHTS, packed ? e.packed.get() : e.b.get()},
                        {DNNL_ARG_DST, e.c.get()}});
}

}  // namespace dtensor::kernels::cpu
