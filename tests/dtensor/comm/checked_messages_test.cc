// SPDX-License-Identifier: Apache-2.0
// Messages with a checksum, of which some are damaged on their way.
#include "dtensor/comm/checked_messages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

// Messages arrive at once and whole, except for the bits that the test flips.
struct Wire {
  std::map<std::tuple<int64_t, int64_t, int>, std::deque<std::string>> queues;
  std::deque<std::string>& queue(const Channel& c) {
    return queues[{c.from, c.to, c.lane}];
  }
};
class OnWire final : public PendingMessages {
 public:
  explicit OnWire(Wire& wire) : wire_(wire) {}
  void send(const Channel& c, const void* data, int64_t bytes) override {
    wire_.queue(c).emplace_back(static_cast<const char*>(data),
                                static_cast<size_t>(bytes));
  }
  void receive(const Channel& c, void* data, int64_t bytes) override {
    wanted_.push_back({c, data, bytes});
  }
  bool done() override {
    while (!wanted_.empty()) {
      const Wanted w = wanted_.front();
      auto& queue = wire_.queue(w.channel);
      if (queue.empty()) return false;
      EXPECT_LE(std::ssize(queue.front()), w.bytes);
      std::memcpy(w.data, queue.front().data(), queue.front().size());
      queue.pop_front();
      wanted_.pop_front();
    }
    return true;
  }
  std::vector<int64_t> awaited() const override {
    std::vector<int64_t> ranks;
    for (const Wanted& w : wanted_) ranks.push_back(w.channel.from);
    return ranks;
  }
  void give_up() noexcept override { wanted_.clear(); }

 private:
  struct Wanted {
    Channel channel;
    void* data;
    int64_t bytes;
  };
  Wire& wire_;
  std::deque<Wanted> wanted_;
};

const Channel kThere{3, 5, 0}, kBack{5, 3, 1};

struct Pair {
  Wire wire;
  std::unique_ptr<PendingMessages> one =
      checked_messages(std::make_unique<OnWire>(wire));
  std::unique_ptr<PendingMessages> other =
      checked_messages(std::make_unique<OnWire>(wire));
};

TEST(CheckedMessages, ComeWhole) {
  Pair pair;
  const std::string sent[] = {"a", std::string(100'000, 'b'), "c"};
  std::string got[] = {"?", std::string(100'000, '?'), "?????"}, back = "?";
  for (int i = 0; i < 3; ++i) {
    pair.one->send(kThere, sent[i].data(), std::ssize(sent[i]));
    pair.other->receive(kThere, got[i].data(), std::ssize(got[i]));
  }
  pair.one->receive(kBack, back.data(), 1);
  EXPECT_FALSE(pair.one->done());
  EXPECT_EQ(pair.one->awaited().front(), 5);
  EXPECT_TRUE(pair.other->done());
  EXPECT_EQ(got[0], sent[0]);
  EXPECT_EQ(got[1], sent[1]);
  EXPECT_EQ(got[2], "c????");
  pair.other->send(kBack, "d", 1);
  EXPECT_TRUE(pair.other->done() && pair.one->done());
  EXPECT_EQ(back, "d");
}

// Each bit of the message and of its seal, one after the other.
TEST(CheckedMessages, EveryFlippedBitIsAnError) {
  const std::string sent = "a few bytes of data";
  const size_t bits = 8 * (sent.size() + 16);
  for (size_t bit = 0; bit < bits; ++bit) {
    Pair pair;
    std::string got(64, '?');
    pair.one->send(kThere, sent.data(), std::ssize(sent));
    auto& queue = pair.wire.queue(kThere);
    ASSERT_EQ(queue.size(), 2u);
    ASSERT_EQ(8 * (queue[0].size() + queue[1].size()), bits);
    const bool data = bit < 8 * queue[0].size();
    const size_t at = data ? bit : bit - 8 * queue[0].size();
    queue[data ? 0 : 1][at / 8] ^= static_cast<char>(1 << at % 8);
    pair.other->receive(kThere, got.data(), std::ssize(got));
    const std::string error = error_of([&] { pair.other->done(); });
    EXPECT_EQ(error.find("[checksum] a message from rank 3 to rank 5 is "
                         "damaged: "),
              0u)
        << bit << error;
    // The batch is over, and the next one is not affected.
    pair.one->send(kThere, "x", 1);
    pair.other->receive(kThere, got.data(), 1);
    EXPECT_TRUE(pair.other->done());
    EXPECT_EQ(got[0], 'x');
  }
}

TEST(CheckedMessages, AreGivenUp) {
  Pair pair;
  char c = 0;
  pair.other->receive(kThere, &c, 1);
  EXPECT_FALSE(pair.other->done());
  pair.other->give_up();
  EXPECT_TRUE(pair.other->done());
  EXPECT_TRUE(pair.other->awaited().empty());
}

}  // namespace
}  // namespace dtensor
