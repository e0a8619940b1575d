// The last collective that a thread called. The thread writes it before each
// collective; other threads may read it at any time.
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
    const Group* group = nullptr;  // null: no collective yet
    StepKind kind = StepKind::kBarrier;
    uint64_t sequence = 0;
    std::string op;  // at most its first 64 bytes
  };
  // Called by the thread itself.
  void set(const Group&, StepKind, uint64_t sequence, std::string_view op);
  // Returns a consistent value. Any thread may call it.
  Value get() const;

 private:
  static constexpr size_t kWords = 8;

  // Odd while a value is being written. A reader tries again if the version is
  // odd, or changes while it reads.
  std::atomic<uint64_t> version_{0};
  std::atomic<const Group*> group_{nullptr};
  std::atomic<uint64_t> sequence_{0};
  std::atomic<uint32_t> kind_{0}, bytes_{0};
  std::atomic<uint64_t> op_[kWords] = {};
};

}  // namespace dtensor
