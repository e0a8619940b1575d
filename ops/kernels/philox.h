// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define DT_PHILOX_HD __host__ __device__
#else
#define DT_PHILOX_HD
#endif

namespace dtensor::kernels {

struct Philox4 {
  uint32_t x[4];
};

// The block of four words for `counter` (c0 first) and the key (k0, k1).
DT_PHILOX_HD inline Philox4 philox4x32(Philox4 counter, uint32_t k0,
                                       uint32_t k1) {
  Philox4 c = counter;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c.x[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.x[1] ^ k0,
          static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.x[3] ^ k1,
          static_cast<uint32_t>(p0)}};
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
      {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
        static_cast<uint32_t>(stream_id),
        static_cast<uint32_t>(stream_id >> 32)}},
      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

}  // namespace dtensor::kernels
