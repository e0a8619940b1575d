// SPDX-License-Identifier: Apache-2.0
// The shared memory through which two processes of one machine exchange
// messages.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace dtensor {

// The messages of one channel, from one sender to one receiver. Message t lies
// in slot t % kSlots. If the slot's `turn` is t, it is free for message t; if
// `turn` is t + 1, message t is there; if `turn` is t + kSlots, message t has
// been read, and the slot is free for message t + kSlots.
struct Ring {
  static constexpr uint64_t kSlots = 8;
  static constexpr int64_t kShort = 4096;  // the most bytes of a short message
  struct Slot {
    alignas(64) std::atomic<uint64_t> turn;
    int64_t bytes;
    const void* there;  // of a long message: its address in the sender's memory
    alignas(64) char data[kShort];
  };
  alignas(64) uint64_t sent;      // messages sent; only the sender uses it
  alignas(64) uint64_t received;  // used by the receiver
  Slot slots[kSlots];

  Slot& slot(uint64_t t) { return slots[t % kSlots]; }
};

// bytes_of_rings() returns the bytes that hold that many rings in memory of any
// alignment (shared memory may begin anywhere). first_ring() returns the
// address of the first ring in such memory.
inline size_t bytes_of_rings(size_t rings) {
  return rings * sizeof(Ring) + alignof(Ring);
}
inline Ring* first_ring(void* memory) {
  size_t room = sizeof(Ring) + alignof(Ring);
  return static_cast<Ring*>(
      std::align(alignof(Ring), sizeof(Ring), memory, room));
}

}  // namespace dtensor
