#include "dtensor/comm/last_call.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace dtensor {
namespace {

// The eight bytes at `at`, or the last eight if fewer remain: a copy of a size
// that the compiler does not know would take longer than everything else here.
uint64_t word_at(const char* text, size_t at, size_t bytes) {
  uint64_t word = 0;
  if (bytes >= 8)
    std::memcpy(&word, text + std::min(at, bytes - 8), 8);
  else
    for (size_t i = 0; i < bytes; ++i)
      word |= static_cast<uint64_t>(static_cast<unsigned char>(text[i]))
              << 8 * i;
  return word;
}

}  // namespace

// The stores are releases and the loads are acquires, so that a reader never
// sees a value of a later call under the old version.
void LastCall::set(const Group& group, StepKind kind, uint64_t sequence,
                   std::string_view op) {
  constexpr auto release = std::memory_order_release;
  const uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  group_.store(&group, release);
  kind_.store(static_cast<uint32_t>(kind), release);
  sequence_.store(sequence, release);
  const size_t bytes = std::min(op.size(), 8 * kWords);
  bytes_.store(static_cast<uint32_t>(bytes), release);
  for (size_t at = 0; at < bytes; at += 8)
    op_[at / 8].store(word_at(op.data(), at, bytes), release);
  version_.store(version + 2, release);
}

LastCall::Value LastCall::get() const {
  constexpr auto acquire = std::memory_order_acquire;
  for (;; std::this_thread::yield()) {
    const uint64_t version = version_.load(acquire);
    if (version % 2) continue;
    Value v;
    v.group = group_.load(acquire);
    v.kind = static_cast<StepKind>(kind_.load(acquire));
    v.sequence = sequence_.load(acquire);
    uint64_t words[kWords];
    for (size_t i = 0; i < kWords; ++i) words[i] = op_[i].load(acquire);
    const size_t bytes = bytes_.load(acquire);
    if (version_.load(acquire) != version) continue;
    v.op.resize(8 * kWords);
    for (size_t at = 0; at < bytes; at += 8)
      std::memcpy(v.op.data() + std::min(at, bytes < 8 ? 0 : bytes - 8),
                  &words[at / 8], 8);
    v.op.resize(bytes);
    return v;
  }
}

}  // namespace dtensor
