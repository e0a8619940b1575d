// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/explore/question.h"

#include <gtest/gtest.h>

#include "tests/testing.h"

namespace dtensor::explore {
namespace {

using testing::error_of;
using Flags = std::vector<std::string>;

TEST(Question, ParametersAreFlagsInTheirOrder) {
  const Question q = read_question(
      "model=gpt&mesh=dp%3D2%2ctp%3D4&in=4x8:S0,R&in=4x8:S0,R&a=b+c&"
      "sequence-parallel&&client=k3");
  EXPECT_EQ(q.client, "k3");
  EXPECT_EQ(q.flags,
            (Flags{"--model=gpt", "--mesh=dp=2,tp=4", "--in=4x8:S0,R",
                   "--in=4x8:S0,R", "--a=b c", "--sequence-parallel"}));
  EXPECT_TRUE(read_question("").flags.empty());
}

// A value never becomes a flag, and a flag never takes the next flag as its
// value.
TEST(Question, ValuesAreNeverFlags) {
  EXPECT_EQ(read_question("op=--svg&x=-1").flags,
            (Flags{"--op=--svg", "--x=-1"}));
  EXPECT_EQ(read_question("op=&svg=a").flags, (Flags{"--op", "", "--svg=a"}));
}

TEST(Question, RefusesOthersThanNamesOfFlags) {
  for (const char* query : {"=a", "-x=1", "--x=1", "X=1", "x%20y=1", "x%00=1",
                            "x%3D=1", "\x80=1", "../x", "x;y"})
    EXPECT_NE(error_of([&] { read_question(query); }), "no error") << query;
  EXPECT_NE(error_of([] { read_question(std::string(41, 'a')); }), "no error");
  for (const char* query : {"x=%", "x=%4", "x=%4g", "x=%00", "x=a%00b"})
    EXPECT_NE(error_of([&] { read_question(query); }), "no error") << query;
}

TEST(Question, RefusesWhatSaysWhereOutputGoes) {
  for (const char* name :
       {"json", "record", "html", "help", "version", "explore", "dry-run"}) {
    EXPECT_EQ(
        error_of([&] { read_question(name + std::string("=a")); }),
        fmt::format("[--{}] it cannot be asked here; leave it out", name));
    EXPECT_NE(error_of([&] { read_question(name); }), "no error");
  }
}

TEST(Question, IsBounded) {
  std::string many;
  for (int i = 0; i < 100; ++i) many += "x=1&";
  EXPECT_EQ(read_question(many).flags.size(), 100u);
  EXPECT_NE(error_of([&] { read_question(many + "x=1"); }).find("100 flags"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              read_question(std::string(8001, 'a'));
            }).find("8001 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace dtensor::explore
