// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define DT_PHILOX_HD __host__ __device__
#else
#define DT_PHILOX_HD
#endif

namespace dtensor::kernels {

// A block of four 32-bit random words. If W is uint32_t, this is one block. If
// W is a vector of uint64_t, these are several blocks, one for each element of
// the vector.
template <class W>
struct PhiloxWords {
  W x[4];
};
using Philox4 = PhiloxWords<uint32_t>;

// The block of four words for `counter` (low word first) and key (k0, k1).
template <class W>
DT_PHILOX_HD inline PhiloxWords<W> philox4x32(PhiloxWords<W> counter,
                                              uint32_t k0, uint32_t k1) {
  using Product = std::conditional_t<std::is_same_v<W, uint32_t>, uint64_t, W>;
  constexpr uint64_t kLow = 0xffffffffu;
  PhiloxWords<W> c = counter;
  for (int round = 0; round < 10; ++round) {
    const Product p0 = Product(c.x[0]) * uint64_t{0xD2511F53u};
    const Product p1 = Product(c.x[2]) * uint64_t{0xCD9E8D57u};
    c = {{W(p1 >> 32) ^ c.x[1] ^ k0, W(p1 & kLow), W(p0 >> 32) ^ c.x[3] ^ k1,
          W(p0 & kLow)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// This library's convention: the key is the seed, and the counter is (block,
// stream id), both with the low word first.
DT_PHILOX_HD inline Philox4 philox_block(uint64_t seed, uint64_t stream_id,
                                         uint64_t block) {
  return philox4x32(
      Philox4{{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
               static_cast<uint32_t>(stream_id),
               static_cast<uint32_t>(stream_id >> 32)}},
      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

}  // namespace dtensor::kernels
