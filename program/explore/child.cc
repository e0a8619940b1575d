// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/explore/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "dtensor/placement/error.h"

namespace dtensor::explore {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostErr = 1 << 16;

void check(bool good, const char* call, int error = errno) {
  DT_CHECK(good, "explore", "{}() failed: {}; try again", call,
           std::strerror(error));
}

class File {
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  ~File() { close(); }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&&) = delete;
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

struct Pipe {
  File read, write;
};
Pipe make_pipe() {
  int ends[2];
  check(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {File(ends[0]), File(ends[1])};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& t : texts) all.push_back(t.data());
  all.push_back(nullptr);
  return all;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A sanitizer needs terabytes of addresses, and ThreadSanitizer writes a file.
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Sets the limits of this process and of the program that it will execute.
void limit(const ChildLimits& limits) {
  const auto set = [](__rlimit_resource resource, double most) {
    const rlimit l{static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
    setrlimit(resource, &l);
  };
  if (!kSanitized) {
    set(RLIMIT_AS, static_cast<double>(limits.memory));
    set(RLIMIT_FSIZE, 0);
  }
  // Ends the child even if its parent no longer exists.
  set(RLIMIT_CPU, std::ceil(limits.seconds) + 1);
  set(RLIMIT_CORE, 0);
}

// Uses fork(), since posix_spawn() could limit the child only after its start.
pid_t spawn(std::vector<std::string> arguments,
            const std::vector<std::string>& variables,
            const ChildLimits& limits, int out, int err) {
  std::vector<std::string> environment = variables;
  for (char** v = environ; *v; ++v) environment.emplace_back(*v);
  const std::vector<char*> argv = pointers(arguments),
                           envp = pointers(environment);
  sigset_t none;
  sigemptyset(&none);
  const pid_t pid = fork();
  check(pid >= 0, "fork");
  if (pid > 0) {
    setpgid(pid, pid);  // as the child does, whichever is first
    return pid;
  }
  // In the child, make only calls that are safe in a signal handler, because
  // the parent may have other threads.
  setpgid(0, 0);
  signal(SIGPIPE, SIG_DFL);  // httplib ignores it
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(out, 1);
  dup2(err, 2);
  close_range(3, ~0U, 0);  // httplib's connections would stay open
  limit(limits);
  execve("/proc/self/exe", argv.data(), envp.data());
  constexpr std::string_view kText = "the program cannot be started again\n";
  if (write(2, kText.data(), kText.size()) < 0) _exit(126);
  _exit(127);
}

// Appends up to 64 KiB from the pipe. Returns false at its end, or on an error.
bool read_some(int fd, std::string& text) {
  std::array<char, 1 << 16> chunk;
  const ssize_t n = read(fd, chunk.data(), chunk.size());
  if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
  text.append(chunk.data(), static_cast<size_t>(n));
  return true;
}

}  // namespace

Stop::Stop() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(fd_ >= 0, "eventfd");
}
Stop::~Stop() { close(fd_); }
void Stop::request() { eventfd_write(fd_, 1); }
bool Stop::requested() const {
  pollfd p{fd_, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

bool has_left(int socket) {
  pollfd p{socket, POLLRDHUP, 0};
  return poll(&p, 1, 0) == 1;
}

ChildEnd run_child(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& variables,
                   const ChildLimits& limits, const Stop& stop, int client) {
  Pipe out = make_pipe(), err = make_pipe();
  const auto deadline =
      Clock::now() + std::chrono::duration<double>(limits.seconds);
  const pid_t pid =
      spawn(arguments, variables, limits, out.write.fd(), err.write.fd());
  out.write.close();
  err.write.close();
  // (C++ cannot use the header of glibc 2.36 that declares pidfd_open().)
  const File process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const int error = errno;

  ChildEnd end;
  std::array<pollfd, 5> all = {{{process.fd(), POLLIN, 0},
                                {stop.fd(), POLLIN, 0},
                                {client, POLLRDHUP, 0},
                                {out.read.fd(), POLLIN, 0},
                                {err.read.fd(), POLLIN, 0}}};
  const auto read_all = [&] {
    if (all[3].fd >= 0 && !read_some(all[3].fd, end.out)) all[3].fd = -1;
    if (all[4].fd >= 0 && !read_some(all[4].fd, end.err)) all[4].fd = -1;
    if (end.err.size() > 2 * kMostErr)
      end.err.erase(0, end.err.size() - kMostErr);
  };
  bool runs = process.fd() >= 0;
  while (runs) {
    const double left =
        std::chrono::duration<double>(deadline - Clock::now()).count();
    poll(all.data(), all.size(),
         static_cast<int>(std::clamp(left * 1e3 + 1, 0.0, 1e9)));
    runs = false;
    if (all[1].revents || all[2].revents) {
      end.how = ChildEnd::How::kStopped;
    } else if (!all[0].revents && left <= 0) {
      end.how = ChildEnd::How::kSeconds;
    } else {
      runs = !all[0].revents;
      read_all();
      if (static_cast<int64_t>(end.out.size()) > limits.output) {
        end.how = ChildEnd::How::kOutput;
        runs = false;
      }
    }
  }
  kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  DT_CHECK(process.fd() >= 0, "explore", "pidfd_open() failed: {}; {}",
           std::strerror(error),
           error == ENOSYS ? "use Linux 5.3 or newer" : "try again");
  if (end.how != ChildEnd::How::kExited) return end;
  if (WIFSIGNALED(status)) end.how = ChildEnd::How::kSignal;
  end.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

}  // namespace dtensor::explore
