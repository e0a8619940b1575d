#include "dtensor/runtime/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <new>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/comm/pull.h"
#include "dtensor/runtime/comm/scratch.h"

namespace dtensor {

// What a member shows the others with its call.
struct NcclCommunicator::Shown {
  // Transfers beyond these go in parcels.
  static constexpr size_t kMost = 512;

  const Device* device;
  NcclLibrary::Id id;  // of member 0, while there is no link
  bool even[kMost];
};

NcclCommunicator::NcclCommunicator(ThreadHub& hub, Group& group, int index,
                                   NcclLibrary& library,
                                   std::shared_ptr<SafeLink> link)
    : Communicator(index, static_cast<int>(group.ranks.size())),
      meeting_(hub, group, index),
      group_(group),
      library_(library),
      link_(std::move(link)) {}

const NcclCommunicator::Shown& NcclCommunicator::shown(int m) const {
  return *reinterpret_cast<const Shown*>(meeting_.small_of(m));
}

void NcclCommunicator::agree(const Collective& c) {
  const StepKind kind = c.call->kind;
  if (c.transfers.empty() && c.buffers.empty()) return meeting_.open(c);
  const bool linked = link_->is_open();
  if (linked) link_->poll(kind);
  static_assert(sizeof(Shown) <= Slot::kSmall);
  Shown& mine = *new (meeting_.own(c.sequence).small) Shown;
  mine.device = &device();
  if (!linked && rank() == 0) mine.id = library_.make_id();
  prepare(c.transfers);
  const size_t shared = std::min(c.transfers.size(), Shown::kMost);
  for (size_t i = 0; i < shared; ++i) {
    if (reduces(kind))
      even_[i] = parcels_[i].reduce_scatter();
    else
      even_[i] = parcels_[i].all_gather();
    mine.even[i] = even_[i].has_value();
  }
  meeting_.open(c);
  for (size_t i = 0; i < shared; ++i)
    for (int m = 0; m < size(); ++m)
      if (!shown(m).even[i]) even_[i].reset();
  if (!linked) open_link(c);
}

void NcclCommunicator::open_link(const Collective& c) {
  DT_CHECK(device().kind() == Device::Kind::kCuda, "nccl",
           "rank {} computes on no GPU; write --device cuda, or the backend "
           "threads",
           group_.ranks[static_cast<size_t>(rank())]);
  for (int m = 0; m < size(); ++m)
    for (int before = 0; before < m; ++before)
      DT_CHECK(shown(m).device != shown(before).device, "nccl",
               "NCCL takes one rank per GPU, and ranks {} and {} share one; "
               "run as many ranks as there are GPUs, or write the backend "
               "threads, whose ranks read each other's memory",
               group_.ranks[static_cast<size_t>(before)],
               group_.ranks[static_cast<size_t>(m)]);
  link_->open(c.call->kind,
              library_.link(shown(0).id, size(), rank(), c.stream));
}

void NcclCommunicator::prepare(std::span<const Transfer> transfers) {
  parcels_.clear();
  for (const Transfer& t : transfers) parcels_.emplace_back(t);
  even_.assign(transfers.size(), {});
}

void NcclCommunicator::travel(const Call& call, Stream stream,
                              std::span<Transfer> transfers, bool reduces) {
  if (transfers.empty()) return;
  if (size() == 1) prepare(transfers);
  const Parcels::Place here{device(), stream};
  const auto members = static_cast<size_t>(size());
  // By transfer and member; null: nothing is sent, received, unpacked.
  std::vector<const void*> out(transfers.size() * members);
  std::vector<void*> in(out.size()), packed(out.size());
  std::vector<Scratch> scratch;
  const auto memory = [&](int64_t bytes) {
    return scratch.emplace_back(device(), stream, bytes, name(call.kind))
        .data();
  };
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Parcels& p = parcels_[i];
    int last = -1;  // the last that was packed
    for (int m = 0; m < size(); ++m) {
      const size_t at = i * members + static_cast<size_t>(m);
      if (m == rank()) continue;
      transfers[i].counted += p.bytes_from(m);
      if (even_[i]) continue;
      if (p.bytes_to(m) > 0) {
        out[at] = p.whole_to(m);
        if (!out[at] && last >= 0 && p.same(m, last))
          out[at] = out[i * members + static_cast<size_t>(last)];
        if (!out[at]) {
          void* to = memory(p.bytes_to(m));
          p.pack(here, m, to);
          out[at] = to;
          last = m;
        }
      }
      if (p.bytes_from(m) > 0) {
        if (!reduces) in[at] = p.whole_from(m);
        if (!in[at]) in[at] = packed[at] = memory(p.bytes_from(m));
      }
    }
  }
  if (size() > 1)
    link_->use(call.kind, device(), stream, [&](NcclLink& link) {
      link.begin_group();
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
          if (out[at]) link.send(stream, out[at], parcels_[i].bytes_to(m), m);
          if (in[at])
            link.receive(stream, in[at], parcels_[i].bytes_from(m), m);
        }
      }
      link.end_group();
    });
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (even_[i]) continue;
    const std::span<void* const> parcels(&packed[i * members], members);
    if (reduces) {
      parcels_[i].reduce(here, {parcels.begin(), parcels.end()});
      continue;
    }
    parcels_[i].copy_own(here);
    for (int m = 0; m < size(); ++m)
      if (const void* from = parcels[static_cast<size_t>(m)])
        parcels_[i].unpack(here, m, from);
  }
}

void NcclCommunicator::do_exchange(const Call& call, Stream stream,
                                   std::span<Transfer> transfers) {
  travel(call, stream, transfers, false);
}

void NcclCommunicator::do_reduce(const Call& call, Stream stream,
                                 std::span<Transfer> transfers) {
  travel(call, stream, transfers, true);
}

void NcclCommunicator::do_all_reduce(const Call& call, Stream stream,
                                     std::span<Buffer> buffers) {
  if (buffers.empty()) return;
  link_->use(call.kind, device(), stream, [&](NcclLink& link) {
    link.begin_group();
    for (const Buffer& b : buffers)
      if (b.n > 0) link.all_reduce(stream, b.op, b.dtype, b.data, b.n);
    link.end_group();
  });
  // What it amounts to, however NCCL goes about it.
  const int64_t others = size() - 1;
  for (Buffer& b : buffers) {
    const int64_t own =
        b.one_shot ? b.n : Pull::chunk(b.n, rank(), size()).size();
    b.counted = (others * own + b.n - own) * size_of(b.dtype);
  }
}

void NcclCommunicator::do_all_gather_bytes(const Call&, const void*,
                                           int64_t bytes, void* out) {
  meeting_.gather(bytes, out);
}

}  // namespace dtensor
