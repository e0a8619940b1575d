// TCP sockets, as far as processes need them that find each other. No call
// waits unless it takes the time until when.
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

  // Exactly so many bytes. False when the other end has closed it, it has
  // broken, or the time is over. Throws when this process was told to stop.
  bool send(const void* data, int64_t bytes, Clock::time_point end) const;
  bool receive(void* data, int64_t bytes, Clock::time_point end) const;
  // Is there something to be read, or is its end?
  bool readable() const;
  // Has the other end closed it, with nothing left to be read?
  bool ended() const;

 private:
  int fd_ = -1;
};

// An address and a port, as they travel: all bytes are defined.
struct SocketAddress {
  uint16_t family = 0;     // 4 or 6
  uint16_t port = 0;       // as a number
  uint8_t bytes[16] = {};  // of an IPv4 address the first 4

  std::string to_string() const;  // "127.0.0.1:29500", "[::1]:29500"
};

// Those of a name, in the system's order. Throws the Error that says why there
// are none.
std::vector<SocketAddress> addresses_of(const std::string& host, uint16_t port);

// Of a connection: this end's, and the other's. Family 0: it is broken.
SocketAddress local_address(const Socket&);
SocketAddress peer_address(const Socket&);

// Listens at that address alone; port 0 is one that is free. When it cannot,
// errno says why.
Socket listen_at(const SocketAddress&);
// The next one that has connected, if one has.
Socket accept_from(const Socket& listener);
// When it cannot, errno says why.
Socket connect_to(const SocketAddress&, Socket::Clock::time_point end);

}  // namespace dtensor
