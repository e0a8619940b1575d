// SPDX-License-Identifier: Apache-2.0
#include "dtensor/observer.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

using List = std::vector<std::string>;

// Writes down every call, with a letter in front.
class Writer : public Observer {
 public:
  Writer(char letter, List& list) : letter_(letter), list_(list) {}
  void begins(const Collective&) override { add("begins"); }
  void agreed(const Collective&) noexcept override { add("agreed"); }
  void ends(const Collective&) noexcept override { add("ends"); }
  void ran(RankContext&, const OpRan& op) override {
    add(fmt::format("{}({})", op.op, op.args()));
  }
  using Observer::ran;
  void sent(RankContext&) override { add("sent"); }
  void span(RankContext&, int64_t begin, std::string_view name,
            int64_t number) override {
    EXPECT_GT(begin, 0);
    add(fmt::format("{} {}", name, number));
  }
  void ended(RankContext&) override { add("ended"); }
  bool reads_events(const RankContext&) const override { return reads; }
  Observer* for_second_thread(RankContext& context) override {
    EXPECT_EQ(context.lane, 1);
    return second;
  }
  bool reads = false;
  Observer* second = nullptr;

 private:
  void add(const std::string& text) {
    list_.push_back(std::string(1, letter_) + " " + text);
  }
  const char letter_;
  List& list_;
};

TEST(Observers, AreToldInOrderAndOfEndsInReverse) {
  RunOptions options;
  options.world = 2;
  options.record = true;
  std::vector<List> lists(2);
  run(options, [&](Runtime& rt) {
    RankContext& context = rt.context();
    List& list = lists[static_cast<size_t>(rt.rank())];
    const DistTensor x = zeros({4, 6}, rt.mesh({{"tp", 2}}), "S0");
    EXPECT_TRUE(context.observers.empty());
    Writer a('a', list), b('b', list);
    const Observing first(context, a);
    {
      const Observing second(context, b);
      {
        const TraceSpan span("scope", 3);
        softmax(x, 1);
      }
      x.redistribute("R");
      for (Observer* o : context.observers) o->ended(context);
      EXPECT_FALSE(context.observers.read_events(context));
      b.reads = true;
      EXPECT_TRUE(context.observers.read_events(context));
    }
    softmax(x, 1);
  });
  EXPECT_EQ(fmt::format("{}", fmt::join(lists[0], "; ")),
            "a softmax(dim=1); b softmax(dim=1); a scope 3; b scope 3; "
            "a begins; b begins; b agreed; a agreed; b ends; a ends; "
            "a sent; b sent; a ended; b ended; a softmax(dim=1)");
  EXPECT_EQ(lists[1], lists[0]);
}

TEST(Observers, TheSecondThreadHasItsOwn) {
  List main, second;
  run(2, [&](Runtime& rt) {
    const DistTensor x = zeros({4, 6}, rt.mesh({{"tp", 2}}), "S0");
    if (rt.rank() == 1) {
      x.redistribute_async("R").local();
      return;
    }
    Writer a('a', main), b('b', second);
    a.second = &b;
    const Observing first(rt.context(), a);
    x.redistribute_async("R").local();
  });
  EXPECT_EQ(second, (List{"b begins", "b agreed", "b ends"}));
  EXPECT_EQ(main, (List{"a wait for redistribute_async -1"}));
}

// Not told of a call whose outputs a checkpoint() had kept, nor after its end.
TEST(Observers, OnOpIsCalledForWhatIsComputed) {
  List list;
  run(1, [&](Runtime& rt) {
    const DistTensor x =
        zeros({4}, rt.mesh({{"tp", 1}}), {}, DType::kF64).set_requires_grad();
    {
      const OnOp observe(rt.context(), [&](const OpRan& op) {
        EXPECT_FALSE(op.given.empty());
        EXPECT_EQ(op.out[0].shape(), op.choice.out[0]->shape());
        list.push_back(
            fmt::format("{} {} {}", rt.context().phase, op.op, op.ordinal));
      });
      RecomputeOptions options;
      options.save = [](const CheckpointedCall& call) {
        return call.op == "exp";
      };
      const DistTensor y = checkpoint(
          [](const DistTensor& v) { return tanh(exp(v)); }, x, options);
      list.emplace_back("backward");
      NoGrad no_grad;
      grad(y, {x}, {.cotangent = zeros({4}, x.mesh(), {}, DType::kF64)});
      std::erase_if(list, [](const std::string& text) {
        return text.starts_with("backward ");
      });
    }
    exp(x);
  });
  EXPECT_EQ(list, (List{"forward exp 0", "forward tanh 1", "backward",
                        "recompute tanh 1"}));
}

}  // namespace
}  // namespace dtensor
