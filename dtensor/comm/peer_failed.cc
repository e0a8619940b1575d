#include "dtensor/comm/peer_failed.h"

namespace dtensor {

PeerLeft::PeerLeft(std::string_view where, int64_t rank, int64_t waiting,
                   std::string_view call)
    : PeerFailed(where, rank, "",
                 fmt::format("has left the program while rank {} waits in {}; "
                             "let every rank run the same operators",
                             waiting, call)) {}

void RankFailure::raise(std::string_view where) const {
  if (of_all) throw Error(why);
  throw PeerFailed(where, rank, why);
}

}  // namespace dtensor
