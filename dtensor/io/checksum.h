// SPDX-License-Identifier: Apache-2.0
// Checksums of bytes: 64-bit XXH3 (https://xxhash.com), which gives the same
// value on every machine, at about the speed of memory. It detects accidental
// damage, not forgery.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace dtensor {

uint64_t checksum(const void* data, int64_t bytes);

// Computes checksum() of bytes that are added piece by piece.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(const void* data, int64_t bytes);
  // The checksum of the bytes added so far.
  uint64_t value() const;
  // Starts again, with no bytes.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The checksum as sixteen hexadecimal digits, for files and errors.
std::string checksum_text(uint64_t);

}  // namespace dtensor
