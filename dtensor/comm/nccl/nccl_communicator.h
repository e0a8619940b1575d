// One member of a group of GPUs that send through NCCL; see nccl.h.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dtensor/comm/agreement_channel.h"
#include "dtensor/comm/communicator.h"
#include "dtensor/comm/nccl/safe_link.h"
#include "dtensor/comm/packed_messages.h"
#include "dtensor/device/reserve.h"

namespace dtensor {

class NcclCommunicator final : public Communicator {
 public:
  // The channel is that of these ranks, of which this is one. The link, which
  // others may abort, is opened with the first collective that moves data, and
  // registers what the device has reserved by then.
  NcclCommunicator(std::unique_ptr<AgreementChannel>,
                   std::vector<int64_t> ranks, int index, NcclLibrary&,
                   std::shared_ptr<SafeLink>);
  ~NcclCommunicator() override { link_->close(); }
  bool needs_serves() const override { return true; }

 protected:
  void agree(const Collective&) override;
  void do_exchange(const Call&, Stream, std::span<Transfer>) override;
  void do_reduce(const Call&, Stream, std::span<Transfer>) override;
  void do_all_reduce(const Call&, Stream, std::span<Buffer>) override;
  void do_all_gather_bytes(const Call&, const void* in, int64_t bytes,
                           void* out) override;

 private:
  struct Chunked;
  struct Shown;
  const Shown& shown(int m) const;
  int64_t world(int m) const { return ranks_[static_cast<size_t>(m)]; }
  bool in_reserve(const Collective&);
  void introduce(Shown& mine, Stream);
  void open_link(const Collective&);
  template <class Calls>
  void at_once(const Call&, Stream, Calls&& calls);
  void prepare(std::span<const Transfer>);
  // All that the transfers send and receive, and what is done to that here.
  void travel(const Call&, Stream, std::span<Transfer>, bool reduces);

  const std::unique_ptr<AgreementChannel> agreement_channel_;
  const std::vector<int64_t> ranks_;
  NcclLibrary& library_;
  std::shared_ptr<Reserve> reserve_;  // that the link has registered
  const std::shared_ptr<SafeLink> link_;
  // Of the collective that is open: of each transfer, and where all members
  // say that it is even (none: it goes in packed messages).
  std::vector<PackedMessages> packed_;
  std::vector<std::optional<PackedMessages::Even>> even_;
  // All members' operands are in what they have reserved; then there is room
  // for what this one has to pack, and unpack, too.
  bool all_reserved_ = false;
  std::shared_ptr<void> room_;
};

}  // namespace dtensor
