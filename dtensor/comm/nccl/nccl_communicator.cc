// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dtensor/comm/scratch.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// Whether NCCL's reduction equals Device::reduce(), except for order and
// rounding. NCCL's max and min of floats drop NaNs; reduce() returns NaN.
bool has_reduction(ReduceOp op, DType t) {
  return !is_float(t) || (op != ReduceOp::kMax && op != ReduceOp::kMin);
}

}  // namespace

// The data that a member shows with its call. It shows all of it until the
// group is linked; afterwards it shows only as many words of `even` as the
// transfers need.
struct NcclCommunicator::Shown {
  // Transfers beyond this number always go in packed messages.
  static constexpr size_t kMost = 512;

  // One bit per transfer: this member has a PackedMessages::Even for it.
  std::array<uint64_t, kMost / 64> even;
  uint16_t has_gpu, captured;
  NcclLibrary::Gpu gpu;
  NcclLibrary::Id id;  // made by member 0

  static int64_t bytes_of(size_t transfers) {
    return static_cast<int64_t>((transfers + 63) / 64 * sizeof(uint64_t));
  }
};

const NcclCommunicator::Shown& NcclCommunicator::facts(int m) const {
  return *reinterpret_cast<const Shown*>(shown(m));
}

void NcclCommunicator::agree(const Collective& c) {
  const StepKind kind = c.call->kind;
  if (c.transfers.empty() && c.buffers.empty())
    return agree_and_show(c, nullptr, 0);
  const bool linked = link_->is_open();
  if (linked) link_->settle(kind);
  static_assert(sizeof(Shown) <= HostCommunicator::kMost);
  Shown mine{};
  pack(c.transfers);
  const size_t shared = std::min(c.transfers.size(), Shown::kMost);
  for (size_t i = 0; i < shared; ++i) {
    const Transfer& t = c.transfers[i];
    if (!reduces(kind))
      even_[i] = packed_[i].all_gather();
    else if (has_reduction(t.op, t.dtype))
      even_[i] = packed_[i].reduce_scatter();
    mine.even[i / 64] |= uint64_t{even_[i].has_value()} << i % 64;
  }
  if (!linked) introduce(mine, c.stream);
  agree_and_show(c, &mine, linked ? Shown::bytes_of(shared) : sizeof(Shown));
  for (int m = 0; m < size(); ++m) {
    const Shown& theirs = facts(m);
    for (size_t w = 0; w * 64 < shared; ++w) mine.even[w] &= theirs.even[w];
  }
  for (size_t i = 0; i < shared; ++i)
    if (!(mine.even[i / 64] >> i % 64 & 1)) even_[i].reset();
  if (!linked) open_link(c);
}

// Fills in what the other members need to know before the group is linked.
void NcclCommunicator::introduce(Shown& mine, Stream stream) {
  mine.has_gpu = device().kind() == Device::Kind::kCuda;
  mine.gpu = mine.has_gpu ? library_.gpu(stream) : NcclLibrary::Gpu{};
  mine.captured = device().is_captured(stream);
  mine.id = rank() == 0 ? library_.make_id() : NcclLibrary::Id{};
}

// Links the group. If what the members have shown rules that out, all of them
// throw the same Error.
void NcclCommunicator::open_link(const Collective& c) {
  for (int m = 0; m < size(); ++m)
    DT_CHECK(facts(m).has_gpu, "nccl",
             "rank {} does not compute on a GPU; write --device cuda "
             "(RunOptions::device), or another backend",
             world(m));
  for (int m = 0; m < size(); ++m)
    for (int before = 0; before < m; ++before)
      DT_CHECK(facts(m).gpu != facts(before).gpu, "nccl",
               "NCCL takes one rank per GPU, but ranks {} and {} share one; "
               "give each rank its own GPU, or run all ranks in one process "
               "with the backend threads",
               world(before), world(m));
  for (int m = 0; m < size(); ++m)
    DT_CHECK(!facts(m).captured, "nccl",
             "ranks {} are linked by their first collective that moves data, "
             "but rank {} calls it while it is captured into a graph; call the "
             "step once before the graph is made",
             ranks_to_string(ranks()), world(m));
  link_->open(c.call->kind,
              library_.link(facts(0).id, size(), rank(), c.stream));
}

void NcclCommunicator::pack(std::span<const Transfer> transfers) {
  packed_.clear();
  for (const Transfer& t : transfers) packed_.emplace_back(t);
  even_.assign(transfers.size(), {});
}

