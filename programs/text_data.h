// SPDX-License-Identifier: Apache-2.0
// Text as training data; a token is a byte.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/nn/trainer.h"

namespace dtensor::examples {

// A text. Its batches have tensors `inputs` and `targets` [rows, n] in i64.
// Each row is a window of n bytes, and the target of a byte is the byte after
// it.
class TextData {
 public:
  // Reads a file. Throws Error if it cannot be read.
  static TextData file(const std::string& path);
  // The texts of GPL-3, LGPL-3, Apache-2.0 and MPL-2.0, which every Debian
  // system has. Throws Error if one cannot be read.
  static TextData licences();
  // An empty text for a dry run, whose batches have no data.
  static TextData none() { return {"", ""}; }

  const std::string& bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  // The loss, in nats per byte, of a model that knows only how often each byte
  // occurs.
  double entropy() const;
  // Throws Error unless the text has at least n bytes.
  void require(int64_t n) const;

  // The batch of a step: `rows` windows of seq + 1 bytes. Row r starts at
  // floor(x * (size - seq) / 2^64), where x is the first 64 bits (low word
  // first) of Philox block r of stream `step` under the seed. The batch is the
  // same on every mesh.
  nn::Batch windows(int64_t rows, int64_t seq, uint64_t seed,
                    int64_t step) const;
  // Cuts the text into consecutive windows of seq bytes, and returns `rows` of
  // them from window `first` on. The inputs of a window are all bytes but its
  // last, the targets all but its first.
  nn::Batch consecutive(int64_t first, int64_t rows, int64_t seq) const;

 private:
  TextData(std::string name, std::string bytes)
      : name_(std::move(name)), bytes_(std::move(bytes)) {}
  std::string name_, bytes_;
};

}  // namespace dtensor::examples
