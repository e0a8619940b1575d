#include "dtensor/comm/threads.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "dtensor/comm/pieces.h"
#include "dtensor/device/copy.h"
#include "placement/error.h"
#include "placement/hash.h"

namespace dtensor {
namespace {

// Eight characters at a time; between threads of one process only.
uint64_t quick_hash(std::string_view text) {
  uint64_t h = text.size();
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
    h = hash_mix(h, word);
  }
  return h;
}

// So that a wrong fingerprint of the caller never makes a member read where
// another one has nothing.
uint64_t quick_hash(std::span<const Region> sources) {
  uint64_t h = sources.size();
  for (const Region& region : sources) {
    h = hash_mix(h, region.size());
    for (const IntervalList& list : region) {
      h = hash_mix(h, list.size());
      for (const Interval& r : list)
        h = hash_mix(h, static_cast<uint64_t>(r.lo) * 0x9e3779b97f4a7c15ull ^
                            static_cast<uint64_t>(r.hi));
    }
  }
  return h;
}

std::string describe(const Slot& s, uint64_t sequence, bool with_method) {
  std::string how;
  auto add = [&](const std::string& text) {
    how += (how.empty() ? "" : ", ") + text;
  };
  if (s.reduce_op >= 0)
    add(std::string(name(static_cast<ReduceOp>(s.reduce_op))));
  if (s.dtype >= 0) add(std::string(name(static_cast<DType>(s.dtype))));
  if (s.count >= 0)
    add(fmt::format("{} {}", s.count, s.dtype >= 0 ? "elements" : "bytes"));
  std::string text = fmt::format("{} #{}", s.call->kind, sequence);
  if (with_method) text += fmt::format(" by {}()", s.method);
  if (!how.empty()) text += fmt::format(" ({})", how);
  if (!s.call->op.empty()) text += fmt::format(" for {}", s.call->op);
  if (!s.call->describe.empty()) text += fmt::format(": {}", s.call->describe);
  return text;
}

// [floor(i*n/p), floor((i+1)*n/p))
Interval chunk(int64_t n, int i, int p) { return {i * n / p, (i + 1) * n / p}; }

char* advance(const void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(const_cast<void*>(data)) +
         elements * size_of(dtype);
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadHub& hub, const std::vector<int64_t>& world_ranks,
                     int64_t world_rank, int index)
      : hub_(hub),
        group_(hub.group(world_ranks)),
        world_rank_(world_rank),
        rank_(index),
        size_(static_cast<int>(world_ranks.size())),
        at_(world_ranks.size()),
        operands_(world_ranks.size()) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  int64_t exchange(const Call& call, DType dtype, const Part& src,
                   std::span<const Region> sources, const Part& dst) override {
    check_parts(call, src, sources, dst);
    const HeldRegion to(*dst.region);
    const std::vector<HeldRegion> held(sources.begin(), sources.end());
    const std::vector<Piece> pieces = cut_exchange(to, held, rank_, call.kind);
    open(call, "exchange", dtype, {}, -1, quick_hash(sources), &src);
    int64_t counted = 0;
    close_after([&] {
      for (const Piece& piece : pieces) {
        const int m = piece.members[0];
        const Part& from = part_of(m, src);
        const HeldRegion* arrays[] = {&to, &held[static_cast<size_t>(m)]};
        const Sizes strides[] = {dst.strides, from.strides};
        Boxes boxes(piece.region, arrays, strides);
        int64_t copied = 0;
        boxes.each([&](Sizes shape) {
          copied += copy_strided(
              size_of(dtype), shape, advance(dst.data, boxes.offset(0), dtype),
              boxes.strides(0), advance(from.data, boxes.offset(1), dtype),
              boxes.strides(1));
        });
        if (m != rank_) counted += copied;
      }
    });
    return counted;
  }

  int64_t reduce(const Call& call, ReduceOp op, DType dtype, const Part& src,
                 std::span<const Region> sources, const Part& dst) override {
    check_parts(call, src, sources, dst);
    check_reducible(op, dtype, call.kind);
    const HeldRegion to(*dst.region);
    const std::vector<HeldRegion> held(sources.begin(), sources.end());
    const std::vector<Piece> pieces = cut_reduction(to, held);
    open(call, "reduce", dtype, op, -1, quick_hash(sources), &src);
    int64_t counted = 0;
    close_after([&] {
      for (const Piece& piece : pieces) {
        std::vector<const HeldRegion*> arrays{&to};
        std::vector<Sizes> strides{dst.strides};
        for (int m : piece.members) {
          arrays.push_back(&held[static_cast<size_t>(m)]);
          strides.push_back(part_of(m, src).strides);
        }
        const int64_t others =
            std::count_if(piece.members.begin(), piece.members.end(),
                          [&](int m) { return m != rank_; });
        Boxes boxes(piece.region, arrays, strides);
        std::vector<Operand> operands(piece.members.size());
        boxes.each([&](Sizes shape) {
          for (size_t j = 0; j < operands.size(); ++j)
            operands[j] = {advance(part_of(piece.members[j], src).data,
                                   boxes.offset(1 + j), dtype),
                           boxes.strides(1 + j)};
          counted +=
              others * reduce_strided(op, dtype, shape,
                                      advance(dst.data, boxes.offset(0), dtype),
                                      boxes.strides(0), operands, size_);
        });
      }
    });
    return counted;
  }

