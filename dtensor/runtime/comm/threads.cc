#include "dtensor/runtime/comm/threads.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/runtime/comm/pieces.h"
#include "dtensor/runtime/device/copy.h"

namespace dtensor {
namespace {

constexpr std::string_view kExchange = "exchange", kReduce = "reduce",
                           kAllReduce = "all_reduce",
                           kGather = "all_gather_bytes", kBarrier = "barrier";

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

// What a disagreement shows of a tensor.
void describe(const Transfer& t, bool reduces, std::vector<std::string>& how) {
  if (reduces) how.emplace_back(name(t.op));
  how.emplace_back(name(t.dtype));
}
void describe(const Buffer& b, bool, std::vector<std::string>& how) {
  how.emplace_back(name(b.op));
  how.emplace_back(name(b.dtype));
  how.push_back(fmt::format("{} elements", b.n));
}

// "sum, f32, 8 elements" of one tensor, "2 tensors: sum f32 8 elements, max i32
// 1 elements" of several.
template <class Tensor>
std::string describe(std::span<const Tensor> tensors, bool reduces) {
  constexpr size_t kMost = 8;
  std::string text;
  if (tensors.size() != 1) {
    text = fmt::format("{} tensors", tensors.size());
    if (!tensors.empty()) text += ": ";
  }
  for (size_t i = 0; i < std::min(tensors.size(), kMost); ++i) {
    std::vector<std::string> how;
    describe(tensors[i], reduces, how);
    if (i > 0) text += ", ";
    text += fmt::format("{}", fmt::join(how, tensors.size() == 1 ? ", " : " "));
  }
  if (tensors.size() > kMost) text += ", ...";
  return text;
}

std::string describe(const Slot& s, uint64_t sequence, bool with_method) {
  std::string text = fmt::format("{} #{}", s.call->kind, sequence);
  if (with_method) text += fmt::format(" by {}()", s.method);
  if (s.method == kAllReduce)
    text += fmt::format(" ({})", describe(s.buffers, true));
  else if (s.method == kExchange || s.method == kReduce)
    text += fmt::format(" ({})", describe(s.transfers, s.method == kReduce));
  else if (s.num_bytes >= 0)
    text += fmt::format(" ({} bytes)", s.num_bytes);
  if (!s.call->op.empty()) text += fmt::format(" for {}", s.call->op);
  if (!s.call->describe.empty()) text += fmt::format(": {}", s.call->describe);
  return text;
}

// So that a wrong fingerprint of the caller never makes a member read where
// another one has nothing: who holds what is compared too.
uint64_t hash_of(const Transfer& t) {
  return hash_mix(t.schedule->hash, static_cast<uint64_t>(t.dtype) * 16 +
                                        static_cast<uint64_t>(t.op));
}
uint64_t hash_of(const Buffer& b) {
  return hash_mix(
      static_cast<uint64_t>(b.n),
      static_cast<uint64_t>(b.dtype) * 16 + static_cast<uint64_t>(b.op));
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
        at_(world_ranks.size()) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void exchange(const Call& call, std::span<Transfer> transfers) override {
    for (Transfer& t : transfers) check(call, t);
    open(call, kExchange, {.transfers = transfers});
    close_after([&] {
      for (size_t i = 0; i < transfers.size(); ++i) {
        Transfer& t = transfers[i];
        const Schedule& s = *t.schedule;
        for (const Piece& piece : s.pieces) {
          const int m = piece.members[0];
          const Transfer& from = transfer_of(m, i, t);
          const HeldRegion* arrays[] = {&s.wants,
                                        &s.has[static_cast<size_t>(m)]};
          const Sizes strides[] = {t.dst_strides, from.src_strides};
          boxes_.reset(piece.region, arrays, strides);
          boxes_.each([&](Sizes shape) {
            const int64_t copied = copy_strided(
                size_of(t.dtype), shape,
                advance(t.dst, boxes_.offset(0), t.dtype), boxes_.strides(0),
                advance(from.src, boxes_.offset(1), t.dtype),
                boxes_.strides(1));
            if (m != rank_) t.counted += copied;
          });
        }
      }
    });
  }

  void reduce(const Call& call, std::span<Transfer> transfers) override {
    for (Transfer& t : transfers) {
      check(call, t);
      check_reducible(t.op, t.dtype, call.kind);
    }
    open(call, kReduce, {.transfers = transfers});
    close_after([&] {
      for (size_t i = 0; i < transfers.size(); ++i)
        for (const Piece& piece : transfers[i].schedule->pieces)
          reduce_piece(piece, i, transfers[i]);
    });
  }

  void all_reduce(const Call& call, std::span<Buffer> buffers) override {
    int64_t total = 0;
    for (Buffer& b : buffers) {
      DT_CHECK(b.n >= 0, call.kind, "{} elements", b.n);
      DT_CHECK(b.data != nullptr || b.n == 0, call.kind,
               "{} elements have no memory", b.n);
      check_reducible(b.op, b.dtype, call.kind);
      b.counted = 0;
      total += padded(b);
    }
    if (size_ == 1) return;
    // Few elements travel in the slots, which need no closing barrier.
    const bool small = total <= Slot::kSmall;
    if (small) {
      char* to = next_slot().small;
      for (const Buffer& b : buffers) {
        copy(to, b.data, b.n * size_of(b.dtype));
        to += padded(b);
      }
    }
    open(call, kAllReduce, {.buffers = buffers});
    std::exception_ptr error;
    try {
      each_buffer(buffers, small, [&](Buffer& b) { reduce_own_chunk(b); });
    } catch (...) {
      error = std::current_exception();
    }
    group_.barrier.wait_unbroken();
    each_buffer(buffers, small, [&](Buffer& b) { collect_chunks(b, small); });
    if (!small) group_.barrier.wait_unbroken();
    if (error) std::rethrow_exception(error);
  }

  void all_gather_bytes(const Call& call, const void* in, int64_t bytes,
                        void* out) override {
    DT_CHECK(bytes >= 0, call.kind, "{} bytes", bytes);
    char* to = static_cast<char*>(out);
    if (size_ == 1) return copy(to, in, bytes);
    const bool small = bytes <= Slot::kSmall;
    if (small) copy(next_slot().small, in, bytes);
    open(call, kGather, {.bytes = in, .num_bytes = bytes});
    for (int m = 0; m < size_; ++m) {
      const Slot& s = slot_of(m);
      copy(to + m * bytes, small ? s.small : s.bytes, bytes);
    }
    if (!small) group_.barrier.wait_unbroken();
  }

  void barrier(const Call& call) override { open(call, kBarrier, {}); }

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
  // Member m's side of tensor i.
  const Transfer& transfer_of(int m, size_t i, const Transfer& mine) {
    return m == rank_ ? mine : slot_of(m).transfers[i];
  }

  void reduce_piece(const Piece& piece, size_t i, Transfer& t) {
    const Schedule& s = *t.schedule;
    arrays_.assign({&s.wants});
    strides_.assign({t.dst_strides});
    int64_t others = 0;
    for (int m : piece.members) {
      arrays_.push_back(&s.has[static_cast<size_t>(m)]);
      strides_.push_back(transfer_of(m, i, t).src_strides);
      others += m != rank_;
    }
    boxes_.reset(piece.region, arrays_, strides_);
    operands_.resize(piece.members.size());
    boxes_.each([&](Sizes shape) {
      for (size_t j = 0; j < operands_.size(); ++j)
        operands_[j] = {advance(transfer_of(piece.members[j], i, t).src,
                                boxes_.offset(1 + j), t.dtype),
                        boxes_.strides(1 + j)};
      t.counted +=
          others * reduce_strided(t.op, t.dtype, shape,
                                  advance(t.dst, boxes_.offset(0), t.dtype),
                                  boxes_.strides(0), operands_, s.terms);
    });
  }

  // A buffer's bytes in a slot: each one begins aligned.
  static int64_t padded(const Buffer& b) {
    return (b.n * size_of(b.dtype) + 15) / 16 * 16;
  }
  // Calls fn for every buffer, with at_[m] where its elements of member m are.
  template <class Fn>
  void each_buffer(std::span<Buffer> buffers, bool small, Fn&& fn) {
    int64_t offset = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      for (int m = 0; m < size_; ++m) {
        Slot& s = slot_of(m);
        at_[static_cast<size_t>(m)] =
            small ? s.small + offset : static_cast<char*>(s.buffers[i].data);
      }
      fn(buffers[i]);
      offset += padded(buffers[i]);
    }
  }
  void reduce_own_chunk(Buffer& b) {
    const int64_t item = size_of(b.dtype), unit[] = {1};
    const Interval mine = chunk(b.n, rank_, size_);
    operands_.resize(at_.size());
    for (size_t m = 0; m < at_.size(); ++m)
      operands_[m] = {at_[m] + mine.lo * item, unit};
    const int64_t shape[] = {mine.size()};
    char* own = at_[static_cast<size_t>(rank_)] + mine.lo * item;
    b.counted = (size_ - 1) * reduce_strided(b.op, b.dtype, shape, own, unit,
                                             operands_, size_);
  }
  void collect_chunks(Buffer& b, bool with_own) {
    const int64_t item = size_of(b.dtype), unit[] = {1};
    for (int i = 0; i < size_; ++i) {
      const int m = (rank_ + i) % size_;  // not all from the same one at once
      if (m == rank_ && !with_own) continue;
      const Interval theirs = chunk(b.n, m, size_);
      const int64_t shape[] = {theirs.size()};
      const int64_t copied =
          copy_strided(item, shape, advance(b.data, theirs.lo, b.dtype), unit,
                       at_[static_cast<size_t>(m)] + theirs.lo * item, unit);
      if (m != rank_) b.counted += copied;
    }
  }

