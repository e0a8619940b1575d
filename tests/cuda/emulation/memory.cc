// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/memory.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda/emulation/block.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace emulation {
namespace {

constexpr size_t kAlignment = 512, kChunk = 2 << 20, kMostSpoiled = 64 << 20;
// More addresses than memory: one that was given back is not used again.
constexpr size_t kAddresses = 16;

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
// The size of the block for a request. No block is empty.
size_t block_of(size_t bytes) {
  return rounded(std::max<size_t>(bytes, 1), kAlignment);
}

// The variables that the fault handler reads.
constexpr int kMost = 16;
struct Arena {
  const char *base, *end;
};
Arena arenas[kMost];
pthread_t worker;
volatile bool working = false;
volatile int works_for = 0;
sigjmp_buf escape;
struct sigaction before;

int arena_of(const void* p) {
  const char* at = static_cast<const char*>(p);
  for (int d = 0; d < kMost; ++d)
    if (arenas[d].base <= at && at < arenas[d].end) return d;
  return -1;
}

void say(const char* text) { (void)!write(STDERR_FILENO, text, strlen(text)); }
void say(const char* text, int device) {
  say(text);
  const char digits[] = {static_cast<char>('0' + device / 10),
                         static_cast<char>('0' + device % 10), 0};
  say(device < 10 ? digits + 1 : digits);
}

void on_fault(int number, siginfo_t* info, void* context) {
  const int whose = arena_of(info->si_addr);
  if (working && pthread_equal(worker, pthread_self())) {
    say("[cuda emulation] cuda:", works_for);
    if (whose < 0 || whose == works_for) {
      say(" touches memory that is not there\n");
    } else {
      say(" touches memory of cuda:", whose);
      say(", whose pool does not let it\n");
    }
    Block::here().jump();
    siglongjmp(escape, 1);
  }
  if (whose >= 0) say("[cuda emulation] the host touches memory of a GPU\n");
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
    return;
  }
  // The same instruction faults again, without this handler.
  std::signal(number, SIG_DFL);
}

void watch_faults() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
}

void protect(char* from, const char* to, int how) {
  if (from == to) return;
  if (mprotect(from, static_cast<size_t>(to - from), how) == 0) return;
  std::perror("[cuda emulation] mprotect");
  std::abort();
}

// Tells the address sanitizer which memory is not allocated.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kChecked = true;
void forbid(const void* p, size_t n) { __asan_poison_memory_region(p, n); }
void allow(const void* p, size_t n) { __asan_unpoison_memory_region(p, n); }
#else
constexpr bool kChecked = false;
void forbid(const void*, size_t) {}
void allow(const void*, size_t) {}
#endif

}  // namespace

Memory::Memory(int devices, size_t bytes_of_each, Reaches reaches)
    : total_(bytes_of_each),
      reaches_(std::move(reaches)),
      devices_(static_cast<size_t>(devices)) {
  const size_t addresses = rounded(kAddresses * total_, kChunk);
  for (int d = 0; d < devices; ++d) {
    void* base = mmap(nullptr, addresses, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || d >= kMost) {
      std::fprintf(stderr, "[cuda emulation] no addresses for cuda:%d\n", d);
      std::abort();
    }
    Device& device = at(d);
    device.base = device.next = static_cast<char*>(base);
    device.end = device.base + addresses;
    device.grants.resize(static_cast<size_t>(devices));
    device.grants[static_cast<size_t>(d)] = true;
    // Access changes by page, so large pages make that faster.
    madvise(base, addresses, MADV_HUGEPAGE);
    arenas[d] = {device.base, device.end};
  }
  if (devices > 0) watch_faults();
}

bool Memory::grant(int owner, int device, bool open) {
  if (owner == device) return open;
  if (!reaches(device, owner)) return false;
  std::lock_guard lock(mutex_);
  at(owner).grants[static_cast<size_t>(device)] = open;
  return true;
}
bool Memory::granted(int owner, int device) const {
  std::lock_guard lock(mutex_);
  return at(owner).grants[static_cast<size_t>(device)];
}

