// SPDX-License-Identifier: Apache-2.0
// Errors for failed allocations. They say, as far as is known, how much memory
// was needed, for what and by which rank. They also say what to try. Also
// reserves memory for reporting them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace dtensor {

// "3.2 GiB"; amounts below 1 KiB as "17 bytes".
std::string amount(int64_t bytes);

// Names the operator that asked for memory: "'matmul'", or "a tensor" if `op`
// is empty.
std::string requester(std::string_view op);

// Throws the Error that `bytes` bytes cannot be allocated for `what` (if empty,
// for the operator that the calling thread runs). `state` describes the memory
// in use.
[[noreturn]] void out_of_memory(int64_t bytes, std::string_view what,
                                std::string_view state = "");

// The error text for a std::bad_alloc in the calling thread, when the requested
// size is unknown: how much address space the process uses, and what to try.
std::string out_of_memory_text();

// While an object lives, it holds two reserves for operator new. When operator
// new fails for the first time, the object frees one reserve, and operator new
// tries again. At the next failure, the object frees the other reserve and
// throws std::bad_alloc. That reserve is for the error's text, and for
// destructors that allocate, such as that of a JSON value. The reserves occupy
// address space, but no memory. If a destructor runs out of memory
// nevertheless, the process prints the error text and exits with code 1. Only
// one object may live at a time.
class MemoryReserve {
 public:
  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;
};

}  // namespace dtensor
