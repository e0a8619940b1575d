// The last collective that a thread called: written by it, ahead of every one,
// and read by others while it goes on.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/placement/step_kind.h"

namespace dtensor {

struct Group;

class LastCall {
 public:
  struct Value {
    const Group* group = nullptr;  // null: there was none
    StepKind kind = StepKind::kBarrier;
    uint64_t sequence = 0;
    std::string op;  // at most 64 bytes of it
  };
  // By one thread.
  void set(const Group&, StepKind, uint64_t sequence, std::string_view op);
  // As of one call, by any thread.
  Value get() const;

 private:
  static constexpr size_t kWords = 8;

  // Odd while it is written: who reads, reads again then, or when it is another
  // one after than before.
  std::atomic<uint64_t> version_{0};
  std::atomic<const Group*> group_{nullptr};
  std::atomic<uint64_t> sequence_{0};
  std::atomic<uint32_t> kind_{0}, bytes_{0};
  std::atomic<uint64_t> op_[kWords] = {};
};

}  // namespace dtensor
