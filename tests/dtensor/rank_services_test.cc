// SPDX-License-Identifier: Apache-2.0
#include "dtensor/rank_services.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// Adds its letter to a text when it finishes, and a capital when it ends.
template <char letter>
struct Letter : RankServices::Service {
  Letter(std::string& t, int n) : text(t), number(n) {}
  ~Letter() override { text += static_cast<char>(letter - 'a' + 'A'); }
  void finish() override {
    if (number < 0) fail("letter", "{} is negative; write 0 or more", number);
    text += letter;
  }
  std::string& text;
  int number;
};
using A = Letter<'a'>;
using B = Letter<'b'>;

TEST(RankServices, HoldOneObjectOfEachType) {
  std::string text;
  RankServices services;
  EXPECT_EQ(services.find<A>(), nullptr);
  EXPECT_EQ(services.take<B>(), nullptr);
  A& a = services.get<A>(text, 1);
  EXPECT_EQ(&services.get<A>(text, 2), &a);
  EXPECT_EQ(services.find<A>(), &a);
  EXPECT_EQ(a.number, 1);
  EXPECT_EQ(services.find<B>(), nullptr);
  EXPECT_EQ(services.get<B>(text, 3).number, 3);
  services.set(std::make_unique<B>(text, 4));
  EXPECT_EQ(text, "B");
  EXPECT_EQ(services.find<B>()->number, 4);
  {
    const std::unique_ptr<B> taken = services.take<B>();
    EXPECT_EQ(taken->number, 4);
    EXPECT_EQ(services.find<B>(), nullptr);
  }
  EXPECT_EQ(text, "BB");
  services.finish();
  EXPECT_EQ(text, "BBa");
  services.clear();
  EXPECT_EQ(text, "BBaA");
  EXPECT_EQ(services.find<A>(), nullptr);
}

// An object may need another to finish, and finds none while all are destroyed.
struct Needs : RankServices::Service {
  Needs(RankServices& s, std::string& t) : services(s), text(t) {}
  ~Needs() override { text += services.find<A>() ? '+' : '-'; }
  void finish() override { services.get<A>(text, 1); }
  RankServices& services;
  std::string& text;
};

TEST(RankServices, FinishMayMakeAnother) {
  std::string text;
  RankServices services;
  services.get<Needs>(services, text);
  services.get<B>(text, 1);
  services.finish();
  EXPECT_NE(services.find<A>(), nullptr);
  EXPECT_EQ(std::count(text.begin(), text.end(), 'b'), 1);
  services.clear();
  EXPECT_EQ(std::count(text.begin(), text.end(), '-'), 1);
  EXPECT_EQ(std::count(text.begin(), text.end(), 'A'), 1);
  EXPECT_EQ(std::count(text.begin(), text.end(), 'B'), 1);
}

TEST(RankServices, FinishThrowsTheErrorOfAnObject) {
  std::string text;
  RankServices services;
  services.get<A>(text, -1);
  EXPECT_EQ(testing::error_of([&] { services.finish(); }),
            "[letter] -1 is negative; write 0 or more");
}

}  // namespace
}  // namespace dtensor
