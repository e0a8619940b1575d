// SPDX-License-Identifier: Apache-2.0
#include "dtensor/device/out_of_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>

#include "dtensor/device/running_op.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

constexpr const char* kTry =
    "use a smaller batch, split the tensors over more ranks (--mesh), or, in "
    "training, split the optimizer's state (ZeRO), or recompute or offload "
    "activations";

std::string of_rank() {
  const int64_t rank = running_rank();
  return rank < 0 ? "" : fmt::format(" of rank {}", rank);
}

// The address space that the process uses, in bytes; 0 if unknown.
int64_t process_bytes() {
  // Must not allocate from the heap.
  char text[64] = {};
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t n = read(file, text, sizeof(text) - 1);
  close(file);
  return n > 0 ? std::strtoll(text, nullptr, 10) * sysconf(_SC_PAGESIZE) : 0;
}

// The bytes of one reserve: enough to destroy a JSON array of two million
// elements.
constexpr size_t kReserve = size_t{32} << 20;
std::atomic<void*> reserves[2];

// Writes the error text for a std::bad_alloc, without allocating, and returns
// its end.
constexpr size_t kMostText = 512;
char* sentence(char* text) {
  const std::string rank = of_rank();
  rlimit limit{};
  const bool limited =
      getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const int64_t used = process_bytes();
  return fmt::format_to_n(
             text, kMostText,
             "[allocate] there is no more memory{}{}: the process uses {} of "
             "address space{}{}{}; {}",
             rank.empty() ? "" : " for", rank.empty() ? "" : rank.substr(3),
             used > 0 ? amount(used) : "an unknown part",
             limited ? " and may use " : "",
             limited ? amount(static_cast<int64_t>(limit.rlim_cur)) : "",
             limited ? " (ulimit -v)" : "", kTry)
      .out;
}

void release(std::atomic<void*>& reserve) {
  if (void* p = reserve.exchange(nullptr)) munmap(p, kReserve);
}

// The new handler: operator new calls this function if it finds no memory, and
// tries again when the function returns.
void give_reserve() {
  if (void* p = reserves[0].exchange(nullptr)) {
    munmap(p, kReserve);
    return;
  }
  release(reserves[1]);
  throw std::bad_alloc();
}

std::new_handler others_new = nullptr;
std::terminate_handler others_end = nullptr;

// The terminate handler. Among other cases, it runs if a destructor throws in
// spite of the reserves, since nothing can catch that exception.
void end() {
  if (const std::exception_ptr error = std::current_exception()) try {
      std::rethrow_exception(error);
    } catch (const std::bad_alloc&) {
      char text[kMostText];
      const auto to = [](const char* from, size_t n) {
        return write(STDERR_FILENO, from, n) == static_cast<ssize_t>(n);
      };
      const auto n = static_cast<size_t>(sentence(text) - text);
      const char* name = program_invocation_short_name;
      if (to(name, std::strlen(name)) && to(": ", 2) && to(text, n))
        to("\n", 1);
      _exit(1);
    } catch (...) {
    }
  others_end();
}

}  // namespace

std::string amount(int64_t bytes) {
  if (bytes < 1024) return quantity(bytes, "byte", "bytes");
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double n = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // An amount that rounds to 1024.0 is 1.0 of the next unit.
  for (; n >= 1023.95 && unit + 1 < std::size(kUnits); ++unit) n /= 1024;
  return fmt::format("{:.1f} {}", n, kUnits[unit]);
}

std::string requester(std::string_view op) {
  return op.empty() ? "a tensor" : fmt::format("'{}'", op);
}

void out_of_memory(int64_t bytes, std::string_view what,
                   std::string_view state) {
  if (what.empty()) what = running_op();
  fail("allocate", "{} for {}{} cannot be allocated{}{}; {}", amount(bytes),
       requester(what), of_rank(), state.empty() ? "" : ": ", state, kTry);
}

std::string out_of_memory_text() {
  char text[kMostText];
  return {text, sentence(text)};
}

MemoryReserve::MemoryReserve() {
  for (std::atomic<void*>& r : reserves) {
    void* p = mmap(nullptr, kReserve, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    r = p == MAP_FAILED ? nullptr : p;
  }
  others_new = std::set_new_handler(give_reserve);
  others_end = std::set_terminate(end);
}

MemoryReserve::~MemoryReserve() {
  std::set_terminate(others_end);
  std::set_new_handler(others_new);
  for (std::atomic<void*>& r : reserves) release(r);
}

}  // namespace dtensor
