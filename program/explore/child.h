// SPDX-License-Identifier: Apache-2.0
// A program that runs as a child process within bounds.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtensor::explore {

// A wish, from any thread, that something ends. Once requested, it stays so.
class Stop {
 public:
  Stop();
  ~Stop();
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  void request();
  bool requested() const;
  int fd() const { return fd_; }  // readable once it is requested

 private:
  int fd_;
};

// Whether the other end of the socket has closed it, or its own direction.
bool has_left(int socket);

struct ChildLimits {
  double seconds = 20;                 // by the clock
  int64_t memory = int64_t{4} << 30;   // bytes of addresses
  int64_t output = int64_t{64} << 20;  // bytes of standard output
};

struct ChildEnd {
  enum class How : uint8_t {
    kExited,   // with `code`
    kSignal,   // `code` is its number
    kSeconds,  // the rest was ended by this process: a limit was passed
    kOutput,
    kStopped,  // or `stop` was requested, or the client left
  };
  How how = How::kExited;
  int code = 0;
  std::string out;
  std::string err;  // the last part if it is long
};

// Runs /proc/self/exe with the arguments (the first is its name) and with
// `variables` ("NAME=value") added to the environment. It is the first of a
// process group, whose processes are all gone when this function returns. It
// has none of this process's files, and can write none. Ends it when a limit is
// passed, when `stop` is requested, or when the other end of the socket
// `client` (-1: none) leaves. Throws Error if no process can be started.
ChildEnd run_child(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& variables,
                   const ChildLimits&, const Stop& stop, int client);

}  // namespace dtensor::explore
