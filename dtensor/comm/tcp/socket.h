// SPDX-License-Identifier: Apache-2.0
// TCP sockets with the operations that a rendezvous needs. No call waits, apart
// from addresses_of(), which asks the system's resolver, and the calls that
// take the time at which they have to end.
#pragma once
#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dtensor {

class Socket {
 public:
  using Clock = std::chrono::steady_clock;

  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();  // leaves errno as it is

  // Sends or receives exactly `bytes` bytes. False if the other end has closed
  // the connection, it is broken, or `end` passes while the call waits. Throws
  // Error if the call has to wait and this process was told to stop.
  bool send(const void* data, int64_t bytes, Clock::time_point end) const;
  bool receive(void* data, int64_t bytes, Clock::time_point end) const;
  // Whether there are bytes to read, or the connection has ended.
  bool readable() const;
  // Whether the connection is broken, or the other end has closed it and
  // nothing is left to read.
  bool ended() const;

 private:
  int fd_ = -1;
};

// An IPv4 or IPv6 address and a port, in the system's format. Messages contain
// such addresses, so every byte is defined.
union SocketAddress {
  sockaddr_in6 v6 = {};
  sockaddr_in v4;
  sockaddr any;  // any.sa_family is 0 if there is no address

  uint16_t port() const;
  std::string to_string() const;  // "127.0.0.1:29500", "[::1]:29500"
  bool operator==(const SocketAddress&) const;
};

// Returns the addresses of a host, in the system's order. If there are none,
// throws an Error that says why.
std::vector<SocketAddress> addresses_of(const std::string& host, uint16_t port);

// Return the addresses of this end and of the other end of a connection;
// any.sa_family is 0 if the system does not know the address (any more).
SocketAddress local_address(const Socket&);
SocketAddress peer_address(const Socket&);

// Listens at that address only; port 0 means any free port. On failure the
// socket is empty, and errno says why.
Socket listen_at(const SocketAddress&);
// Returns the next incoming connection; empty if there is none.
Socket accept_from(const Socket& listener);
// Connects by `end`. On failure the socket is empty, and errno says why. Throws
// Error if the call has to wait and this process was told to stop.
Socket connect_to(const SocketAddress&, Socket::Clock::time_point end);

}  // namespace dtensor