  int64_t all_reduce(const Call& call, ReduceOp op, DType dtype, void* data,
                     int64_t n) override {
    DT_CHECK(n >= 0, call.kind, "{} elements", n);
    check_reducible(op, dtype, call.kind);
    if (size_ == 1) return 0;
    const int64_t item = size_of(dtype), bytes = n * item;
    // Few elements travel in the slots, which need no closing barrier.
    const bool small = bytes <= Slot::kSmall;
    if (small) copy(next_slot().small, data, bytes);
    open(call, "all_reduce", dtype, op, n, 0, data);
    for (int m = 0; m < size_; ++m) {
      Slot& s = slot_of(m);
      at_[static_cast<size_t>(m)] =
          small ? s.small : static_cast<char*>(const_cast<void*>(s.data));
    }
    const int64_t unit[] = {1};
    int64_t counted = 0;
    std::exception_ptr error;
    try {
      const Interval mine = chunk(n, rank_, size_);
      for (size_t m = 0; m < at_.size(); ++m)
        operands_[m] = {at_[m] + mine.lo * item, unit};
      const int64_t shape[] = {mine.size()};
      counted += (size_ - 1) * reduce_strided(op, dtype, shape,
                                              at_[static_cast<size_t>(rank_)] +
                                                  mine.lo * item,
                                              unit, operands_, size_);
    } catch (...) {
      error = std::current_exception();
    }
    group_.barrier.wait_unbroken();
    for (int i = 0; i < size_; ++i) {
      const int m = (rank_ + i) % size_;  // not all from the same one at once
      if (m == rank_ && !small) continue;
      const Interval theirs = chunk(n, m, size_);
      const int64_t shape[] = {theirs.size()};
      const int64_t copied =
          copy_strided(item, shape, advance(data, theirs.lo, dtype), unit,
                       at_[static_cast<size_t>(m)] + theirs.lo * item, unit);
      if (m != rank_) counted += copied;
    }
    if (!small) group_.barrier.wait_unbroken();
    if (error) std::rethrow_exception(error);
    return counted;
  }

  void all_gather_bytes(const Call& call, const void* in, int64_t bytes,
                        void* out) override {
    DT_CHECK(bytes >= 0, call.kind, "{} bytes", bytes);
    char* to = static_cast<char*>(out);
    if (size_ == 1) return copy(to, in, bytes);
    const bool small = bytes <= Slot::kSmall;
    if (small) copy(next_slot().small, in, bytes);
    open(call, "all_gather_bytes", {}, {}, bytes, 0, in);
    for (int m = 0; m < size_; ++m) {
      const Slot& s = slot_of(m);
      copy(to + m * bytes, small ? s.small : s.data, bytes);
    }
    if (!small) group_.barrier.wait_unbroken();
  }

  void barrier(const Call& call) override {
    if (size_ > 1) open(call, "barrier", {}, {}, -1, 0, nullptr);
  }

 private:
  static void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  Group::Member& member(int m) {
    return group_.members[static_cast<size_t>(m)];
  }
  // That of the call that open() began, and that of the next one.
  Slot& slot_of(int m) { return member(m).slots[member(rank_).sequence % 2]; }
  Slot& next_slot() {
    Group::Member& me = member(rank_);
    // A broken group is never used again: others may still read the slot.
    if (group_.barrier.broken()) return scratch();
    return me.slots[(me.sequence + 1) % 2];
  }
  Slot& scratch() {
    if (!scratch_) scratch_ = std::make_unique<Slot>();
    return *scratch_;
  }
  const Part& part_of(int m, const Part& mine) {
    return m == rank_ ? mine : *static_cast<const Part*>(slot_of(m).data);
  }

