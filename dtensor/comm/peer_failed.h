// SPDX-License-Identifier: Apache-2.0
// The Errors of a rank that waited for another rank that failed or has left.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/placement/error.h"

namespace dtensor {

// Thrown in ranks that wait in a collective, or call one, after another rank
// has failed. It is not a failure of their own: run() reports that of the
// failed rank.
class PeerFailed : public Error {
 public:
  // The text is "[where] rank 3 failed: cause".
  PeerFailed(std::string_view where, int64_t rank, const std::string& cause)
      : PeerFailed(where, rank, "failed: ", cause) {}
  // The number, in the run, of the rank that failed or has left.
  int64_t rank() const { return rank_; }
  // Usually the failed rank's own error, and the last collective that it
  // called; else why its process is lost, or the text of a PeerLeft.
  const std::string& cause() const { return cause_; }

 protected:
  PeerFailed(std::string_view where, int64_t rank, std::string_view how,
             const std::string& cause)
      : Error(fmt::format("[{}] rank {} {}{}", where, rank, how, cause)),
        rank_(rank),
        cause_(cause) {}

 private:
  int64_t rank_;
  std::string cause_;
};

// Thrown in ranks that wait for a rank that finished without an error. One of
// the two made a call that the other did not make, so run() counts this error
// as a failure of the rank that waits.
class PeerLeft final : public PeerFailed {
 public:
  // The text is "[where] rank 3 has left the program while rank 0 waits in
  // `call`; ...".
  PeerLeft(std::string_view where, int64_t rank, int64_t waiting,
           std::string_view call)
      : PeerFailed(where, rank, "",
                   fmt::format("has left the program while rank {} waits in "
                               "{}; let every rank run the same operators",
                               waiting, call)) {}
};

// Why the ranks of a run cannot go on: one rank failed, or (`of_all`) the run
// as a whole.
struct RankFailure {
  int64_t rank = -1;
  std::string why = {};
  bool of_all = false;  // all ranks throw exactly `why`

  // Throws the Error of a rank that waits in vain.
  [[noreturn]] void raise(std::string_view where) const {
    if (of_all) throw Error(why);
    throw PeerFailed(where, rank, why);
  }
};

}  // namespace dtensor
