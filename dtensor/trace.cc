// SPDX-License-Identifier: Apache-2.0
#include "dtensor/trace.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/flight_ring.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/placement/hash.h"
#include "dtensor/rank_context.h"
#include "dtensor/tracer.h"

namespace dtensor {
namespace {

// Threads reserve the right to keep events in lots of this size, so that they
// seldom change the counter that they share.
constexpr int64_t kLot = 256;

// The bytes that this member received.
int64_t received(const Collective& c) {
  int64_t bytes = 0;
  for (const Transfer& t : c.transfers) bytes += t.counted;
  for (const Buffer& b : c.buffers) bytes += b.counted;
  return bytes;
}

std::string joined(std::span<const SpecRef> specs) {
  std::string text;
  for (const Spec* s : specs)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", s->to_string());
  return text;
}

}  // namespace

int64_t Trace::now() {
  return std::chrono::steady_clock::now().time_since_epoch() /
         std::chrono::nanoseconds(1);
}

Trace::Trace(int64_t most_events) : most_(most_events), start_(now()) {
  DT_CHECK(most_events >= 0, "trace",
           "the number of events to keep is {}; write 0 or more", most_events);
}
Trace::~Trace() = default;

Tracer& Trace::open(RankContext& context) {
  std::lock_guard lock(mutex_);
  // (Each Trace numbers its runs, since run ids may differ between processes.)
  if (std::exchange(run_, context.run_id) != context.run_id) ++runs_;
  auto made = std::make_unique<Tracer>(*this, context, runs_);
  return *tracers_.emplace_back(std::move(made));
}

int64_t Trace::take(int64_t events) {
  const int64_t before = taken_.fetch_add(events, std::memory_order_relaxed);
  return std::clamp<int64_t>(most_ - before, 0, events);
}

Tracer::Tracer(Trace& trace, RankContext& context, int64_t run)
    : trace_(trace),
      context_(&context),
      whose_{context.world_rank, context.lane, run, now(), 0} {
  whose_.closed = whose_.opened;
  text("");  // number 0 stands for no text
}

Observer* Tracer::for_second_thread(RankContext& context) {
  return &trace_.open(context);
}

int64_t Tracer::now() const { return Trace::now() - trace_.start_; }

uint32_t Tracer::text(std::string_view s) {
  if (const auto it = text_numbers_.find(s); it != text_numbers_.end())
    return it->second;
  texts_.emplace_back(s);
  const auto number = static_cast<uint32_t>(texts_.size() - 1);
  text_numbers_.emplace(texts_.back(), number);
  return number;
}

// The number of the text with this key. Calls make() only once for a key.
template <class Make>
uint32_t Tracer::text_of(uint64_t key, Make&& make) {
  const auto [it, fresh] = layout_texts_.try_emplace(key, 0);
  if (fresh) it->second = text(make());
  return it->second;
}

void Tracer::add(Event e) {
  whose_.closed = std::max(whose_.closed, e.end);
  if (may_keep_ == 0) may_keep_ = trace_.take(kLot);
  if (may_keep_ > 0) {
    --may_keep_;
    events_.push_back(e);
    return;
  }
  if (dropped_++ == 0) dropped_from_ = e.begin;
}

void Tracer::ran(RankContext&, const OpRan& op) {
  uint64_t key = op.given.size();
  for (const DistTensor& t : op.given) key = hash_mix(key, t.spec()->hash());
  for (const SpecRef& s : op.choice.out) key = hash_mix(key, s->hash());
  const uint32_t layouts = text_of(key, [&] {
    std::vector<SpecRef> in;
    for (const DistTensor& t : op.given) in.push_back(t.spec());
    return joined(in) + " -> " + joined(op.choice.out);
  });
  add({.sort = Sort::kOp,
       .name = text(op.op),
       .phase = text(context_->phase),
       .path = text(context_->path),
       .layouts = layouts,
       .begin = op.begin - trace_.start_,
       .end = now(),
       .bytes = op.bytes,
       .number = op.ordinal});
}

void Tracer::span(RankContext&, int64_t begin, std::string_view name,
                  int64_t number) {
  add({.sort = Sort::kSpan,
       .name = text(name),
       .phase = text(context_->phase),
       .path = text(context_->path),
       .begin = begin - trace_.start_,
       .end = now(),
       .number = number});
}

void Tracer::begins(const Collective&) {
  begin_ = now();
  agreed_ = -1;
}

void Tracer::agreed(const Collective&) noexcept { agreed_ = now(); }

void Tracer::ends(const Collective& c) noexcept {
  const int64_t end = now();
  try {
    const Call& call = *c.call;
    const uint32_t op = text(call.op), phase = text(context_->phase);
    const uint64_t kind = static_cast<uint64_t>(call.kind);
    // (The constant separates these keys from those of operators.)
    const uint32_t layouts =
        call.describe ? text_of(hash_mix(call.fingerprint, kind + 0x636f6d6d),
                                [&] { return call.describe(call.what); })
                      : 0;
    FlightRing* const flight =
        context_->backend->flight(context_->world_rank, context_->lane);
    while (flight && groups_.size() <= c.group)
      groups_.push_back(flight->group(static_cast<uint32_t>(groups_.size())));
    add({.sort = Sort::kCollective,
         .threw = std::uncaught_exceptions() > 0,
         .name = text(dtensor::name(call.kind)),
         .phase = phase,
         .path = text(context_->path),
         .layouts = layouts,
         .group = c.group,
         .op = op,
         .begin = begin_,
         .end = end,
         .agreed = agreed_,
         .bytes = std::max<int64_t>(received(c), 0),
         .number = static_cast<int64_t>(c.sequence)});
    Wait& w = waits_[static_cast<uint64_t>(op) << 32 | phase];
    const int64_t waited = (agreed_ < 0 ? end : agreed_) - begin_;
    ++w.collectives;
    w.ns += waited;
    w.longest = std::max(w.longest, waited);
  } catch (...) {  // out of memory: drop the event
    ++dropped_;
  }
}

TraceSpan::TraceSpan(std::string_view name, int64_t number)
    : TraceSpan(RankContext::current(), name, number) {}

TraceSpan::TraceSpan(RankContext& context, std::string_view name,
                     int64_t number)
    : context_(context),
      name_(name),
      number_(number),
      begin_(context.observers.now()) {}

TraceSpan::~TraceSpan() {
  if (begin_ < 0) return;  // no observer when the span began
  for (Observer* o : context_.observers)
    o->span(context_, begin_, name_, number_);
}

}  // namespace dtensor
