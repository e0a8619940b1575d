// SPDX-License-Identifier: Apache-2.0
// Reading boxes of a file on a mesh, and the values of F16.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>

#include "dtensor/io/safetensors.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::values;

namespace fs = std::filesystem;

class SafetensorsRead : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (fs::path(::testing::TempDir()) /
             ("read_" + std::to_string(::getpid()) + ".safetensors"))
                .string();
  }
  void TearDown() override { fs::remove(path_); }

  static void on(const Mesh& mesh, const std::function<void()>& fn) {
    run(mesh.smallest_world(), [&](Runtime&) { fn(); });
  }
  // Writes a file with one tensor, "x".
  void write(const std::string& dtype, const std::string& shape,
             const void* data, size_t bytes) const {
    std::string header = "{\"x\":{\"dtype\":\"" + dtype +
                         "\",\"shape\":" + shape + ",\"data_offsets\":[0," +
                         std::to_string(bytes) + "]}}";
    while (header.size() % 8) header += ' ';
    const uint64_t n = header.size();
    std::ofstream f(path_, std::ios::binary);
    f.write(reinterpret_cast<const char*>(&n), 8);
    f << header;
    f.write(static_cast<const char*>(data),
            static_cast<std::streamsize>(bytes));
  }
  std::string path_;
};

