#include "dtensor/comm/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

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

struct Raw {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Raw raw(const SocketAddress& a) {
  Raw r;
  if (a.family == 4) {
    auto& in = reinterpret_cast<sockaddr_in&>(r.storage);
    in.sin_family = AF_INET;
    in.sin_port = htons(a.port);
    std::memcpy(&in.sin_addr, a.bytes, 4);
    r.size = sizeof(in);
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(r.storage);
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(a.port);
    std::memcpy(&in.sin6_addr, a.bytes, 16);
    r.size = sizeof(in);
  }
  return r;
}

SocketAddress cooked(const sockaddr* from) {
  SocketAddress a;
  if (from->sa_family == AF_INET) {
    const auto& in = *reinterpret_cast<const sockaddr_in*>(from);
    a.family = 4;
    a.port = ntohs(in.sin_port);
    std::memcpy(a.bytes, &in.sin_addr, 4);
  } else if (from->sa_family == AF_INET6) {
    const auto& in = *reinterpret_cast<const sockaddr_in6*>(from);
    a.family = 6;
    a.port = ntohs(in.sin6_port);
    std::memcpy(a.bytes, &in.sin6_addr, 16);
  }
  return a;
}

Socket made(const SocketAddress& a) {
  return Socket(socket(a.family == 4 ? AF_INET : AF_INET6,
                       SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Messages are short and must not wait to be combined with later ones.
void prepare(const Socket& s) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(s.fd(), level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdle);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kBetween);
  set(IPPROTO_TCP, TCP_KEEPCNT, kTimes);
}

}  // namespace

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool Socket::send(const void* data, int64_t bytes,
                  Clock::time_point end) const {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(fd_, at, static_cast<size_t>(bytes),
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= n;
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_for(fd_, POLLOUT, end)) return false;
    } else {
      return false;
    }
  }
  return true;
}

bool Socket::receive(void* data, int64_t bytes, Clock::time_point end) const {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd_, at, static_cast<size_t>(bytes), MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= n;
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!wait_for(fd_, POLLIN, end)) return false;
    } else {
      if (n == 0) errno = ECONNRESET;
      return false;
    }
  }
  return true;
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

std::string SocketAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(family == 4 ? AF_INET : AF_INET6, bytes, text, sizeof(text));
  return family == 4 ? fmt::format("{}:{}", text, port)
                     : fmt::format("[{}]:{}", text, port);
}

std::vector<SocketAddress> addresses_of(const std::string& host,
                                        uint16_t port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  DT_CHECK(error == 0, "tcp",
           "cannot find the machine {}: {}; name another one in MASTER_ADDR",
           host, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(list,
                                                               freeaddrinfo);
  std::vector<SocketAddress> found;
  for (const addrinfo* a = list; a; a = a->ai_next) {
    found.push_back(cooked(a->ai_addr));
    found.back().port = port;
    if (found.back().family == 0) found.pop_back();
  }
  DT_CHECK(!found.empty(), "tcp",
           "{} has no IPv4 or IPv6 address; name another machine in "
           "MASTER_ADDR",
           host);
  return found;
}

SocketAddress local_address(const Socket& s) {
  Raw r;
  if (getsockname(s.fd(), r.get(), &r.size) != 0) return {};
  return cooked(r.get());
}

SocketAddress peer_address(const Socket& s) {
  Raw r;
  if (getpeername(s.fd(), r.get(), &r.size) != 0) return {};
  return cooked(r.get());
}

Socket listen_at(const SocketAddress& a) {
  Socket s = made(a);
  if (!s) return {};
  const int yes = 1;
  // A port where another socket listens is refused all the same.
  setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  Raw r = raw(a);
  if (bind(s.fd(), r.get(), r.size) != 0 || listen(s.fd(), SOMAXCONN) != 0) {
    const int why = errno;
    s.close();
    errno = why;
    return {};
  }
  return s;
}

Socket accept_from(const Socket& listener) {
  Socket s(
      accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (s) prepare(s);
  return s;
}

Socket connect_to(const SocketAddress& a, Clock::time_point end) {
  Socket s = made(a);
  if (!s) return {};
  Raw r = raw(a);
  int why = 0;
  if (connect(s.fd(), r.get(), r.size) != 0) why = errno;
  if (why == EINPROGRESS) {
    socklen_t size = sizeof(why);
    if (!wait_for(s.fd(), POLLOUT, end))
      why = ETIMEDOUT;
    else if (getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &why, &size) != 0)
      why = errno;
  }
  if (why != 0) {
    s.close();
    errno = why;
    return {};
  }
  prepare(s);
  return s;
}

}  // namespace dtensor
