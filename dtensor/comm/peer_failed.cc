#include "dtensor/comm/peer_failed.h"

namespace dtensor {
namespace {

std::string left_while(int64_t waiting, std::string_view call) {
  return fmt::format(
      "has left the program while rank {} waits in {}; let every rank run the "
      "same operators",
      waiting, call);
}

}  // namespace

PeerFailed::PeerFailed(std::string_view where, int64_t rank,
                       const std::string& cause)
    : PeerFailed(
          Error(fmt::format("[{}] rank {} failed: {}", where, rank, cause)),
          rank, cause) {}

PeerLeft::PeerLeft(std::string_view where, int64_t rank, int64_t waiting,
                   std::string_view call)
    : PeerFailed(Error(fmt::format("[{}] rank {} {}", where, rank,
                                   left_while(waiting, call))),
                 rank, left_while(waiting, call)) {}

void RankFailure::raise(std::string_view where) const {
  if (of_all) throw Error(why);
  throw PeerFailed(where, rank, why);
}

}  // namespace dtensor
