// What is said when CUDA fails. Needs no CUDA.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::cuda {

// The operators that gave work to a stream since the host last waited for it:
// of many, the last. Work that fails does so later, and CUDA does not say which
// it was. May be used by several threads.
class Given {
 public:
  void note(std::string_view op);
  void clear();
  // Oldest first, each once.
  std::vector<std::string> names() const;

 private:
  // Copies, for a name may not outlive its operator: cut, and without memory of
  // their own, for there is one for every kernel.
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
  std::string_view name, text;  // CUDA's
  int device;
  std::string_view what;  // was asked for: "copy"
  std::string_view op;    // the running operator, or ""
};

// Throws the Error for a call that CUDA refused.
[[noreturn]] void refused(const Failure&);
// The same for work that was taken and failed later; `what` found out. `given`
// are the operators of the device's streams.
[[noreturn]] void failed_later(const Failure&,
                               const std::vector<std::string>& given);

}  // namespace dtensor::cuda
