// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of checkpoints: values in which every bit matters,
// runs, and a folder that is removed.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/io/checkpoint.h"
#include "dtensor/placement/hash.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor::testing {

namespace fs = std::filesystem;

// A folder of this process, empty at first. The destructor removes it.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_((fs::path(::testing::TempDir()) /
               (name + "_" + std::to_string(::getpid())))
                  .string()) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code e;
    fs::remove_all(path_, e);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const {
    return (fs::path(path_) / name).string();
  }

 private:
  std::string path_;
};

inline RunOptions of_ranks(int64_t world) {
  RunOptions options;
  options.world = world;
  return options;
}

// The bytes of a whole tensor. Every byte follows from `seed` and its position,
// and may have any bits, except that a bool is 0 or 1.
inline std::vector<char> random_bytes(const Shape& shape, DType t,
                                      uint64_t seed) {
  std::vector<char> v(static_cast<size_t>(numel(shape) * size_of(t)));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<char>(hash_mix(seed, i) & (t == DType::kBool ? 1 : 255));
  return v;
}

inline Tensor whole(const Shape& shape, DType t, uint64_t seed) {
  const std::vector<char> v = random_bytes(shape, t, seed);
  const Tensor out = Tensor::empty(shape, t);
  if (!v.empty() && out.data())
    out.device().from_host(out.stream(), out.mutable_data(), v.data(),
                           out.bytes());
  return out;
}

inline std::vector<char> bits(const Tensor& t) {
  std::vector<char> v(static_cast<size_t>(t.bytes()));
  if (!v.empty()) t.to_host(v.data());
  return v;
}

// One tensor of a test.
struct Sample {
  std::string name;
  DType dtype;
  Shape shape;
  std::string layout;

  DistTensor on(const Mesh& mesh, const std::string& text,
                uint64_t seed) const {
    return DistTensor::from_global(whole(shape, dtype, seed + hash_text(name)),
                                   mesh, std::string_view(text));
  }
};

// Expects that this rank's part of `x` is its part of the sample in `layout`.
inline void expect_is(const DistTensor& x, const Sample& s,
                      const std::string& layout, uint64_t seed) {
  ASSERT_EQ(x.dtype(), s.dtype);
  ASSERT_EQ(x.shape(), s.shape);
  if (!x.here()) return;
  EXPECT_EQ(bits(x.local()), bits(s.on(x.mesh(), layout, seed).local()))
      << s.name << " as " << x.spec()->to_string() << " on "
      << x.mesh().to_string();
}

inline std::string text_of(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

// The bytes after the header of a safetensors file.
inline std::string data_of(const std::string& path) {
  const std::string text = text_of(path);
  uint64_t header = 0;
  if (text.size() >= 8) std::memcpy(&header, text.data(), 8);
  return text.substr(std::min<size_t>(8 + header, text.size()));
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// The names in a folder, sorted.
inline std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Runs fn() on every rank. Returns the errors that it threw, by rank.
inline std::vector<std::string> errors_on(
    const RunOptions& options, const std::function<void(Runtime&)>& fn) {
  std::vector<std::string> errors(static_cast<size_t>(options.world));
  run(options, [&](Runtime& rt) {
    errors[static_cast<size_t>(rt.rank())] = error_of([&] { fn(rt); });
  });
  return errors;
}

}  // namespace dtensor::testing
