// What two processes of one machine send each other through, in memory that
// they share.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace dtensor {

// Messages of one channel, by one sender to one receiver. Message t lies in
// slot t % kSlots, whose `turn` says what is next with it: t, it is free for
// message t; t + 1, message t is there; t + kSlots, it was taken.
struct Ring {
  static constexpr uint64_t kSlots = 8;
  static constexpr int64_t kShort = 4096;  // bytes
  struct Slot {
    alignas(64) std::atomic<uint64_t> turn;
    int64_t bytes;
    const void* there;  // of a long one: where it is in the sender's memory
    alignas(64) char data[kShort];
  };
  alignas(64) uint64_t sent;      // the sender's
  alignas(64) uint64_t received;  // the receiver's
  Slot slots[kSlots];

  Slot& slot(uint64_t t) { return slots[t % kSlots]; }
};

// The bytes that so many rings take wherever memory begins, and where in them
// the first one lies: what shares memory may begin it anywhere.
inline size_t bytes_of_rings(size_t rings) {
  return rings * sizeof(Ring) + alignof(Ring);
}
inline Ring* first_ring(void* memory) {
  size_t room = sizeof(Ring) + alignof(Ring);
  return static_cast<Ring*>(
      std::align(alignof(Ring), sizeof(Ring), memory, room));
}

}  // namespace dtensor
