// SPDX-License-Identifier: Apache-2.0
// If this is linked into a program, it meddles with one of the program's
// processes, MEDDLE_PROCESS, at its MEDDLE_AT-th send: MEDDLE=stop stops the
// process there, and MEDDLE=flip flips one bit of the data. Sends are those on
// TCP sockets or, with MEDDLE_CALLS=mpi, the calls of MPI that other processes
// wait for. With MEDDLE=count, a process prints the number of its sends when it
// ends: "@sends N".
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if __has_include(<mpi.h>)
#define OMPI_SKIP_MPICXX  // only the C interface is needed
#include <mpi.h>
#endif

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

struct Meddling {
  std::string how = variable("MEDDLE");
  bool mpi = variable("MEDDLE_CALLS") == "mpi";
  bool here =
      how == "count" || variable("MEDDLE_PROCESS") ==
                            variable(mpi ? "OMPI_COMM_WORLD_RANK" : "RANK");
  long at = std::atol(variable("MEDDLE_AT").c_str());
  std::atomic<long> sends = 0;

  ~Meddling() {
    if (how == "count") std::fprintf(stderr, "@sends %ld\n", sends.load());
  }
  // Counts a send, and stops the process if it has to. Returns whether a bit of
  // the send has to be flipped.
  bool comes() {
    if (!here || ++sends != at) return false;
    std::fprintf(stderr, "@ %s at send %ld\n", how.c_str(), at);
    if (how == "stop") raise(SIGSTOP);
    return how == "flip";
  }
};

// While a process lives, it shares a lock on the file MEDDLE_LOCK. Each process
// appends a byte to the file when it starts.
[[maybe_unused]] const bool kLives = [] {
  const int fd = open(variable("MEDDLE_LOCK").c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  return fd >= 0 && flock(fd, LOCK_SH) == 0 && write(fd, "x", 1) == 1;
}();

Meddling& meddling() {
  static Meddling m;
  return m;
}

bool is_tcp(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return !meddling().mpi &&
         getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         (domain == AF_INET || domain == AF_INET6);
}

// Flips one bit, which depends on the number of the send.
void flip(char* data, size_t bytes) {
  const size_t bit =
      static_cast<size_t>(meddling().at) * 2654435761u % (8 * bytes);
  data[bit / 8] ^= static_cast<char>(1 << bit % 8);
}

}  // namespace

extern "C" {

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  static const auto real =
      reinterpret_cast<decltype(&send)>(dlsym(RTLD_NEXT, "send"));
  if (bytes == 0 || !is_tcp(fd) || !meddling().comes())
    return real(fd, data, bytes, flags);
  std::vector<char> other(static_cast<const char*>(data),
                          static_cast<const char*>(data) + bytes);
  flip(other.data(), bytes);
  return real(fd, other.data(), bytes, flags);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto real =
      reinterpret_cast<decltype(&sendmsg)>(dlsym(RTLD_NEXT, "sendmsg"));
  if (!is_tcp(fd) || !meddling().comes()) return real(fd, message, flags);
  std::vector<char> all;
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    const char* data = static_cast<const char*>(message->msg_iov[i].iov_base);
    all.insert(all.end(), data, data + message->msg_iov[i].iov_len);
  }
  if (all.empty()) return real(fd, message, flags);
  flip(all.data(), all.size());
  iovec whole{all.data(), all.size()};
  msghdr other = *message;
  other.msg_iov = &whole;
  other.msg_iovlen = 1;
  return real(fd, &other, flags);
}

#ifdef MPI_VERSION

// Defines an MPI function that may stop the process before the real call.
#define MEDDLE_WITH(name, parameters, ...)  \
  int name parameters {                     \
    if (meddling().mpi) meddling().comes(); \
    return P##name(__VA_ARGS__);            \
  }

MEDDLE_WITH(MPI_Init_thread, (int* c, char*** v, int want, int* got), c, v,
            want, got)
MEDDLE_WITH(MPI_Comm_dup, (MPI_Comm from, MPI_Comm* to), from, to)
MEDDLE_WITH(MPI_Comm_split_type,
            (MPI_Comm from, int type, int key, MPI_Info info, MPI_Comm* to),
            from, type, key, info, to)
MEDDLE_WITH(MPI_Allreduce,
            (const void* in, void* out, int n, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm),
            in, out, n, type, op, comm)
MEDDLE_WITH(MPI_Allgather,
            (const void* in, int n, MPI_Datatype type, void* out, int m,
             MPI_Datatype of, MPI_Comm comm),
            in, n, type, out, m, of, comm)
MEDDLE_WITH(MPI_Win_allocate_shared,
            (MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm,
             void* memory, MPI_Win* window),
            bytes, unit, info, comm, memory, window)
MEDDLE_WITH(MPI_Ibarrier, (MPI_Comm comm, MPI_Request* request), comm, request)
MEDDLE_WITH(MPI_Finalize, (), )

int MPI_Isend(const void* data, int n, MPI_Datatype type, int to, int tag,
              MPI_Comm comm, MPI_Request* request) {
  if (n > 0 && meddling().mpi && meddling().comes()) {
    char* other = new char[static_cast<size_t>(n)];  // never freed
    std::memcpy(other, data, static_cast<size_t>(n));
    flip(other, static_cast<size_t>(n));
    data = other;
  }
  return PMPI_Isend(data, n, type, to, tag, comm, request);
}

#endif

}  // extern "C"
