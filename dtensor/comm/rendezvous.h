// How processes that share nothing but a file system find each other: at a path
// that all of them were given (--rendezvous PATH).
//
// While they meet, there are PATH and, of each rank that has come, PATH.RANK;
// when all have met, none of them. What an earlier run that failed has left
// there does no harm: each rank brings a number that nobody else has, and takes
// what rank 0 wrote for that number alone. Two runs at a time need two paths.
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

  // Rank 0's bytes, on every rank; rank 0 returns when all have them. Called by
  // all ranks equally often. Throws the Error that says who has not come in
  // time.
  std::string share(std::string_view bytes);

 private:
  class Exchange;

  const std::string path_;
  const int64_t rank_, world_;
  const std::chrono::milliseconds patience_;
  int64_t calls_ = 0;
};

}  // namespace dtensor