void NcclCommunicator::do_move(const Collective& c) {
  const std::span<Transfer> transfers = c.transfers;
  const bool reduces = dtensor::reduces(c.call->kind);
  const Stream stream = c.stream;
  if (transfers.empty()) return;
  if (size() == 1) pack(transfers);
  const Place here{device(), stream};
  const auto members = static_cast<size_t>(size());
  // For each transfer and member; null: nothing to send, receive or unpack.
  std::vector<const void*> out(transfers.size() * members);
  std::vector<void*> in(out.size());
  std::vector<const void*> packed(out.size());
  std::vector<Scratch> scratch;
  const auto memory = [&](int64_t bytes) {
    return scratch.emplace_back(device(), stream, bytes, name(c.call->kind))
        .data();
  };
  for (size_t i = 0; i < transfers.size(); ++i) {
    PackedMessages& p = packed_[i];
    for (int m = 0; m < size(); ++m) {
      const size_t at = i * members + static_cast<size_t>(m);
      if (m == rank()) continue;
      transfers[i].counted += p.bytes_from(m);
      if (even_[i]) continue;
      if (p.bytes_to(m) > 0) out[at] = p.message_to(here, m, memory);
      if (p.bytes_from(m) > 0) {
        if (!reduces) in[at] = p.whole_from(m);
        if (!in[at]) packed[at] = in[at] = memory(p.bytes_from(m));
      }
    }
  }
  if (size() > 1)
    link_->use(c.call->kind, device(), stream, [&](NcclLink& link) {
      for (size_t i = 0; i < transfers.size(); ++i) {
        const Transfer& t = transfers[i];
        if (even_[i] && reduces)
          link.reduce_scatter(stream, t.op, t.dtype, even_[i]->in,
                              even_[i]->out,
                              even_[i]->bytes / size_of(t.dtype));
        else if (even_[i])
          link.all_gather(stream, even_[i]->in, even_[i]->out, even_[i]->bytes);
        for (int m = 0; m < size(); ++m) {
          const size_t at = i * members + static_cast<size_t>(m);
          if (out[at]) link.send(stream, out[at], packed_[i].bytes_to(m), m);
          if (in[at]) link.receive(stream, in[at], packed_[i].bytes_from(m), m);
        }
      }
    });
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (even_[i]) continue;
    const std::span<const void* const> parts(&packed[i * members], members);
    if (reduces)
      packed_[i].reduce(here, parts);
    else
      packed_[i].exchange(here, parts);
  }
}

// A buffer that NCCL cannot reduce. This member reduces its chunk of the buffer
// itself, in member order, or all of the buffer if it is one-shot.
struct NcclCommunicator::Chunked {
  Chunked(Buffer& b, const NcclCommunicator& of, Stream stream,
          std::string_view where)
      : buffer(b),
        self(of.rank()),
        members(of.size()),
        others(of.device(), stream, members * bytes(self), where) {}

  Interval chunk(int m) const {
    if (buffer.one_shot) return {0, buffer.n};
    return Communicator::chunk(buffer.n, m, members);
  }
  int64_t bytes(int m) const { return chunk(m).size() * size_of(buffer.dtype); }
  char* at(int m) const {
    return static_cast<char*>(buffer.data) +
           chunk(m).lo * size_of(buffer.dtype);
  }
  // The address where member m's elements of this member's chunk lie once they
  // are received.
  char* from(int m) const {
    if (m == self) return at(self);
    return static_cast<char*>(others.data()) + m * bytes(self);
  }

  void scatter(NcclLink& link, Stream stream) const {
    for (int m = 0; m < members; ++m) {
      if (m == self) continue;
      if (bytes(m) > 0) link.send(stream, at(m), bytes(m), m);
      if (bytes(self) > 0) link.receive(stream, from(m), bytes(self), m);
    }
  }
  void reduce(Device& device, Stream stream) const {
    const int64_t shape[] = {chunk(self).size()}, unit[] = {1};
    if (shape[0] == 0) return;
    std::vector<Operand> operands;
    for (int m = 0; m < members; ++m) operands.push_back({from(m), unit});
    device.reduce(stream, buffer.op, buffer.dtype, shape, at(self), unit,
                  operands, members);
  }
  void gather(NcclLink& link, Stream stream) const {
    for (int m = 0; m < members; ++m) {
      if (m == self) continue;
      if (bytes(self) > 0) link.send(stream, at(self), bytes(self), m);
      if (bytes(m) > 0) link.receive(stream, at(m), bytes(m), m);
    }
  }

  Buffer& buffer;
  const int self, members;
  Scratch others;
};

void NcclCommunicator::do_all_reduce(const Collective& c) {
  const std::span<Buffer> buffers = c.buffers;
  const Stream stream = c.stream;
  if (buffers.empty()) return;
  std::vector<Chunked> chunked;
  for (Buffer& b : buffers)
    if (b.n > 0 && !has_reduction(b.op, b.dtype))
      chunked.emplace_back(b, *this, stream, name(c.call->kind));
  link_->use(c.call->kind, device(), stream, [&](NcclLink& link) {
    for (const Buffer& b : buffers)
      if (b.n > 0 && has_reduction(b.op, b.dtype))
        link.all_reduce(stream, b.op, b.dtype, b.data, b.n);
    for (const Chunked& x : chunked) x.scatter(link, stream);
  });
  for (const Chunked& x : chunked) x.reduce(device(), stream);
  if (std::any_of(chunked.begin(), chunked.end(),
                  [](const Chunked& x) { return !x.buffer.one_shot; }))
    link_->use(c.call->kind, device(), stream, [&](NcclLink& link) {
      for (const Chunked& x : chunked)
        if (!x.buffer.one_shot) x.gather(link, stream);
    });
  // Counts the bytes that the comment of all_reduce() gives, however NCCL
  // reduces.
  for (Buffer& b : buffers) b.counted = all_reduce_bytes(b);
}

}  // namespace dtensor
