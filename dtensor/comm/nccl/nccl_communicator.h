// One member of a group of GPUs that communicate through NCCL; see nccl.h.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/comm/host_communicator.h"
#include "dtensor/comm/nccl/safe_link.h"
#include "dtensor/comm/packed_messages.h"

namespace dtensor {

class NcclCommunicator final : public Communicator {
 public:
  // The agreement channel is that of `ranks`, of which this member is
  // ranks[index]. The link, which other threads may abort, is opened by the
  // first collective that moves data.
  NcclCommunicator(std::unique_ptr<HostCommunicator>,
                   std::vector<int64_t> ranks, int index, NcclLibrary&,
                   std::shared_ptr<SafeLink>);
  ~NcclCommunicator() override { link_->close(); }
  bool needs_serves() const override { return true; }

 protected:
  void agree(const Collective&) override;
  void do_move(const Collective&) override;
  void do_all_reduce(const Collective&) override;
  void do_all_gather_bytes(const Collective&) override;

 private:
  struct Chunked;
  struct Shown;
  const Shown& shown(int m) const;
  int64_t world(int m) const { return ranks_[static_cast<size_t>(m)]; }
  void introduce(Shown& mine, Stream);
  void open_link(const Collective&);
  void prepare(std::span<const Transfer>);

  const std::unique_ptr<HostCommunicator> agreement_channel_;
  const std::vector<int64_t> ranks_;
  NcclLibrary& library_;
  const std::shared_ptr<SafeLink> link_;
  // The collective that is open: the packed messages of each transfer, and the
  // even collective that replaces them if all members can make it.
  std::vector<PackedMessages> packed_;
  std::vector<std::optional<PackedMessages::Even>> even_;
};

}  // namespace dtensor