char* Memory::take_addresses(Device& device, size_t bytes) {
  if (device.reserved + device.of_graphs + bytes > total_ ||
      bytes > static_cast<size_t>(device.end - device.next))
    return nullptr;
  char* const block = device.next;
  device.next += bytes;
  return block;
}

// Joins the range with its free neighbours.
void Memory::put(Device& device, Range r) {
  if (r.bytes == 0) return;
  auto next = device.ready.lower_bound(r.at);
  if (next != device.ready.end() && next->first == r.end()) {
    r.bytes += next->second;
    next = device.ready.erase(next);
  }
  if (next != device.ready.begin()) {
    const auto last = std::prev(next);
    if (last->first + last->second == r.at) {
      last->second += r.bytes;
      return;
    }
  }
  device.ready.emplace(r.at, r.bytes);
}

// Takes what this stream released last, so that a use after the release shows.
char* Memory::take(Device& device, const void* stream, size_t bytes,
                   size_t asked) {
  for (auto it = device.released.rbegin(); it != device.released.rend(); ++it) {
    Range& left = it->second->left;
    if (it->first != stream || left.bytes < bytes) continue;
    char* const block = left.at;
    it->second->taken.push_back({block, asked});
    left = {left.at + bytes, left.bytes - bytes};
    return block;
  }
  auto best = device.ready.end();
  for (auto it = device.ready.begin(); it != device.ready.end(); ++it)
    if (it->second >= bytes &&
        (best == device.ready.end() || it->second < best->second))
      best = it;
  if (best == device.ready.end()) return nullptr;
  const Range all{best->first, best->second};
  device.ready.erase(best);
  put(device, {all.at + bytes, all.bytes - bytes});
  allow(all.at, asked);
  return all.at;
}

void* Memory::allocate(int index, const void* stream, size_t bytes,
                       std::shared_ptr<Released>& fresh) {
  fresh = nullptr;
  if (bytes > total_) return nullptr;
  const size_t asked = bytes;
  bytes = block_of(bytes);
  std::lock_guard lock(mutex_);
  Device& device = at(index);
  char* block = take(device, stream, bytes, asked);
  if (!block) {
    const size_t chunks = rounded(bytes, kChunk);
    block = take_addresses(device, chunks);
    if (!block) return nullptr;
    device.reserved += chunks;
    fresh = std::make_shared<Released>(Released{
        {block, chunks}, {block + bytes, chunks - bytes}, {{block, asked}}});
    device.released.push_back({stream, fresh});
  }
  device.used += bytes;
  blocks_[block] = {bytes, index, false};
  return block;
}

void* Memory::allocate_for_graph(int index, size_t bytes) {
  if (bytes > total_) return nullptr;
  const size_t asked = bytes;
  bytes = block_of(bytes);
  std::lock_guard lock(mutex_);
  Device& device = at(index);
  char* const block = take_addresses(device, bytes);
  if (!block) return nullptr;
  forbid(block + asked, bytes - asked);
  device.of_graphs += bytes;
  blocks_[block] = {bytes, index, true};
  return block;
}

void Memory::free_of_graph(void* p) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(static_cast<char*>(p));
  if (it == blocks_.end()) return;
  at(it->second.device).of_graphs -= it->second.bytes;
  forbid(p, it->second.bytes);
  blocks_.erase(it);
}

bool Memory::is_of_graph(const void* p) const {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(static_cast<const char*>(p));
  return it != blocks_.end() && it->second.of_graph;
}

int Memory::device_of(const void* p) const { return arena_of(p); }

bool Memory::has(const void* p, size_t bytes) const {
  const char* at = static_cast<const char*>(p);
  std::lock_guard lock(mutex_);
  auto it = blocks_.upper_bound(at);
  if (it == blocks_.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second.bytes;
}

size_t Memory::bytes_of(const void* block) const {
  std::lock_guard lock(mutex_);
  return blocks_.at(static_cast<const char*>(block)).bytes;
}

std::shared_ptr<Memory::Released> Memory::release(void* p, const void* stream) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(static_cast<char*>(p));
  if (it == blocks_.end() || it->second.of_graph || it->second.other)
    return nullptr;
  Device& device = at(it->second.device);
  const Range all{static_cast<char*>(p), it->second.bytes};
  const auto released = std::make_shared<Released>(Released{all, all, {}});
  device.used -= all.bytes;
  device.released.push_back({stream, released});
  blocks_.erase(it);
  return released;
}

