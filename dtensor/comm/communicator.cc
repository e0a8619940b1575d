// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/communicator.h"

#include <cstring>
#include <initializer_list>
#include <utility>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/flight_ring.h"
#include "dtensor/device/combine.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// Throws unless the function implements this kind of collective.
void check_kind(const Call& call, bool fits, std::string_view function) {
  DT_CHECK(fits, name(call.kind),
           "{}() does not make this kind of collective; call the function of "
           "Communicator that does",
           function);
}

// Checks that one thread at a time uses the communicator. Two threads that
// enter within a few nanoseconds may both pass: excluding that would cost every
// collective more than the check is worth.
class Use {
 public:
  Use(std::atomic<bool>& in_use, StepKind kind) : in_use_(in_use) {
    DT_CHECK(!in_use.load(std::memory_order_acquire), name(kind),
             "this communicator is used by another thread; let one thread of a "
             "rank make its collectives, one after the other");
    in_use.store(true, std::memory_order_relaxed);
  }
  ~Use() { in_use_.store(false, std::memory_order_release); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::atomic<bool>& in_use_;
};

}  // namespace

// Runs the collective between Watch::begins() and Watch::ends(), and records it
// in the flight ring. In a group of one, only moves the data.
void Communicator::run(Collective& c,
                       void (Communicator::*move)(const Collective&)) {
  check_interrupted();
  if (size_ == 1) return (this->*move)(c);
  const Use use(in_use_, c.call->kind);
  c.sequence = ++sequence_;
  c.group = flight_group_;
  c.fingerprint = agrees_ ? fingerprint_of(c) : 0;
  struct Told {
    Watch* watch;
    FlightRing* flight;
    const Collective& c;
    bool done = false;
    ~Told() {
      if (flight) done ? flight->ended() : flight->threw();
      if (watch) watch->ends(c);
    }
  };
  if (watch_) watch_->begins(c);
  if (flight_) flight_->begun(c);
  Told told{watch_, flight_, c};
  agree(c);
  if (flight_) flight_->agreed();
  if (watch_) watch_->agreed(c);
  (this->*move)(c);
  told.done = true;
}

void Communicator::check(const Call& call, Transfer& t) const {
  const Schedule& s = *t.schedule;
  const std::string_view where = name(call.kind);
  t.counted = 0;
  DT_CHECK(static_cast<int>(s.has.size()) == size_ && s.self == rank_, where,
           "a schedule for member {} of {} was given to member {} of {}; pass "
           "each member its own",
           s.self, s.has.size(), rank_, size_);
  const int ndim = static_cast<int>(s.wants.ascending().size());
  for (const Shape* strides : {&t.src_strides, &t.dst_strides})
    DT_CHECK(
        strides->size() == ndim, where,
        "the number of strides is {}, but that of dimensions is {}; pass one "
        "stride for each dimension",
        strides->size(), ndim);
  DT_CHECK(t.src != nullptr || s.held == 0, where,
           "the source of {} is null; pass its memory",
           quantity(s.held, "element", "elements"));
  DT_CHECK(t.dst != nullptr || s.pieces.empty(), where,
           "the destination of {} is null; pass its memory",
           quantity(volume(s.wants.ascending()), "element", "elements"));
}

void Communicator::copy_source(Buffer& b, Stream stream) {
  const void* from = std::exchange(b.from, nullptr);
  if (!from || b.n == 0) return;
  const int64_t shape[] = {b.n}, unit[] = {1};
  device().copy(stream, size_of(b.dtype), shape, b.data, unit, from, unit);
}

void Communicator::run_transfers(Collective c) {
  if (!has_memory()) return;
  for (Transfer& t : c.transfers) check(*c.call, t);
  run(c, &Communicator::do_move);
}

void Communicator::exchange(const Call& call, Stream stream,
                            std::span<Transfer> transfers) {
  check_kind(call, moves_alone(call.kind), "exchange");
  run_transfers({.call = &call, .transfers = transfers, .stream = stream});
}

void Communicator::reduce(const Call& call, Stream stream,
                          std::span<Transfer> transfers) {
  check_kind(call, reduces(call.kind) && call.kind != StepKind::kAllReduce,
             "reduce");
  for (Transfer& t : transfers) check_reducible(t.op, t.dtype, name(call.kind));
  run_transfers({.call = &call, .transfers = transfers, .stream = stream});
}

void Communicator::all_reduce(const Call& call, Stream stream,
                              std::span<Buffer> buffers) {
  check_kind(call, call.kind == StepKind::kAllReduce, "all_reduce");
  for (Buffer& b : buffers) {
    check_reducible(b.op, b.dtype, name(call.kind));
    b.counted = 0;
    DT_CHECK(b.n >= 0, name(call.kind),
             "the number of elements is {}; pass 0 or more", b.n);
    DT_CHECK(b.data != nullptr || b.n == 0 || !has_memory(), name(call.kind),
             "the buffer of {} is null; pass its memory",
             quantity(b.n, "element", "elements"));
  }
  if (!has_memory()) return;
  if (size_ == 1 || !reads_sources())
    for (Buffer& b : buffers) copy_source(b, stream);
  if (size_ == 1) return;
  Collective c{.call = &call, .buffers = buffers, .stream = stream};
  run(c, &Communicator::do_all_reduce);
}

void Communicator::all_gather_bytes(const Call& call, const void* in,
                                    int64_t bytes, void* out) {
  check_kind(call, call.kind == StepKind::kAllGatherBytes, "all_gather_bytes");
  DT_CHECK(bytes >= 0, name(call.kind),
           "the number of bytes is {}; pass 0 or more", bytes);
  Collective c{.call = &call, .bytes = in, .num_bytes = bytes, .out = out};
  if (!has_memory()) return do_all_gather_bytes(c);
  if (size_ == 1) {
    if (bytes > 0) std::memcpy(out, in, static_cast<size_t>(bytes));
    return;
  }
  run(c, &Communicator::do_all_gather_bytes);
}

void Communicator::barrier(const Call& call) {
  check_kind(call, call.kind == StepKind::kBarrier, "barrier");
  if (!has_memory()) return;
  Collective c{.call = &call};
  run(c, &Communicator::do_barrier);
}

int64_t Communicator::all_reduce(const Call& call, Stream stream, ReduceOp op,
                                 DType dtype, void* data, int64_t n) {
  Buffer b{.op = op, .dtype = dtype, .data = data, .n = n};
  all_reduce(call, stream, {&b, 1});
  return b.counted;
}

}  // namespace dtensor
