// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/gemm_bf16.h"

#include <array>
#include <dnnl.hpp>
#include <unordered_map>

#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels::cpu {
namespace {

// m, n, k, lda, ldb, ldc, flags
using Key = std::array<int64_t, 7>;
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = 0;
    for (int64_t x : key) {
      h = (h ^ static_cast<uint64_t>(x)) * 0x9E3779B97F4A7C15u;
      h ^= h >> 32;
    }
    return h;
  }
};

struct Entry {
  dnnl::matmul primitive;
  dnnl::memory a, b, c;
  // If not empty, b is packed before each product.
  dnnl::reorder pack = {};
  dnnl::memory packed = {};
};

// oneDNN's primitive cache shares primitives between threads. The thread
// sanitizer reports this in version 2.6.3. TensorFlow disabled the cache from
// 2.6 until 2.7.1 because of memory corruption (its pull requests 57044 and
// 58269), and not everything that later versions' AMX kernels share is
// thread-safe (oneDNN issue 5393, about ukernels). Ranks are threads, so the
// cache is off.
void share_no_primitives() {
  [[maybe_unused]] static const bool off = [] {
    dnnl::set_primitive_cache_capacity(0);
    return true;
  }();
}

// Per thread, because a primitive's memory objects hold the operands'
// addresses.
struct Cache {
  Cache() { share_no_primitives(); }
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Key, Entry, KeyHash> entries;
  bool supported = true;
};

constexpr size_t kMaxEntries = 1024;

// Whether b is packed as a whole, to about 16 MiB of scratch memory at most,
// which the thread keeps, instead of piece by piece in the product. A
// transposed b takes longer to pack.
bool packs(int64_t m, int64_t n, int64_t k, bool tb) {
  return !tb && m >= 512 && n * k >= 1 << 19 && n * k <= 1 << 23;
}

Entry make(const Cache& cache, const Key& key, bool ta, bool tb,
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
      dnnl::matmul::desc(a, packs(m, n, k, tb) ? any : b, c), attr,
      cache.engine);
  const auto at = [&](const memory::desc& d) {
    return memory(d, cache.engine, nullptr);
  };
  Entry e{dnnl::matmul(pd), at(a), at(b), at(c)};
  if (const memory::desc best = pd.weights_desc(); best != b) {
    e.packed = at(best);
    e.pack = dnnl::reorder(e.b, e.packed);
  }
  return e;
}

// Calls the C function: the C++ one builds a map of arguments in every call.
template <size_t N>
bool execute(const dnnl::primitive& p, const dnnl::stream& stream,
             const dnnl_exec_arg_t (&args)[N]) {
  return dnnl_primitive_execute(p.get(), stream.get(), N, args) == dnnl_success;
}

}  // namespace

bool gemm_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const bf16* a,
               int64_t lda, const bf16* b, int64_t ldb, bool accumulate,
               DType c_type, void* c, int64_t ldc) {
  thread_local Cache cache;
  if (!cache.supported) return false;
  const int64_t flags = int64_t{ta} | int64_t{tb} << 1 |
                        int64_t{accumulate} << 2 |
                        int64_t{c_type == DType::kF32} << 3;
  const Key key = {m, n, k, lda, ldb, ldc, flags};
  auto it = cache.entries.find(key);
  if (it == cache.entries.end()) {
    // Shapes rarely change, so dropping all entries is as good as any policy.
    if (cache.entries.size() >= kMaxEntries) cache.entries.clear();
    try {
      it = cache.entries
               .emplace(key, make(cache, key, ta, tb, accumulate, c_type))
               .first;
    } catch (const dnnl::error&) {
      cache.supported = false;
      return false;
    }
  }
  Entry& e = it->second;
  e.a.set_data_handle(const_cast<bf16*>(a));
  e.b.set_data_handle(const_cast<bf16*>(b));
  e.c.set_data_handle(c);
  const bool packed = static_cast<bool>(e.pack);
  if (packed) {
    const auto bytes = static_cast<int64_t>(e.packed.get_desc().get_size());
    e.packed.set_data_handle(scratch<char>(kScratchProduct, bytes));
    if (!execute(e.pack, cache.stream,
                 {{DNNL_ARG_FROM, e.b.get()}, {DNNL_ARG_TO, e.packed.get()}}))
      return false;
  }
  return execute(e.primitive, cache.stream,
                 {{DNNL_ARG_SRC, e.a.get()},
                  {DNNL_ARG_WEIGHTS, packed ? e.packed.get() : e.b.get()},
                  {DNNL_ARG_DST, e.c.get()}});
}

}  // namespace dtensor::kernels::cpu
