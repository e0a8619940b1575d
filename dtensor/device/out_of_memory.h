// Errors of memory that cannot be had: how much it was, what for, of which
// rank, and what to try. And memory to tell of them with.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace dtensor {

// "3.2 GiB"; below 1 KiB "17 bytes".
std::string amount(int64_t bytes);

// Throws Error: `bytes` bytes cannot be allocated for `what` (empty: for the
// operator that the calling thread runs). `state` says what memory there is.
[[noreturn]] void out_of_memory(int64_t bytes, std::string_view what,
                                std::string_view state = "");

// The sentence for a std::bad_alloc of the calling thread, which does not know
// how much it was: how much memory the process has, and what to try.
std::string out_of_memory_text();

// While it lives, a failing operator new gets more memory once, and once more
// after it has failed: for the error's text, and for destructors, which may not
// fail (that of a JSON value allocates). It takes addresses, and no memory. If
// a destructor fails after all, the process writes the sentence and ends with
// exit code 1. One at a time.
class MemoryReserve {
 public:
  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;
};

}  // namespace dtensor
