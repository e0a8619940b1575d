// SPDX-License-Identifier: Apache-2.0
// Stores that bypass the cache. With ordinary stores, output larger than the
// cache is evicted before anyone reads it, and the processor reads each cache
// line from memory before it overwrites the line.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace dtensor {

// Streaming stores save time if the output of a call has at least this size in
// bytes, even if it is read next (measured; below 4 MiB they cost time).
inline constexpr int64_t kStreamedBytes = int64_t{8} << 20;

// Copies s to d, which do not overlap. Call streaming_fence() before another
// thread may read d.
inline void stream_bytes(char* d, const char* s, int64_t bytes) {
#if defined(__SSE2__)
  constexpr int64_t kLine = 64;
  const int64_t head =
      std::min(bytes, -static_cast<int64_t>(reinterpret_cast<uintptr_t>(d)) &
                          (kLine - 1));
  std::memcpy(d, s, static_cast<size_t>(head));
  int64_t i = head;
  for (; i + kLine <= bytes; i += kLine) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(d + i),
                        _mm512_loadu_si512(s + i));
#else
    for (int64_t j = i; j < i + kLine; j += 16)
      _mm_stream_si128(
          reinterpret_cast<__m128i*>(d + j),
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(s + j)));
#endif
  }
  std::memcpy(d + i, s + i, static_cast<size_t>(bytes - i));
#else
  std::memcpy(d, s, static_cast<size_t>(bytes));
#endif
}

inline void streaming_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace dtensor
