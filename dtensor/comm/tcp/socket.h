// TCP sockets with the operations that a rendezvous needs. Only calls that take
// an end time wait.
#pragma once
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
  void close();

  // Sends or receives exactly `bytes` bytes. False if the other end has closed
  // the connection, it is broken, or `end` has passed. Throws if this process
  // was told to stop.
  bool send(const void* data, int64_t bytes, Clock::time_point end) const;
  bool receive(void* data, int64_t bytes, Clock::time_point end) const;
  // Whether there are bytes to read, or the end of the connection.
  bool readable() const;
  // Whether the other end has closed the connection and nothing is left to
  // read.
  bool ended() const;

 private:
  int fd_ = -1;
};

// An address and a port, as sent in messages: every byte is defined.
struct SocketAddress {
  uint16_t family = 0;     // 4 or 6
  uint16_t port = 0;       // in host byte order
  uint8_t bytes[16] = {};  // IPv4: the first 4

  std::string to_string() const;  // "127.0.0.1:29500", "[::1]:29500"
};

// The addresses of a host, in the system's order. Throws the Error that says
// why there are none.
std::vector<SocketAddress> addresses_of(const std::string& host, uint16_t port);

// The addresses of this end and of the other end of a connection. Family 0: the
// connection is broken.
SocketAddress local_address(const Socket&);
SocketAddress peer_address(const Socket&);

// Listens at that address only; port 0 means any free port. On failure the
// socket is empty, and errno says why.
Socket listen_at(const SocketAddress&);
// The next incoming connection; empty if there is none.
Socket accept_from(const Socket& listener);
// On failure the socket is empty, and errno says why.
Socket connect_to(const SocketAddress&, Socket::Clock::time_point end);

}  // namespace dtensor
