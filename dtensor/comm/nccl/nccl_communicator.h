// SPDX-License-Identifier: Apache-2.0
// One member of a group of GPUs that communicate through NCCL; see nccl.h.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/comm/host_communicator.h"
#include "dtensor/comm/nccl/safe_link.h"
#include "dtensor/comm/packed_messages.h"

namespace dtensor {

class NcclCommunicator final : public HostCommunicator {
 public:
  // The first arguments are those of HostCommunicator. The first collective
  // that moves data opens the link, which other threads may abort.
  NcclCommunicator(Membership& run, std::span<const int64_t> ranks, int64_t me,
                   int lane, NcclLibrary& library,
                   std::shared_ptr<SafeLink> link)
      : HostCommunicator(run, ranks, me, lane),
        library_(library),
        link_(std::move(link)) {}
  ~NcclCommunicator() override { link_->close(); }
  bool needs_serves() const override { return true; }
  bool reads_sources() const override { return false; }

 protected:
  void agree(const Collective&) override;
  void do_move(const Collective&) override;
  void do_all_reduce(const Collective&) override;

 private:
  struct Chunked;
  struct Shown;
  const Shown& facts(int m) const;
  void introduce(Shown& mine, Stream);
  void open_link(const Collective&);
  void pack(std::span<const Transfer>);

  NcclLibrary& library_;
  const std::shared_ptr<SafeLink> link_;
  // For each transfer of the current collective: its messages.
  std::vector<PackedMessages> packed_;
  // For each transfer: NCCL's collective that replaces the messages, if all
  // members can make it.
  std::vector<std::optional<PackedMessages::Even>> even_;
};

}  // namespace dtensor
