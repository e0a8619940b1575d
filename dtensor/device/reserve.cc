#include "dtensor/device/reserve.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// CUDA's blocks have this alignment.
constexpr int64_t kAlignment = 512;

int64_t rounded(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment *
         kAlignment;
}

// The reserves of all devices. Never destroyed, like devices.
struct Reserves {
  std::mutex mutex;
  std::map<const Device*, std::weak_ptr<Reserve>> all;
};
Reserves& reserves() {
  static auto* const reserves = new Reserves;
  return *reserves;
}

}  // namespace

std::shared_ptr<Reserve> Reserve::add(Device& device, void* memory,
                                      int64_t bytes,
                                      std::function<void()> free) {
  Reserves& known = reserves();
  std::lock_guard lock(known.mutex);
  std::weak_ptr<Reserve>& of = known.all[&device];
  if (const auto before = of.lock())
    fail("reserve",
         "the device has already reserved {} bytes and cannot reserve {} more; "
         "reserve all of them at once",
         before->bytes(), bytes);
  std::shared_ptr<Reserve> made(
      new Reserve(device, memory, bytes, std::move(free)));
  of = made;
  return made;
}

std::shared_ptr<Reserve> Reserve::of(const Device& device) {
  Reserves& known = reserves();
  std::lock_guard lock(known.mutex);
  const auto it = known.all.find(&device);
  return it == known.all.end() ? nullptr : it->second.lock();
}

Reserve::Reserve(Device& device, void* memory, int64_t bytes,
                 std::function<void()> free)
    : device_(device),
      data_(static_cast<char*>(memory)),
      bytes_(bytes),
      free_(std::move(free)) {
  gaps_[data_] = bytes;
}

Reserve::~Reserve() {
  try {
    wait();
  } catch (...) {
    // The device has failed: nothing runs there.
  }
  free_();
}

// Merges released blocks that no stream uses any more with neighbouring gaps.
// Blocks still in use are not merged, or the neighbours could not be reused
// before them.
void Reserve::sweep() {
  std::erase_if(pending_, [&](const Pending& p) {
    if (!device_.passed(p.until)) return false;
    auto next = gaps_.emplace(p.at, p.bytes).first;
    if (next != gaps_.begin())
      if (const auto last = std::prev(next);
          last->first + last->second == p.at) {
        last->second += p.bytes;
        gaps_.erase(next);
        next = last;
      }
    if (const auto after = std::next(next);
        after != gaps_.end() && next->first + next->second == after->first) {
      next->second += after->second;
      gaps_.erase(after);
    }
    return true;
  });
}

// Takes from the smallest gap that is large enough.
char* Reserve::take_gap(int64_t bytes) {
  auto best = gaps_.end();
  for (auto it = gaps_.begin(); it != gaps_.end(); ++it)
    if (it->second >= bytes &&
        (best == gaps_.end() || it->second < best->second))
      best = it;
  if (best == gaps_.end()) return nullptr;
  const auto [at, all] = *best;
  if (all > bytes) gaps_.emplace(at + bytes, all - bytes);
  gaps_.erase(at);
  return at;
}

char* Reserve::take_pending(int64_t bytes, Stream stream) {
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    if (it->stream != stream || it->bytes < bytes) continue;
    char* const at = it->at;
    it->at += bytes;
    it->bytes -= bytes;
    if (it->bytes == 0) pending_.erase(it);
    return at;
  }
  return nullptr;
}

void* Reserve::allocate(int64_t bytes, Stream stream) {
  if (bytes > bytes_) return nullptr;
  bytes = rounded(bytes);
  std::lock_guard lock(mutex_);
  sweep();
  char* block = take_gap(bytes);
  if (!block) block = take_pending(bytes, stream);
  if (!block) return nullptr;
  held_[block] = bytes;
  held_bytes_ += bytes;
  return block;
}

void Reserve::release(void* p, Stream stream) noexcept {
  std::lock_guard lock(mutex_);
  try {
    const auto held = held_.find(p);
    pending_.push_back(
        {static_cast<char*>(p), held->second, stream, device_.record(stream)});
    held_bytes_ -= held->second;
    held_.erase(held);
  } catch (...) {
    // The device has failed, or the host has no memory left: the block is
    // leaked.
  }
}

void Reserve::wait() {
  std::vector<Pending> all;
  {
    std::lock_guard lock(mutex_);
    all = pending_;
  }
  for (const Pending& p : all)
    if (!device_.passed(p.until) && !device_.is_captured(p.stream))
      device_.synchronize(p.stream);
}

int64_t Reserve::free() const {
  std::lock_guard lock(mutex_);
  return bytes_ - held_bytes_;
}

}  // namespace dtensor
