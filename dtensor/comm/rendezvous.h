// How processes that share only a file system find each other: at a path that
// all of them were given (--rendezvous PATH).
//
// During the rendezvous, the file PATH and a file PATH.RANK for each rank that
// has arrived exist; at its end all of them are removed. Files left by an
// earlier run that failed do no harm: each rank writes a random number, and
// accepts only data that rank 0 wrote for that number. Two runs at the same
// time need two paths.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtensor {

class Rendezvous {
 public:
  Rendezvous(std::string path, int64_t rank, int64_t world,
             std::chrono::milliseconds patience = std::chrono::minutes(2));

  // Returns rank 0's bytes on every rank; rank 0 returns when all have them.
  // All ranks call this the same number of times. Throws the Error that names
  // the ranks that have not come in time.
  std::string share(std::string_view bytes);

 private:
  class Exchange;

  const std::string path_;
  const int64_t rank_, world_;
  const std::chrono::milliseconds patience_;
  int64_t calls_ = 0;
};

}  // namespace dtensor
