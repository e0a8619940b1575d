// SPDX-License-Identifier: Apache-2.0
#include "dtensor/replicas.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "dtensor/all_or_none.h"
#include "dtensor/io/checksum.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/dtensor/message_passing.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

RunOptions of_ranks(int64_t world) {
  RunOptions options;
  options.world = world;
  return options;
}

// Runs fn() on every rank, and returns what it threw, by rank.
std::vector<std::string> errors_on(RunOptions options,
                                   const std::function<void(Runtime&)>& fn) {
  std::vector<std::string> errors(static_cast<size_t>(options.world));
  run(options, [&](Runtime& rt) {
    errors[static_cast<size_t>(rt.rank())] = error_of([&] { fn(rt); });
  });
  return errors;
}

Tensor ramp(const Shape& shape) {
  std::vector<float> v(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  const Tensor t = Tensor::empty(shape, DType::kF32);
  t.device().from_host(t.stream(), t.mutable_data(), v.data(), t.bytes());
  return t;
}

// Adds 1 to one byte of the rank's part.
void flip(const DistTensor& x, int64_t byte) {
  const Tensor& part = x.local();
  std::vector<char> host(static_cast<size_t>(part.bytes()));
  part.to_host(host.data());
  host[static_cast<size_t>(byte)] =
      static_cast<char>(host[static_cast<size_t>(byte)] + 1);
  part.device().from_host(part.stream(), part.mutable_data(), host.data(),
                          part.bytes());
}

TEST(Checksum, IsXxh3) {
  // From the sanity checks of the reference implementation: the empty input.
  EXPECT_EQ(checksum("", 0), 0x2d06800538d394c2u);
  const std::string text(100'000, 'x');
  Checksum c;
  c.add(text.data(), 3);
  c.add(text.data() + 3, std::ssize(text) - 3);
  EXPECT_EQ(c.value(), checksum(text.data(), std::ssize(text)));
  EXPECT_NE(c.value(), checksum(text.data(), std::ssize(text) - 1));
  c.reset();
  EXPECT_EQ(c.value(), checksum("", 0));
  EXPECT_EQ(checksum_text(0xab), "00000000000000ab");
}

TEST(AllOrNone, EveryRankThrowsTheSentenceOfTheLowest) {
  for (const bool messages : {false, true}) {
    RunOptions options = of_ranks(3);
    if (messages) options.backend = testing::message_passing_backend;
    const auto fails_on = [&](int64_t first, int64_t last) {
      return errors_on(options, [&](Runtime& rt) {
        all_or_none("test", 1, [&] {
          if (rt.rank() < first || rt.rank() > last) return;
          if (rt.rank() == 1) fail("test", "rank {} fails", rt.rank());
          throw std::runtime_error("odd");
        });
      });
    };
    const auto all = [](const std::string& text) {
      return std::vector<std::string>(3, text);
    };
    EXPECT_EQ(fails_on(1, 1), all("[test] rank 1 fails"));
    EXPECT_EQ(fails_on(2, 2), all("[test] rank 2 threw: odd"));
    EXPECT_EQ(fails_on(1, 2), all("[test] rank 1 fails (2 of 3 ranks failed)"));
    EXPECT_EQ(fails_on(3, 0), all("no error"));
    // The ranks must pass the same fingerprint.
    for (const std::string& e : errors_on(options, [](Runtime& rt) {
           all_or_none("test", rt.rank() == 2, [] {});
         }))
      EXPECT_NE(e.find("rank"), e.npos) << e;
  }
}

TEST(Replicas, TheOddRankIsNamed) {
  const auto device = RecordingDevice::make();
  for (const std::string kind : {"threads", "messages", "device"}) {
    RunOptions options = of_ranks(6);
    if (kind == "messages") options.backend = testing::message_passing_backend;
    if (kind == "device")
      options.device = [&](int64_t) -> Device& { return *device; };
    // Ranks 0, 2 and 4 have copies of rows [0,2) of b. Rank 2 changes its copy.
    const Mesh mesh = Mesh::parse("dp=3,tp=2");
    const auto errors = errors_on(options, [&](Runtime& rt) {
      const auto x = [&](const char* name, const char* layout) {
        return NamedTensor{name,
                           DistTensor::from_global(ramp({5, 2}), mesh, layout)};
      };
      const std::vector<NamedTensor> all = {x("a", "R,R"), x("b", "R,S0"),
                                            x("c", "S0,S1"), x("d", "P,S0")};
      check_replicas(all);
      // No other rank has copies of these parts of c and d.
      if (rt.rank() == 2) flip(all[2].tensor, 1);
      if (rt.rank() == 2) flip(all[3].tensor, 1);
      check_replicas(all);
      if (rt.rank() == 2) flip(all[1].tensor, 15);
      check_replicas(all);
    });
    for (const std::string& e : errors) {
      EXPECT_EQ(e, errors[0]);
      EXPECT_NE(e.find("copies of b f32[5, 2](R,S0) differ: rank 2 "), e.npos)
          << e;
      EXPECT_NE(e.find("against ranks 0,4 "), e.npos) << e;
    }
  }
}

TEST(Replicas, WithoutAMajorityAllAreListed) {
  const Mesh mesh = Mesh::parse("dp=2");
  for (const std::string& e : errors_on(of_ranks(3), [&](Runtime& rt) {
         const DistTensor x =
             DistTensor::wrap(rt.rank() < 2 ? ramp({3}) : Tensor(),
                              Spec::replicated(mesh, {3}, DType::kF32));
         if (rt.rank() == 1) flip(x, 0);
         check_replicas(std::vector<NamedTensor>{{"x", x}});
       })) {
    EXPECT_NE(e.find("none has a majority: rank "), e.npos) << e;
    EXPECT_NE(e.find("rank 0 "), e.npos) << e;
    EXPECT_NE(e.find("rank 1 "), e.npos) << e;
  }
}

TEST(Replicas, OtherListsAreRefusedAndADryRunDoesNothing) {
  const auto check = [](Runtime& rt) {
    const DistTensor x = DistTensor::from_global(ramp({3}), rt.mesh(), "R");
    check_replicas(std::vector<NamedTensor>{{rt.rank() == 0 ? "x" : "y", x}});
  };
  for (const std::string& e : errors_on(of_ranks(2), check))
    EXPECT_NE(e.find("check_replicas"), e.npos) << e;
  RunOptions dry = of_ranks(2);
  dry.dry_run = true;
  run(dry, [](Runtime& rt) {
    const DistTensor x =
        DistTensor::empty(Spec::replicated(rt.mesh(), {3}, DType::kF32));
    check_replicas(std::vector<NamedTensor>{{"x", x}});
  });
}

}  // namespace
}  // namespace dtensor
