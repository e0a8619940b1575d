// A text as training data: tokens are bytes.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/tensor.h"

namespace dtensor::examples {

// Windows of a batch: inputs[r] and targets[r], [rows, n] in i64, where the
// target of a byte is the next one.
struct Batch {
  Tensor inputs, targets;
};

class TextData {
 public:
  // Throws Error when the file cannot be read.
  static TextData file(const std::string& path);
  // GPL-3, LGPL-3, Apache-2.0 and MPL-2.0, which every Debian machine has.
  static TextData licences();
  // For a dry run, whose batches have no data.
  static TextData none() { return {"", ""}; }

  const std::string& bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  // Nats per byte of a model that knows only how often each byte occurs.
  double entropy() const;
  // Throws Error unless there is one window of n bytes.
  void require(int64_t n) const;

  // The batch of a step: `rows` windows of seq+1 bytes, of which row r starts
  // at floor(x * (size - seq) / 2^64), x the first 64 bits (low word first) of
  // Philox block r of stream `step` under the seed. Equal on every mesh.
  Batch windows(int64_t rows, int64_t seq, uint64_t seed, int64_t step) const;
  // Rows `first` to first+rows-1 of the text cut into consecutive windows of
  // seq bytes; each predicts its own bytes 2 to seq.
  Batch consecutive(int64_t first, int64_t rows, int64_t seq) const;

 private:
  TextData(std::string name, std::string bytes)
      : name_(std::move(name)), bytes_(std::move(bytes)) {}
  std::string name_, bytes_;
};

}  // namespace dtensor::examples
