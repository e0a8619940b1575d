// Checksums of bytes: XXH3 with 64 bits (https://xxhash.com), which is the same
// on every machine and as fast as memory. It finds accidents, not forgeries.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace dtensor {

uint64_t checksum(const void* data, int64_t bytes);

// The same of bytes that come piece by piece.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(const void* data, int64_t bytes);
  // Of what was added so far.
  uint64_t value() const;
  // Nothing was.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sixteen hexadecimal digits, as files and errors have it.
std::string checksum_text(uint64_t);

}  // namespace dtensor
