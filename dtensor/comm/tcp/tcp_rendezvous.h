// SPDX-License-Identifier: Apache-2.0
// How the processes of a job find each other over TCP. All other processes
// connect to the first one, which sends each of them the addresses of all; then
// every two processes connect to each other.
//
// The first process listens only at the address that it was given, and each
// other process only at the address from which it reached the first one. When
// all are connected, no process listens any more. A process that connects sends
// one header of fixed size: a magic number, the protocol version, the job's
// token, a hash of its facts, its number and the number of processes, and a
// checksum of all that, as in each message that follows. Connections that send
// anything else, or nothing for a while, are closed; others are served
// meanwhile. Nothing is encrypted: the token keeps jobs apart, but does not
// protect against anyone who can read the network.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/comm/rendezvous.h"
#include "dtensor/comm/tcp/socket.h"

namespace dtensor {

struct TcpPlace {
  int process = 0, processes = 1;
  // The address at which the first process listens.
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  // If set, the name of a file through which the first process publishes an
  // address with a free port, instead of `port` (rendezvous.h).
  std::string path = {};
  std::string token = {};  // the same for all processes of the job
  // The hash of the facts with which this process was started. A process with
  // another hash may belong to another job with the same token, so the first
  // process waits up to `doubt` for one with the right hash, which then takes
  // its place.
  uint64_t facts = 0;
  std::chrono::milliseconds doubt{0};
  std::chrono::milliseconds patience = std::chrono::minutes(2);
};

// Connects all processes. Returns the connections by process; the entry of this
// process is empty. Called by all processes. If they cannot meet, throws NotMet
// with the reason, such as ranks that are missing or duplicated. Throws another
// Error if `process` or `processes` is out of range.
std::vector<Socket> tcp_rendezvous(const TcpPlace&);

}  // namespace dtensor
