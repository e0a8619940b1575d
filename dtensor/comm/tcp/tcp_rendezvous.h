// How the processes of a job find each other over TCP: all but the first
// connect to the first one, which gives each the addresses of all; then every
// two are connected.
//
// The first one listens at the address that it was given alone, the others at
// the one with which they have reached it, and none any more when all are
// connected. Who connects has to say a magic number, this version, the job's
// token, a hash of what it was started with, which process of how many it is:
// few bytes, of which none says how many are to be read. Whoever says something
// else, or nothing for a while, is hung up on; meanwhile others are served.
// Nothing is encrypted: the token keeps jobs apart, and not those out who read
// the network.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/comm/tcp/socket.h"
#include "dtensor/placement/error.h"

namespace dtensor {

struct TcpPlace {
  int process = 0, processes = 1;
  // Where the first process listens.
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  // A file through which it says at which free port, instead of `port`
  // (rendezvous.h).
  std::string path = {};
  std::string token = {};  // the same for all processes of the job
  // The hash of what they were started with. Where another process's differs,
  // it may be of another job that has the same token: the first process waits
  // so long for the right one, which takes its place.
  uint64_t facts = 0;
  std::chrono::milliseconds doubt{0};
  std::chrono::milliseconds patience = std::chrono::minutes(2);
};

// What keeps them apart: the same text in all processes that heard it.
class NotMet : public Error {
 public:
  NotMet(const std::string& text, bool heard) : Error(text), first_(heard) {}
  // The first process says it, too.
  bool first_says_it() const { return first_; }

 private:
  bool first_;
};

// The connections to the others, by process; to itself there is none. Called by
// all processes. Throws NotMet: who is missing, who is there twice, who says
// that there are more or fewer.
std::vector<Socket> tcp_rendezvous(const TcpPlace&);

}  // namespace dtensor