void Memory::come_to(int index, const std::shared_ptr<Released>& r) {
  spoil(r->all);
  forbid(r->all.at, r->all.bytes);
  std::lock_guard lock(mutex_);
  for (const Range& t : r->taken) allow(t.at, t.bytes);
  Device& device = at(index);
  std::erase_if(device.released, [&](const auto& e) { return e.second == r; });
  put(device, r->left);
}

#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize_address))
#endif
void Memory::spoil(Range r) {
  const size_t bytes = std::min(r.bytes, kMostSpoiled);
  if (!kChecked) std::memset(r.at, 0xff, bytes);
  // Writes even where the sanitizer forbids it.
  for (size_t i = 0; kChecked && i < bytes; ++i)
    static_cast<volatile char*>(r.at)[i] = '\xff';
}

Memory::Sizes Memory::sizes(int index) const {
  std::lock_guard lock(mutex_);
  const Device& device = at(index);
  return {total_ - device.reserved - device.of_graphs, device.reserved,
          device.used, device.threshold};
}

void Memory::set_threshold(int index, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  at(index).threshold = bytes;
}

void Memory::trim(int index, uint64_t keep) {
  std::lock_guard lock(mutex_);
  Device& device = at(index);
  std::vector<Range> gone;
  for (const auto& [begin, bytes] : device.ready) {
    const size_t from = static_cast<size_t>(begin - device.base),
                 start = rounded(from, kChunk),
                 last = (from + bytes) / kChunk * kChunk;
    if (device.reserved <= keep || last <= start) continue;
    gone.push_back({device.base + start, last - start});
    device.reserved -= last - start;
  }
  for (const Range& r : gone) {
    const auto it = std::prev(device.ready.upper_bound(r.at));
    const Range all{it->first, it->second};
    device.ready.erase(it);
    put(device, {all.at, static_cast<size_t>(r.at - all.at)});
    put(device, {r.end(), static_cast<size_t>(all.end() - r.end())});
    madvise(r.at, r.bytes, MADV_DONTNEED);
  }
}

void* Memory::pin(size_t bytes) {
  bytes = block_of(bytes);
  void* const data = std::aligned_alloc(kAlignment, bytes);
  std::lock_guard lock(mutex_);
  if (data) pinned_[static_cast<char*>(data)] = bytes;
  return data;
}
bool Memory::unpin(void* p) {
  std::lock_guard lock(mutex_);
  if (pinned_.erase(static_cast<char*>(p)) == 0) return false;
  std::free(p);
  return true;
}
bool Memory::is_pinned(const void* p, size_t bytes) const {
  const char* at = static_cast<const char*>(p);
  std::lock_guard lock(mutex_);
  auto it = pinned_.upper_bound(at);
  if (it == pinned_.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second;
}

void Memory::open(int device) {
  std::lock_guard lock(mutex_);
  for (Device& d : devices_) {
    char* const upto = d.grants[static_cast<size_t>(device)] ? d.next : nullptr;
    if (upto == d.opened) continue;
    if (upto)
      protect(d.base, upto, PROT_READ | PROT_WRITE);
    else
      protect(d.base, d.opened, PROT_NONE);
    d.opened = upto;
  }
}
void Memory::close() {
  std::lock_guard lock(mutex_);
  for (Device& d : devices_) {
    if (!d.opened) continue;
    protect(d.base, d.opened, PROT_NONE);
    d.opened = nullptr;
  }
}

bool Memory::guarded(int device, const std::function<void()>& fn) {
  open(device);
  worker = pthread_self();
  works_for = device;
  if (sigsetjmp(escape, 1) != 0) {
    working = false;
    return false;
  }
  working = true;
  fn();
  working = false;
  return true;
}

}  // namespace emulation
