// The Error of a rank that waited for one that failed, or that is gone.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/placement/error.h"

namespace dtensor {

// Thrown in ranks that waited for one that failed, or would have. Not a failure
// of their own: run() reports the other.
class PeerFailed : public Error {
 public:
  // "[where] rank 3 failed: cause".
  PeerFailed(std::string_view where, int64_t rank, const std::string& cause);
  // Which one, of the run.
  int64_t rank() const { return rank_; }
  // What its own error says, and what it had called.
  const std::string& cause() const { return cause_; }

 protected:
  PeerFailed(const Error& whole, int64_t rank, const std::string& cause)
      : Error(whole), rank_(rank), cause_(cause) {}

 private:
  int64_t rank_;
  std::string cause_;
};

// Thrown in ranks that wait for one that is through without an error. One of
// the two has called what the other has not, so run() reports this too.
class PeerLeft final : public PeerFailed {
 public:
  // "[where] rank 3 has left the program while rank 0 waits in `call`; ...".
  PeerLeft(std::string_view where, int64_t rank, int64_t waiting,
           std::string_view call);
};

}  // namespace dtensor
