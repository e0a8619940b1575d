// SPDX-License-Identifier: Apache-2.0
#include "programs/text_data.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <vector>

#include "dtensor/ops/kernels/philox.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/text_file.h"

namespace dtensor::examples {
namespace {

// The inputs of row r are the n bytes from offset(r) on, its targets the n
// bytes from offset(r) + 1 on.
nn::Batch make_batch(const std::string& bytes, int64_t rows, int64_t n,
                     const std::function<int64_t(int64_t)>& offset) {
  const Shape shape = {rows, n};
  // A dry run has no data.
  if (const auto* rank = RankContext::current_or_null(); rank && rank->dry_run)
    return {Tensor::empty(shape, DType::kI64),
            Tensor::empty(shape, DType::kI64)};
  std::vector<int64_t> in, out;
  for (int64_t r = 0; r < rows; ++r) {
    const auto* from =
        reinterpret_cast<const unsigned char*>(bytes.data()) + offset(r);
    in.insert(in.end(), from, from + n);
    out.insert(out.end(), from + 1, from + n + 1);
  }
  return {Tensor::from(shape, in.data()), Tensor::from(shape, out.data())};
}

}  // namespace

TextData TextData::file(const std::string& path) {
  return {path, read_text_file("text", path)};
}

TextData TextData::licences() {
  std::string all;
  for (const char* name : {"GPL-3", "LGPL-3", "Apache-2.0", "MPL-2.0"}) {
    const std::string path = std::string("/usr/share/common-licenses/") + name;
    DT_CHECK(std::filesystem::exists(path), "text",
             "there is no {}, a part of the default text; write --text FILE",
             path);
    all += read_text_file("text", path);
  }
  return {"the licence texts of Debian", std::move(all)};
}

double TextData::entropy() const {
  std::array<int64_t, 256> count{};
  for (char c : bytes_) ++count[static_cast<unsigned char>(c)];
  double sum = 0;
  for (int64_t c : count) {
    const double p = static_cast<double>(c) / static_cast<double>(size());
    if (c) sum -= p * std::log(p);
  }
  return sum;
}

void TextData::require(int64_t n) const {
  DT_CHECK(
      size() >= n, "text",
      "a window needs {} bytes, but there are only {} in {}; take a longer "
      "text or a smaller --seq",
      n, size(), name_);
}

nn::Batch TextData::windows(int64_t rows, int64_t seq, uint64_t seed,
                            int64_t step) const {
  return make_batch(bytes_, rows, seq, [&](int64_t r) {
    const kernels::Philox4 p = kernels::philox_block(
        seed, static_cast<uint64_t>(step), static_cast<uint64_t>(r));
    const uint64_t x = uint64_t{p.x[1]} << 32 | p.x[0];
    __extension__ using Wide = unsigned __int128;
    return static_cast<int64_t>(Wide{x} * static_cast<uint64_t>(size() - seq) >>
                                64);
  });
}

nn::Batch TextData::consecutive(int64_t first, int64_t rows,
                                int64_t seq) const {
  return make_batch(bytes_, rows, seq - 1,
                    [&](int64_t r) { return (first + r) * seq; });
}

}  // namespace dtensor::examples
