// SPDX-License-Identifier: Apache-2.0
// Bounds the work and the memory that a tokenizer.json causes, in proportion to
// the input. The file belongs to a checkpoint, which may come from anybody.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtensor::nn::text {

class Effort {
 public:
  explicit Effort(size_t input_bytes) : input_(input_bytes) {}
  // Adds to the size of the input.
  void widen(size_t bytes) { input_ += bytes; }

  // While a Scope exists, its Effort counts the work of the Scope's thread. A
  // newer Scope of the same thread takes over until it ends.
  class Scope {
   public:
    explicit Scope(Effort& effort) : outer_(current_) { current_ = &effort; }
    ~Scope() { current_ = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Effort* outer_;
  };

  // Counts steps through a table or a pattern. Throws Error, beginning with
  // `where`, if the Effort has counted more than 4 million, plus 1,000 for each
  // byte of the input. Without a Scope, the static functions do nothing.
  static void take(uint64_t steps, std::string_view where) {
    if (!current_) return;
    current_->steps_ += steps;
    if (current_->steps_ > kSteps + 1000 * current_->input_) [[unlikely]]
      current_->refuse_steps(where);
  }

  // Call it now and then while a pattern is looked for. Throws Error, beginning
  // with `where`, if the thread has used more than 1 s of processor time since
  // the Effort's first call, plus 20 us for each byte of the input.
  static void check_time(std::string_view where) {
    if (current_) current_->compare_time(where);
  }

  // Counts bytes that a step of the tokenizer wrote. Throws Error, beginning
  // with `where`, if the Effort has counted more than 64 KiB, plus 256 bytes
  // for each byte of the input.
  static void write(size_t bytes, std::string_view where) {
    if (current_) current_->count(bytes, where);
  }
  // Like write(), but always counts for this object; needs no Scope.
  void count(size_t bytes, std::string_view where) {
    bytes_ += bytes;
    if (bytes_ > kBytes + 256 * input_) [[unlikely]]
      refuse_bytes(where);
  }

 private:
  static constexpr uint64_t kSteps = 4'000'000;
  static constexpr size_t kBytes = size_t{64} << 10;
  void compare_time(std::string_view where);
  [[noreturn]] void refuse_steps(std::string_view where) const;
  [[noreturn]] void refuse_bytes(std::string_view where) const;

  static inline constinit thread_local Effort* current_ = nullptr;
  size_t input_, bytes_ = 0;
  uint64_t steps_ = 0;
  double begun_ = -1;  // processor time at the first check_time(), in seconds
};

}  // namespace dtensor::nn::text
