// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using Clock = Socket::Clock;

// How often a waiting call checks whether this process was told to stop.
constexpr auto kLook = 50ms;
// Keep-alive on an idle connection: after kIdle seconds, kTimes probes,
// kBetween seconds apart. If the other machine answers none, the connection is
// broken.
constexpr int kIdle = 10, kBetween = 5, kTimes = 4;

// Waits until the socket is ready for `what`; false if `end` has passed.
bool wait_for(int fd, short what, Clock::time_point end) {
  for (;;) {
    check_interrupted();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::min<Clock::duration>(end - Clock::now(), kLook));
    pollfd p{fd, what, 0};
    const int ready = poll(&p, 1, std::max(0, static_cast<int>(left.count())));
    if (ready > 0) return true;
    if (Clock::now() >= end) {
      errno = ETIMEDOUT;
      return false;
    }
  }
}

// Calls some(at, bytes), which sends or receives some of the bytes and returns
// how many, until all are done.
template <class Some>
bool move_all(int fd, short what, char* at, int64_t bytes,
              Clock::time_point end, const Some& some) {
  while (bytes > 0) {
    const ssize_t n = some(at, static_cast<size_t>(bytes));
    if (n > 0) {
      at += n;
      bytes -= n;
    } else if (n == 0) {
      errno = ECONNRESET;
      return false;
    } else if ((errno != EAGAIN && errno != EINTR) ||
               !wait_for(fd, what, end)) {
      return false;
    }
  }
  return true;
}

socklen_t length_of(const SocketAddress& a) {
  return a.any.sa_family == AF_INET ? sizeof(a.v4) : sizeof(a.v6);
}

Socket made(const SocketAddress& a) {
  return Socket(
      socket(a.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

SocketAddress address_by(decltype(getsockname)& get, const Socket& s) {
  SocketAddress a;
  socklen_t size = sizeof(a);
  get(s.fd(), &a.any, &size);
  return a;
}

// Sets the options of a new connection. Short messages must not wait to be
// combined with later ones.
Socket prepared(Socket s) {
  if (!s) return s;
  const auto set = [&](int level, int option, int value) {
    setsockopt(s.fd(), level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdle);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kBetween);
  set(IPPROTO_TCP, TCP_KEEPCNT, kTimes);
  return s;
}

}  // namespace

void Socket::close() {
  const int before = errno;
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  errno = before;
}

bool Socket::send(const void* data, int64_t bytes,
                  Clock::time_point end) const {
  char* const at = const_cast<char*>(static_cast<const char*>(data));
  return move_all(fd_, POLLOUT, at, bytes, end, [&](char* some, size_t most) {
    return ::send(fd_, some, most, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

bool Socket::receive(void* data, int64_t bytes, Clock::time_point end) const {
  char* const at = static_cast<char*>(data);
  return move_all(fd_, POLLIN, at, bytes, end, [&](char* some, size_t most) {
    return recv(fd_, some, most, MSG_DONTWAIT);
  });
}

bool Socket::readable() const {
  pollfd p{fd_, POLLIN, 0};
  return poll(&p, 1, 0) > 0;
}

bool Socket::ended() const {
  char c;
  const ssize_t n = recv(fd_, &c, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

// The addresses of both families have the port at the same place.
uint16_t SocketAddress::port() const { return ntohs(v4.sin_port); }

std::string SocketAddress::to_string() const {
  const bool short_one = any.sa_family == AF_INET;
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(any.sa_family,
            short_one ? static_cast<const void*>(&v4.sin_addr) : &v6.sin6_addr,
            text, sizeof(text));
  return short_one ? fmt::format("{}:{}", text, port())
                   : fmt::format("[{}]:{}", text, port());
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return std::memcmp(this, &other, sizeof(other)) == 0;
}

std::vector<SocketAddress> addresses_of(const std::string& host,
                                        uint16_t port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;  // IPv4 and IPv6
  hints.ai_socktype = SOCK_STREAM;
  const int error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  DT_CHECK(error == 0, "tcp",
           "cannot find the machine {}: {}; name another one in MASTER_ADDR",
           host, gai_strerror(error));
  std::vector<SocketAddress> found;
  for (const addrinfo* a = list; a; a = a->ai_next)
    std::memcpy(&found.emplace_back().v6, a->ai_addr, a->ai_addrlen);
  freeaddrinfo(list);
  return found;
}

SocketAddress local_address(const Socket& s) {
  return address_by(getsockname, s);
}
SocketAddress peer_address(const Socket& s) {
  return address_by(getpeername, s);
}

Socket listen_at(const SocketAddress& a) {
  Socket s = made(a);
  const int yes = 1;
  // Allows a port with connections that ended a short time ago. A port where
  // another socket listens is still refused.
  if (s) setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (!s || bind(s.fd(), &a.any, length_of(a)) != 0 ||
      listen(s.fd(), SOMAXCONN) != 0)
    return {};
  return s;
}

Socket accept_from(const Socket& listener) {
  return prepared(Socket(
      accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
}

Socket connect_to(const SocketAddress& a, Clock::time_point end) {
  Socket s = made(a);
  if (!s) return {};
  if (connect(s.fd(), &a.any, length_of(a)) != 0) {
    int why = 0;
    socklen_t size = sizeof(why);
    if (errno != EINPROGRESS || !wait_for(s.fd(), POLLOUT, end) ||
        getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &why, &size) != 0)
      return {};
    errno = why;
    if (why != 0) return {};
  }
  return prepared(std::move(s));
}

}  // namespace dtensor
