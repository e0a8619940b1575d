// SPDX-License-Identifier: Apache-2.0
// Data from a file, of which every rank reads its own rows: the layout says
// which. No rank ever has the whole batch.
//
//   bazel run //examples:14_data -- --mesh dp=3,tp=2
#include <cmath>
#include <filesystem>
#include <fstream>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kRows = 1000, kColumns = 6, kBatch = 10;
const char* const kFile = "14_data.bin";

// Writes the file: f32 values, row after row. Row r holds r + 0.1 * column.
void write_file() {
  std::vector<float> values;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kColumns; ++c)
      values.push_back(static_cast<float>(r) + 0.1F * static_cast<float>(c));
  std::ofstream file(kFile, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  DT_CHECK(file.good(), "14_data", "cannot write {}", kFile);
}

// Batch number `step` [kBatch, kColumns], in the given layout, which splits
// rows alone. The rows of a batch are neighbours in the file; a loader that
// shuffles looks up the place of each row instead.
DistTensor read_batch(std::ifstream& file, int64_t step, const Mesh& mesh,
                      const Placements& layout, int64_t& rows_read) {
  const DistTensor batch = empty({kBatch, kColumns}, mesh, layout);
  if (!batch.here() || batch.local().numel() == 0) return batch;
  std::vector<float> values(static_cast<size_t>(batch.local().numel()));
  float* to = values.data();
  for (const Interval& rows : batch.region(0)) {
    const int64_t n = rows.size() * kColumns;
    const int64_t first = (step * kBatch + rows.lo) % kRows;
    file.seekg(first * kColumns * static_cast<int64_t>(sizeof(float)));
    file.read(reinterpret_cast<char*>(to),
              n * static_cast<int64_t>(sizeof(float)));
    DT_CHECK(file.good(), "14_data", "cannot read row {} of {}", first, kFile);
    to += n;
    rows_read += rows.size();
  }
  batch.local().copy_from(Tensor::from(batch.local().shape(), values.data()));
  return batch;
}

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  if (rt.dry_run()) return;
  if (rt.rank() == 0) write_file();
  barrier();
  std::ifstream file(kFile, std::ios::binary);
  int64_t rows_read = 0;
  double sum_of_all = 0;
  for (int64_t step = 0; step < 5; ++step) {
    const DistTensor x =
        read_batch(file, step, mesh, {{"dp", Shard(0)}}, rows_read);
    sum_of_all += sum(x).item();
  }
  double want = 0;
  for (int64_t r = 0; r < 5 * kBatch; ++r)
    for (int64_t c = 0; c < kColumns; ++c) want += r + 0.1 * c;
  DT_CHECK(std::abs(sum_of_all - want) < 0.1, "14_data",
           "the sum of the batches is {}, not {}", sum_of_all, want);
  const auto all = all_gather("14_data", rows_read);
  if (rt.rank() != 0) return;
  fmt::print("sum of 5 batches: {:.1f}\n", sum_of_all);
  for (size_t r = 0; r < all.size(); ++r)
    fmt::print("rank {} read {} of {} rows\n", r, all[r], 5 * kBatch);
  std::filesystem::remove(kFile);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Each rank reads its rows of a file.",
              .mesh = "dp=3,tp=1",
              .axes = {"dp", "tp"}});
}