  void check(const Call& call, Transfer& t) const {
    const Schedule& s = *t.schedule;
    t.counted = 0;
    DT_CHECK(static_cast<int>(s.has.size()) == size_ && s.self == rank_,
             call.kind,
             "a schedule for member {} of {} was given to member {} of {}",
             s.self, s.has.size(), rank_, size_);
    const int ndim = static_cast<int>(s.wants.ascending().size());
    for (const Shape* strides : {&t.src_strides, &t.dst_strides})
      DT_CHECK(strides->size() == ndim, call.kind,
               "a part of {} dimensions has {} strides", ndim, strides->size());
    DT_CHECK(t.src != nullptr || s.held == 0, call.kind,
             "a part of {} elements has no memory", s.held);
    DT_CHECK(t.dst != nullptr || s.pieces.empty(), call.kind,
             "a part of {} elements has no memory",
             volume(s.wants.ascending()));
  }

  struct Shared {
    std::span<const Transfer> transfers = {};
    std::span<const Buffer> buffers = {};
    const void* bytes = nullptr;
    int64_t num_bytes = -1;
  };

  // Shows the call to the others, waits for theirs and compares.
  void open(const Call& call, std::string_view method, const Shared& shared) {
    if (size_ == 1) return;
    Group::Member& me = member(rank_);
    Slot& s = next_slot();
    const uint64_t sequence = ++me.sequence;
    s.call = &call;
    s.method = method;
    s.transfers = shared.transfers;
    s.buffers = shared.buffers;
    s.bytes = shared.bytes;
    s.num_bytes = shared.num_bytes;
    uint64_t h = hash_mix(sequence, call.fingerprint);
    h = hash_mix(h, quick_hash(method) ^ quick_hash(call.kind) * 3);
    h = hash_mix(
        h, quick_hash(call.op) ^ static_cast<uint64_t>(shared.num_bytes) * 3);
    h = hash_mix(h, s.transfers.size() + s.buffers.size());
    for (const Transfer& t : s.transfers) h = hash_mix(h, hash_of(t));
    for (const Buffer& b : s.buffers) h = hash_mix(h, hash_of(b));
    s.fingerprint = h;
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
  // Kept from call to call for their memory. Of all_reduce(): where each
  // member's elements are.
  std::vector<char*> at_;
  std::vector<Operand> operands_;
  // Of a piece.
  Boxes boxes_;
  std::vector<const HeldRegion*> arrays_;
  std::vector<Sizes> strides_;
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
