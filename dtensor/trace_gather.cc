// SPDX-License-Identifier: Apache-2.0
// Combines the traces of several processes.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <type_traits>
#include <utility>

#include "dtensor/comm/job.h"
#include "dtensor/placement/error.h"
#include "dtensor/trace.h"
#include "dtensor/tracer.h"

namespace dtensor {
namespace {

// A name for the clock behind steady_clock: the id of the machine's boot, and
// the time namespace, which may shift the clock. "" if unknown.
std::string clock_here() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!std::getline(file, boot)) return "";
  char space[64] = "";
  if (readlink("/proc/self/ns/time", space, sizeof(space) - 1) < 0) return boot;
  return boot + " " + space;
}

}  // namespace

// Serialised values, for another process of the same program.
class Tracer::Packed {
 public:
  Packed() = default;
  explicit Packed(std::string bytes) : bytes_(std::move(bytes)) {}
  const std::string& bytes() const { return bytes_; }

  template <class T>
  void put(const T& x) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&x), sizeof(x));
  }
  void put(const std::string& s) {
    put(s.size());
    bytes_ += s;
  }
  template <class T>
  T get() {
    T x;
    std::memcpy(&x, take(sizeof(x)), sizeof(x));
    return x;
  }
  std::string get_text() {
    const auto size = get<size_t>();
    return {take(size), size};
  }

 private:
  const char* take(size_t size) {
    DT_CHECK(size <= bytes_.size() - at_, "trace",
             "the trace of another process is truncated: it has {} of {} "
             "bytes, which is an error in dtensor; report it",
             bytes_.size() - at_, size);
    return bytes_.data() + std::exchange(at_, at_ + size);
  }

  std::string bytes_;
  size_t at_ = 0;
};

void Tracer::pack(Packed& to) const {
  to.put(whose_);
  to.put(dropped_);
  to.put(dropped_from_);
  to.put(texts_.size());
  for (const std::string& t : texts_) to.put(t);
  to.put(groups_.size());
  for (const auto& ranks : groups_) {
    to.put(ranks.size());
    for (int64_t r : ranks) to.put(r);
  }
  to.put(waits_.size());
  for (const auto& [key, w] : waits_) {
    to.put(key);
    to.put(w);
  }
  to.put(events_.size());
  for (const Event& e : events_) to.put(e);
}

Tracer::Tracer(Trace& trace, Packed& from, int64_t within)
    : trace_(trace),
      context_(nullptr),
      whose_(from.get<Whose>()),
      within_(within) {
  dropped_ = from.get<int64_t>();
  dropped_from_ = from.get<int64_t>();
  for (size_t n = from.get<size_t>(); n > 0; --n)
    texts_.push_back(from.get_text());
  groups_.resize(from.get<size_t>());
  for (auto& ranks : groups_) {
    ranks.resize(from.get<size_t>());
    for (int64_t& r : ranks) r = from.get<int64_t>();
  }
  for (size_t n = from.get<size_t>(); n > 0; --n) {
    const auto key = from.get<uint64_t>();
    waits_[key] = from.get<Wait>();
  }
  for (size_t n = from.get<size_t>(); n > 0; --n)
    events_.push_back(from.get<Event>());
}

void Tracer::shift(int64_t later) {
  whose_.opened += later;
  whose_.closed += later;
  if (dropped_from_ >= 0) dropped_from_ += later;
  for (Event& e : events_) {
    e.begin += later;
    e.end += later;
    if (e.agreed >= 0) e.agreed += later;
  }
}

void Trace::gather(ProcessJob& job) { gather(job, clock_here(), 0); }

void Trace::gather(ProcessJob& job, const std::string& clock, int64_t ahead) {
  Tracer::Packed here;
  if (job.process() > 0) {
    here.put(clock);
    here.put(start_ + ahead);
    here.put(tracers_.size());
    for (const auto& t : tracers_) t->pack(here);
  }
  const auto take = [&](ProcessJob::Gathered g) {
    Tracer::Packed from(std::move(g.text));
    const std::string theirs = from.get_text();
    const bool same = !clock.empty() && theirs == clock;
    const int64_t later =
        from.get<int64_t>() - (start_ + ahead) + (same ? 0 : g.behind);
    for (size_t n = from.get<size_t>(); n > 0; --n)
      tracers_
          .emplace_back(
              std::make_unique<Tracer>(*this, from, same ? 0 : g.within))
          ->shift(later);
  };
  job.gather("collect their traces", here.bytes(), take,
             [=] { return now() + ahead; });
  if (job.process() > 0) return tracers_.clear();
  // Another process may have begun before this one. Shift all times so that
  // none is negative.
  int64_t first = 0;
  for (const auto& t : tracers_) first = std::min(first, t->whose_.opened);
  for (const auto& t : tracers_) t->shift(-first);
  start_ += first;
}

}  // namespace dtensor