// 0, 1, 2, ...
Tensor counting(const Shape& shape) {
  std::vector<float> v(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  return Tensor::from<float>(shape, v.data());
}

TEST_F(SafetensorsRead, EveryLayoutAndWindow) {
  const Shape shape = {6, 5, 4};
  const Tensor all = counting(shape);
  write("F32", "[6,5,4]", all.data(), 480);
  struct Case {
    SafetensorsWindow window;
    Tensor want;
  };
  const Case cases[] = {
      {{}, all},
      {{.order = {2, 0, 1}, .offset = {}}, all.permute({1, 2, 0})},
      {{.order = {}, .offset = {2, 0, 1}}, all.slice(0, 2, 6).slice(2, 1, 4)},
      {{.order = {1, 0, 2}, .offset = {3, 1, 0}, .shape = {3, 2, 4}},
       all.slice(0, 3, 5).slice(1, 1, 4).permute({1, 0, 2})}};
  const std::pair<const char*, const char*> layouts[] = {
      {"a=1", "R"},
      {"a=2", "S0"},
      {"a=3", "S2"},
      {"a=7", "S1"},
      {"a=2,b=2", "S1,S1"},
      {"a=2,b=2", "S2,S0"},
      {"a=2 of ranks 2,0", "S0"}};
  for (const auto& [mesh, layout] : layouts) {
    const Mesh m = Mesh::parse(mesh);
    on(m, [&] {
      const SafetensorsReader r(path_);
      for (const Case& c : cases) {
        const DistTensor x = r.read("x", m, layout, c.window);
        EXPECT_EQ(x.shape(), c.want.shape());
        if (x.here()) {
          EXPECT_EQ(values(x.full()), values(c.want)) << mesh << " " << layout;
        }
      }
    });
  }
}

TEST_F(SafetensorsRead, ARankReadsItsPartAlone) {
  const Shape shape = {64, 5000};
  const Tensor all = counting(shape);
  write("F32", "[64,5000]", all.data(), 64 * 5000 * 4);
  const Mesh m = Mesh::parse("a=4");
  const auto bytes_read = [] {
    std::ifstream f("/proc/thread-self/io");
    std::string word;
    int64_t n = -1;
    f >> word >> n;
    return word == "rchar:" ? n : -1;
  };
  for (const char* layout : {"S0", "S1"})
    on(m, [&] {
      const SafetensorsReader r(path_);
      const int64_t before = bytes_read();
      const DistTensor x = r.read("x", m, layout);
      const int64_t after = bytes_read();
      if (before >= 0) {
        // (The bytes of /proc/thread-self/io are counted too.)
        EXPECT_LT(after - before, 64 * 5000 + 4096) << layout;
      }
      EXPECT_EQ(x.full().at(64 * 5000 - 1), 64 * 5000 - 1);
    });
}

TEST_F(SafetensorsRead, HalfPrecision) {
  const uint16_t half[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x83FF,
                           0x0400, 0x7C00, 0xFC00, 0x8000, 0x7E00};
  write("F16", "[5,2]", half, sizeof(half));
  const Mesh m = Mesh::parse("a=2");
  on(m, [&] {
    const SafetensorsReader r(path_);
    EXPECT_EQ(r.tensors()[0].dtype, DType::kF16);
    for (const Tensor& t : {r.read("x"), r.read("x", m, "S0").full()}) {
      EXPECT_EQ(t.dtype(), DType::kF16);
      const double inf = HUGE_VAL;
      const double want[] = {1,
                             -2,
                             65504,
                             std::ldexp(1, -24),
                             -std::ldexp(1023, -24),
                             std::ldexp(1, -14),
                             inf,
                             -inf,
                             -0.0};
      for (int i = 0; i < 9; ++i) EXPECT_EQ(t.at(i), want[i]) << i;
      EXPECT_TRUE(std::signbit(t.at(8)));
      EXPECT_TRUE(std::isnan(t.at(9)));
    }
    const DistTensor turned =
        r.read("x", m, "S1", {.order = {1, 0}, .offset = {}});
    EXPECT_EQ(turned.full().at(1), 65504);
  });
}

// The time is linear in the entries, up to logarithms. When each entry looked
// at all others, a header like these took minutes.
TEST_F(SafetensorsRead, AHundredThousandEntries) {
  constexpr int64_t kMany = 100'000;
  for (const std::string& last : {std::string(), std::string("t77")}) {
    std::string header = "{";
    for (int64_t i = 0; i < kMany; ++i)
      header += fmt::format(
          "{}\"t{}\":{{\"dtype\":\"BOOL\",\"shape\":[1],"
          "\"data_offsets\":[{},{}]}}",
          i ? "," : "", i, i, i + 1);
    if (!last.empty())
      header += ",\"" + last +
                "\":{\"dtype\":\"BOOL\",\"shape\":[1],"
                "\"data_offsets\":[77,78]}";
    header += "}";
    const uint64_t n = header.size();
    std::ofstream f(path_, std::ios::binary);
    f.write(reinterpret_cast<const char*>(&n), 8);
    f << header << std::string(kMany, '\1');
    f.close();
    const std::clock_t before = std::clock();
    if (last.empty()) {
      const SafetensorsReader reader(path_);
      ASSERT_EQ(std::ssize(reader.tensors()), kMany);
      for (int64_t i = 0; i < kMany; ++i)
        ASSERT_TRUE(reader.contains(fmt::format("t{}", i)));
      EXPECT_FALSE(reader.contains("t"));
      EXPECT_EQ(reader.read("t99999").at(0), 1);
    } else {
      EXPECT_EQ(testing::error_of([&] { SafetensorsReader reader(path_); }),
                "[safetensors] " + path_ +
                    " has a bad header: t77 occurs twice; download or save the "
                    "file again");
    }
    // Seconds of the processor, only against a test that hangs.
    EXPECT_LT((std::clock() - before) / CLOCKS_PER_SEC, 60);
  }
}

TEST_F(SafetensorsRead, WindowsThatDoNotFitAreRefused) {
  const Tensor all = counting({6, 5});
  write("F32", "[6,5]", all.data(), 120);
  const Mesh m = Mesh::parse("a=2");
  on(m, [&] {
    const SafetensorsReader r(path_);
    EXPECT_THROW(r.read("y", m, "R"), Error);
    EXPECT_THROW(r.read("x", m, "P"), Error);
    for (const SafetensorsWindow& w : std::vector<SafetensorsWindow>{
             {.order = {0, 0}, .offset = {}},
             {.order = {0, 2}, .offset = {}},
             {.order = {0}, .offset = {}},
             {.order = {}, .offset = {0}},
             {.order = {}, .offset = {7, 0}},
             {.order = {}, .offset = {-1, 0}},
             {.order = {}, .offset = {2, 0}, .shape = {5, 5}},
             {.order = {}, .offset = {}, .shape = {6}}})
      EXPECT_THROW(r.read("x", m, "R", w), Error)
          << to_string(w.order) << to_string(w.offset) << to_string(w.shape);
  });
}

// The data begins at a multiple of eight, whatever the names.
TEST_F(SafetensorsRead, TheDataIsAligned) {
  const Mesh m = Mesh::parse("a=2");
  std::string name;
  for (int i = 0; i < 9; ++i) {
    name += 'n';
    on(m, [&] {
      SafetensorsWriter w(m, path_, {{name, DType::kF64, {3}}});
      w.write(name, DistTensor::from_global(Tensor::full({3}, DType::kF64, 2),
                                            m, "S0"));
      w.finish();
    });
    std::ifstream f(path_, std::ios::binary);
    uint64_t n = 0;
    f.read(reinterpret_cast<char*>(&n), 8);
    EXPECT_EQ(n % 8, 0u) << name;
  }
}

}  // namespace
}  // namespace dtensor
