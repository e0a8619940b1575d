// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "dtensor/device/out_of_memory.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels::cpu {
namespace {

struct Block {
  void* data = nullptr;
  int64_t size = 0;
  ~Block() { std::free(data); }
};

}  // namespace

void* scratch_bytes(ScratchSlot slot, int64_t bytes) {
  thread_local Block blocks[kNumScratchSlots];
  Block& b = blocks[slot];
  if (b.size < bytes || b.data == nullptr) {
    const int64_t size =
        (std::max(bytes + bytes / 4, int64_t{4096}) + 63) & -64;
    std::free(b.data);
    b.data = std::aligned_alloc(64, static_cast<size_t>(size));
    b.size = b.data ? size : 0;
    if (!b.data) out_of_memory(size, "");
  }
  return b.data;
}

}  // namespace dtensor::kernels::cpu
