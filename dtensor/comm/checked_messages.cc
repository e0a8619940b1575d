// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/checked_messages.h"

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "dtensor/io/checksum.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct Seal {
  uint64_t sum = 0;
  int64_t bytes = 0;
};

class CheckedMessages final : public PendingMessages {
 public:
  explicit CheckedMessages(std::unique_ptr<PendingMessages> all)
      : all_(std::move(all)) {}
  ~CheckedMessages() override { CheckedMessages::give_up(); }

  void send(const Channel& c, const void* data, int64_t bytes) override {
    const Seal& seal = sent_.emplace_back(Seal{checksum(data, bytes), bytes});
    all_->send(c, data, bytes);
    all_->send(c, &seal, sizeof(seal));
  }
  void receive(const Channel& c, void* data, int64_t bytes) override {
    Received& r = received_.emplace_back(c, data, bytes);
    all_->receive(c, data, bytes);
    all_->receive(c, &r.seal, sizeof(r.seal));
  }
  bool done() override {
    if (!all_->done()) return false;
    sent_.clear();
    for (const Received& r : std::exchange(received_, {})) r.check();
    return true;
  }
  std::vector<int64_t> awaited() const override { return all_->awaited(); }
  void give_up() noexcept override {
    all_->give_up();
    sent_.clear();
    received_.clear();
  }

 private:
  struct Received {
    Received(const Channel& c, const void* d, int64_t n)
        : channel(c), data(d), most(n) {}
    void check() const {
      const bool fits = seal.bytes >= 0 && seal.bytes <= most;
      const uint64_t sum = fits ? checksum(data, seal.bytes) : 0;
      DT_CHECK(
          fits && sum == seal.sum, "checksum",
          "a message from rank {} to rank {} is damaged: {} bytes with "
          "checksum {} were announced, but {}; look for faulty memory or a "
          "faulty network between the machines of these ranks",
          channel.from, channel.to, seal.bytes, checksum_text(seal.sum),
          fits ? fmt::format("the bytes that arrived (at most {}) have "
                             "checksum {}",
                             most, checksum_text(sum))
               : fmt::format("at most {} were expected", most));
    }

    Channel channel;
    const void* data;
    int64_t most;
    Seal seal;
  };

  const std::unique_ptr<PendingMessages> all_;
  // Deques, so that elements keep their addresses: the transport reads and
  // writes the seals.
  std::deque<Seal> sent_;
  std::deque<Received> received_;
};

}  // namespace

std::unique_ptr<PendingMessages> checked_messages(
    std::unique_ptr<PendingMessages> all) {
  return std::make_unique<CheckedMessages>(std::move(all));
}

}  // namespace dtensor
