// SPDX-License-Identifier: Apache-2.0
// Makes the Errors for CUDA failures. Includes no CUDA header, so that the test
// of this file also runs where CUDA is not installed.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::cuda {

// The operators that enqueued work on a stream since waited() (streams.h) was
// last called for it, the last kNames at most. If work fails, CUDA says so
// later, and not which work it was. May be used by several threads.
class Given {
 public:
  void note(std::string_view op);
  void clear();
  // Oldest first, each name once.
  std::vector<std::string> names() const;

 private:
  // Names are copied, because a name might be freed with its operator. They are
  // cut to kLetters and stored inline, because every kernel notes one.
  static constexpr size_t kNames = 32, kLetters = 31;
  struct Name {
    std::array<char, kLetters> letters;
    uint8_t size;
    std::string_view text() const { return {letters.data(), size}; }
  };
  mutable std::mutex mutex_;
  std::array<Name, kNames> names_;
  size_t noted_ = 0;  // the last one is at noted_ - 1, modulo kNames
};

struct Failure {
  std::string_view name, text;  // of CUDA's error
  int device;
  std::string_view what;  // the request, such as "copy"
  std::string_view op;    // the running operator, or ""
};

// Throws the Error for a call that CUDA rejected.
[[noreturn]] void refused(const Failure&);
// Throws the Error for work that failed before the call Failure::what. CUDA
// reports such a failure only in a later call. `given` has the operators whose
// work may have failed (see Given::names()).
[[noreturn]] void failed_later(const Failure&,
                               const std::vector<std::string>& given);

}  // namespace dtensor::cuda
