// SPDX-License-Identifier: Apache-2.0
// A program that runs as a child process within bounds.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtensor::explore {

// A request, from any thread, to end a child process, or not to start it. It
// cannot be taken back.
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

// Whether the other end has closed the socket, or shut down its sending side.
bool has_left(int socket);

struct ChildLimits {
  double seconds = 20;                 // of wall-clock time
  int64_t memory = int64_t{4} << 30;   // bytes of address space
  int64_t output = int64_t{64} << 20;  // bytes of standard output
};

struct ChildEnd {
  enum class How : uint8_t {
    kExited,   // `code` is the exit code
    kSignal,   // `code` is the signal's number
    kSeconds,  // run_child() ended it, as it passed ChildLimits::seconds
    kOutput,   // run_child() ended it, as it passed ChildLimits::output
    kStopped,  // run_child() ended it: `stop` was requested or the client left
  };
  How how = How::kExited;
  int code = 0;
  std::string out;
  std::string err;  // standard error; only the end of a long one
};

// Runs this program (/proc/self/exe) as a child with the arguments, of which
// the first is its name, and with `variables` ("NAME=value") added to the
// environment. The child leads a process group. Before this function returns,
// it kills all processes of that group. The child inherits no open files except
// its standard output and error, and cannot write files. Its allocations fail
// beyond ChildLimits::memory. (Builds with sanitizers have neither of these two
// limits.) Ends the child when it passes the limit of time or output, when
// `stop` is requested, or when the client at the other end of the socket
// `client` (-1: none) leaves. Throws Error if no process can be started.
ChildEnd run_child(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& variables,
                   const ChildLimits&, const Stop& stop, int client);

}  // namespace dtensor::explore