  void check_parts(const Call& call, const Part& src,
                   std::span<const Region> sources, const Part& dst) const {
    DT_CHECK(static_cast<int>(sources.size()) == size_, call.kind,
             "the sources of {} members were given in a group of {}",
             sources.size(), size_);
    const Region& mine = sources[static_cast<size_t>(rank_)];
    DT_CHECK(src.region == &mine || *src.region == mine, call.kind,
             "member {} holds another region than the list of sources says",
             rank_);
    const size_t ndim = dst.region->size();
    for (const Region& r : sources)
      DT_CHECK(r.size() == ndim, call.kind,
               "a source has {} dimensions and the destination {}", r.size(),
               ndim);
    for (const Part* part : {&src, &dst}) {
      DT_CHECK(part->strides.size() == static_cast<int>(ndim), call.kind,
               "a part of {} dimensions has {} strides", ndim,
               part->strides.size());
      DT_CHECK(part->data != nullptr || volume(*part->region) == 0, call.kind,
               "a part of {} elements has no memory", volume(*part->region));
    }
  }

  // Shows the call to the others, waits for theirs and compares.
  void open(const Call& call, std::string_view method,
            std::optional<DType> dtype, std::optional<ReduceOp> op,
            int64_t count, uint64_t sources, const void* data) {
    if (size_ == 1) return;
    Group::Member& me = member(rank_);
    Slot& s = next_slot();
    const uint64_t sequence = ++me.sequence;
    s.call = &call;
    s.method = method;
    s.dtype = dtype ? static_cast<int>(*dtype) : -1;
    s.reduce_op = op ? static_cast<int>(*op) : -1;
    s.count = count;
    s.data = data;
    uint64_t h = hash_mix(sequence, call.fingerprint);
    h = hash_mix(h, quick_hash(method) ^ quick_hash(call.kind) * 3);
    h = hash_mix(h, quick_hash(call.op) ^ sources * 3);
    h = hash_mix(h, static_cast<uint64_t>(s.dtype + 1) * 16 +
                        static_cast<uint64_t>(s.reduce_op + 1));
    s.fingerprint = hash_mix(h, static_cast<uint64_t>(count));
    hub_.note(world_rank_, call, sequence);
    hub_.meet(group_, world_rank_, call);
    for (int m = 1; m < size_; ++m)
      if (slot_of(m).fingerprint != slot_of(0).fingerprint) disagree(m);
  }

  // Throws the Error that all members throw, since all compare the same slots.
  [[noreturn]] void disagree(int m) {
    const Slot &a = slot_of(0), &b = slot_of(m);
    const uint64_t sequence = member(rank_).sequence;
    std::exception_ptr error;
    try {
      const bool methods = a.call->kind == b.call->kind && a.method != b.method;
      std::string x = describe(a, sequence, methods);
      std::string y = describe(b, sequence, methods);
      if (x == y) {
        x += fmt::format(" (fingerprint {:016x})", a.call->fingerprint);
        y += fmt::format(" (fingerprint {:016x})", b.call->fingerprint);
      }
      const auto& ranks = group_.ranks;
      fail(a.call->kind,
           "ranks {} and {} disagree about collective #{} of ranks {}: rank {} "
           "calls {}; rank {} calls {}; let every rank run the same operators "
           "on the same layouts in the same order",
           ranks[0], ranks[static_cast<size_t>(m)], sequence,
           group_.ranks_to_string(), ranks[0], x, ranks[static_cast<size_t>(m)],
           y);
    } catch (...) {
      error = std::current_exception();
    }
    // What the slots point to lives until everybody has read it.
    group_.barrier.wait_unbroken();
    std::rethrow_exception(error);
  }

  // Between open() and the closing barrier nothing may leave: the others wait
  // here, and read this member's memory.
  template <class Fn>
  void close_after(Fn&& fn) {
    std::exception_ptr error;
    try {
      fn();
    } catch (...) {
      error = std::current_exception();
    }
    if (size_ > 1) group_.barrier.wait_unbroken();
    if (error) std::rethrow_exception(error);
  }

  ThreadHub& hub_;
  Group& group_;
  const int64_t world_rank_;
  const int rank_, size_;
  std::unique_ptr<Slot> scratch_;
  // Of all_reduce(): where each member's elements are, and its chunk of them.
  std::vector<char*> at_;
  std::vector<Operand> operands_;
};

}  // namespace

std::unique_ptr<Communicator> thread_communicator(
    ThreadHub& hub, const std::vector<int64_t>& world_ranks,
    int64_t world_rank) {
  const auto it = std::find(world_ranks.begin(), world_ranks.end(), world_rank);
  DT_CHECK(it != world_ranks.end(), "communicator",
           "rank {} is not a member of the group that it asks for", world_rank);
  return std::make_unique<ThreadCommunicator>(
      hub, world_ranks, world_rank, static_cast<int>(it - world_ranks.begin()));
}

}  // namespace dtensor
