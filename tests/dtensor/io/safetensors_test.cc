// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using testing::values;

namespace fs = std::filesystem;

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) /
           ("safetensors_" + std::to_string(::getpid()));
    fs::create_directories(dir_);
    path_ = (dir_ / "x.safetensors").string();
  }
  void TearDown() override { fs::remove_all(dir_); }

  static void on(const std::string& text,
                 const std::function<void(const Mesh&)>& fn) {
    const Mesh mesh = Mesh::parse(text);
    run(mesh.num_ranks(), [&](Runtime&) { fn(mesh); });
  }
  fs::path dir_;
  std::string path_;
};

// 0, 1, 2, ... in row-major order.
Tensor counting(const Shape& shape, DType t = DType::kF32) {
  std::vector<int64_t> v(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int64_t>(i);
  const Tensor out = Tensor::empty(shape, t);
  for (size_t i = 0; i < v.size() && out.data(); ++i) {
    if (t == DType::kF32)
      out.mutable_ptr<float>()[i] = static_cast<float>(v[i]);
    if (t == DType::kF64)
      out.mutable_ptr<double>()[i] = static_cast<double>(v[i]);
    if (t == DType::kI64) out.mutable_ptr<int64_t>()[i] = v[i];
    if (t == DType::kI32)
      out.mutable_ptr<int32_t>()[i] = static_cast<int32_t>(v[i]);
    if (t == DType::kBF16)
      out.mutable_ptr<bf16>()[i] = bf16(static_cast<float>(v[i] % 256));
    if (t == DType::kF16)
      out.mutable_ptr<f16>()[i] = f16(static_cast<float>(v[i] % 2048));
    if (t == DType::kBool) out.mutable_ptr<bool>()[i] = v[i] % 2;
    if (t == DType::kI8)
      out.mutable_ptr<int8_t>()[i] = static_cast<int8_t>(v[i] % 256 - 128);
  }
  return out;
}

TEST_F(Safetensors, SavesAndLoadsAList) {
  on("a=3", [&](const Mesh& m) {
    const auto x = DistTensor::from_global(counting({5, 2}), m, "S0"),
               n = DistTensor::from_global(counting({4}, DType::kI64), m, {});
    save_safetensors(path_, {{"x", x}, {"n", n}});
    const std::vector<NamedTensor> back = load_safetensors(path_, m, "S0");
    ASSERT_EQ(back.size(), 2);
    for (const auto& [name, tensor] : back) {
      const DistTensor& want = name == "n" ? n : x;
      EXPECT_EQ(tensor.dtype(), want.dtype());
      EXPECT_EQ(tensor.layout().to_string(m), "S0");
      EXPECT_EQ(values(tensor), values(want));
    }
    EXPECT_EQ(error_of([&] { save_safetensors(path_, {}); }),
              "[safetensors] no tensor is to be saved in " + path_ +
                  "; pass one or more");
  });
  on("a=2",
     [&](const Mesh& m) { EXPECT_EQ(load_safetensors(path_, m).size(), 2); });
}

TEST_F(Safetensors, EveryLayoutOnEveryMesh) {
  const Shape shape = {5, 6, 3};
  const std::pair<const char*, const char*> cases[] = {
      {"a=1", "R"},        {"a=2", "S0"},        {"a=2", "S2"},
      {"a=3", "S1"},       {"a=7", "S0"},        {"a=2,b=2", "S0,S0"},
      {"a=2,b=2", "R,S1"}, {"a=2,b=3", "S2,S0"}, {"a=2,b=2", "R,R"},
      {"a=2", "S1/3"}};
  for (const auto& [mesh, layout] : cases) {
    on(mesh, [&, layout = layout](const Mesh& m) {
      SafetensorsWriter w(m, path_,
                          {{"plain", DType::kF32, shape},
                           {"turned", DType::kF32, {3, 5, 6}},
                           {"two", DType::kF32, {5, 12, 3}}});
      const DistTensor x = DistTensor::from_global(counting(shape), m, layout);
      w.write("plain", x);
      w.write("turned", x, {.order = {2, 0, 1}, .offset = {}});
      w.write("two", x, {.order = {}, .offset = {0, 6, 0}});
      w.write("two", x);
      w.finish();
    });
    on("a=1", [&, mesh = mesh, layout = layout](const Mesh&) {
      const std::vector<double> expected = values(counting(shape));
      const SafetensorsReader r(path_);
      EXPECT_EQ(values(r.read("plain")), expected) << mesh << " " << layout;
      EXPECT_EQ(values(r.read("turned").permute({1, 2, 0}).to_contiguous()),
                expected)
          << mesh << " " << layout;
      const Tensor two = r.read("two");
      for (int64_t lo : {0, 6})
        EXPECT_EQ(values(two.slice(1, lo, lo + 6).to_contiguous()), expected)
            << mesh << " " << layout;
    });
    EXPECT_FALSE(fs::exists(path_ + ".tmp"));
  }
}

TEST_F(Safetensors, EveryDtypeAndOddShapes) {
  const DType types[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                         DType::kI32, DType::kI64, DType::kBool, DType::kI8};
  on("a=2", [&](const Mesh& m) {
    std::vector<TensorInfo> infos;
    for (DType t : types) infos.push_back({std::string(name(t)), t, {7}});
    infos.push_back({"scalar", DType::kF32, {}});
    infos.push_back({"empty", DType::kF32, {0, 4}});
    infos.push_back({"one byte", DType::kI8, {1}});
    SafetensorsWriter w(m, path_, infos);
    for (DType t : types)
      w.write(name(t), DistTensor::from_global(counting({7}, t), m, "S0"));
    w.write("scalar", DistTensor::from_global(counting({}), m, {}));
    w.write("empty", DistTensor::from_global(counting({0, 4}), m, "S1"));
    w.write("one byte",
            DistTensor::from_global(counting({1}, DType::kI8), m, "R"));
    w.finish();
  });
  on("a=1", [&](const Mesh&) {
    const SafetensorsReader r(path_);
    for (DType t : types) {
      const Tensor x = r.read(name(t));
      EXPECT_EQ(x.dtype(), t);
      EXPECT_EQ(values(x), values(counting({7}, t))) << name(t);
    }
    EXPECT_EQ(r.read("scalar").ndim(), 0);
    EXPECT_EQ(r.read("empty").shape(), (Shape{0, 4}));
    EXPECT_EQ(values(r.read("one byte")), values(counting({1}, DType::kI8)));
  });
}

// Rows that are larger than the buffer, whole and cut.
TEST_F(Safetensors, LargeTensorsInSmallPieces) {
  const Shape shape = {3, 700'000};
  on("a=2", [&](const Mesh& m) {
    SafetensorsWriter w(m, path_,
                        {{"columns", DType::kF32, shape},
                         {"turned", DType::kF32, {700'000, 3}}});
    const DistTensor x = DistTensor::from_global(counting(shape), m, "S1");
    RankContext::current().allocator->reset_peak();
    const auto before = RankContext::current().allocator->stats();
    w.write("columns", x);
    w.write("turned", x, {.order = {1, 0}, .offset = {}});
    const auto after = RankContext::current().allocator->stats();
    EXPECT_LE(after.peak_bytes - before.current_bytes, 2 << 20);
    w.finish();
  });
  on("a=1", [&](const Mesh&) {
    const SafetensorsReader r(path_);
    const Tensor a = r.read("columns"), b = r.read("turned");
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 700'000; ++j) {
        const auto expected = static_cast<float>(i * 700'000 + j);
        ASSERT_EQ(a.ptr<float>()[i * 700'000 + j], expected);
        ASSERT_EQ(b.ptr<float>()[j * 3 + i], expected);
      }
  });
}

TEST_F(Safetensors, MisuseIsRefusedAndLeavesNothing) {
  on("a=2", [&](const Mesh& m) {
    const auto x = [&](Shape s, Placements p) {
      return DistTensor::from_global(counting(s), m, p);
    };
    {
      SafetensorsWriter w(m, path_, {{"t", DType::kF32, {4, 6}}});
      EXPECT_THROW(w.write("u", x({4, 6}, {})), Error);
      EXPECT_THROW(w.write("t", x({4, 7}, {})), Error);
      EXPECT_THROW(w.write("t", x({4}, {})), Error);
      EXPECT_THROW(w.write("t", x({4, 6}, "P")), Error);
      EXPECT_THROW(w.write("t", x({4, 6}, {}), {{1, 0}, {}}), Error);
      EXPECT_THROW(w.write("t", x({4, 6}, {}), {{0, 0}, {}}), Error);
      EXPECT_THROW(w.write("t", x({4, 3}, {}), {{}, {0, 4}}), Error);
      EXPECT_THROW(w.write("t", x({4, 3}, {}), {{}, {0, -1}}), Error);
      EXPECT_THROW(w.write("t", DistTensor::from_global(
                                    counting({4, 6}, DType::kF64), m, {})),
                   Error);
      w.write("t", x({4, 3}, "S0"));
      EXPECT_THROW(w.finish(), Error);  // half of it is missing
    }
    EXPECT_THROW(
        SafetensorsWriter(m, path_,
                          {{"t", DType::kF32, {1}}, {"t", DType::kF32, {1}}}),
        Error);
    EXPECT_THROW(
        SafetensorsWriter(m, path_,
                          {{"t", DType::kF32, {int64_t{1} << 40, 1 << 30}}}),
        Error);
    EXPECT_THROW(SafetensorsWriter(m, path_, {{"t", DType::kF32, {-1, -1}}}),
                 Error);
    const auto named = [&](const char* name) {
      return error_of([&] {
        SafetensorsWriter(m, path_, {{name, DType::kF32, {1}}});
      });
    };
    EXPECT_EQ(named("t\xff"),
              "[safetensors] the name \"t\\ufffd\" of a tensor is not UTF-8; "
              "write names in UTF-8");
    EXPECT_EQ(named("__metadata__"),
              "[safetensors] a tensor is named __metadata__, which the format "
              "keeps for itself; give it another name");
  });
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_FALSE(fs::exists(path_ + ".tmp"));
  EXPECT_THROW(on("a=2",
                  [&](const Mesh& m) {
                    SafetensorsWriter(m, (dir_ / "no" / "folder").string(), {});
                  }),
               Error);
}

// Without other ranks, rank 0 removes its file itself.
TEST_F(Safetensors, AWriterThatIsGivenUpLeavesNothing) {
  on("a=1", [&](const Mesh& m) {
    SafetensorsWriter w(m, path_, {{"t", DType::kF32, {4}}});
    EXPECT_TRUE(fs::exists(path_ + ".tmp"));
  });
  EXPECT_FALSE(fs::exists(path_ + ".tmp"));
}

TEST_F(Safetensors, BadFilesAreRefused) {
  const auto file = [&](const std::string& header, size_t data,
                        int64_t length = -1) {
    const uint64_t n = length < 0 ? header.size() : uint64_t(length);
    std::ofstream f(path_, std::ios::binary | std::ios::trunc);
    f.write(reinterpret_cast<const char*>(&n), 8);
    f << header << std::string(data, '\0');
  };
  const auto error = [&]() -> std::string {
    try {
      SafetensorsReader r(path_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string ok =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_NE(error(), "");  // no file
  file(ok, 8);
  EXPECT_EQ(error(), "");
  file(ok, 8, 1 << 20);
  EXPECT_NE(error(), "");
  file(ok, 8, -2 & INT64_MAX);
  EXPECT_NE(error(), "");
  file(ok, 7);
  EXPECT_NE(error(), "");
  file(ok, 9);
  EXPECT_NE(error(), "");
  std::ofstream(path_, std::ios::trunc) << "short";
  EXPECT_NE(error(), "");
  for (const char* header :
       {"", "[]", "{", R"({"a":1})",
        R"({"a":{"dtype":"F9","shape":[2],"data_offsets":[0,8]}})",
        R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
        R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
        R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
        R"({"a":{"dtype":"F32","shape":[2]}})",
        R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],)"
        R"("data_offsets":[0,0]}})",
        R"({"a":{"dtype":"F32","shape":[18446744073709551616],)"
        R"("data_offsets":[0,8]}})",
        R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],)"
        R"("data_offsets":[0,8]}})",
        // a gap, an overlap, a name twice
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
        R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
        R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
        R"({"__metadata__":{"x":1},)"
        R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"}) {
    file(header, 8);
    EXPECT_NE(error(), "") << header;
  }
}

}  // namespace
}  // namespace dtensor
