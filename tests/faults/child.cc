// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/child.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Clock = std::chrono::steady_clock;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

Child::Child(const std::string& command) {
  static int number = 0;
  const std::string name = "child" + std::to_string(++number);
  out_ = temporary(name + ".out");
  err_ = temporary(name + ".err");
  const std::string all =
      "exec >" + out_ + " 2>" + err_ + " </dev/null; exec " + command;
  unlink(err_.c_str());
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    // Otherwise, every exit takes a second under the thread sanitizer.
    const char* sanitizer = std::getenv("TSAN_OPTIONS");
    setenv("TSAN_OPTIONS",
           ((sanitizer ? sanitizer : "") + std::string(" atexit_sleep_ms=0"))
               .c_str(),
           1);
    for (int s : {SIGINT, SIGTERM}) ::signal(s, SIG_DFL);
    execl("/bin/sh", "sh", "-c", all.c_str(), nullptr);
    _exit(126);
  }
  setpgid(pid_, pid_);
}

Child::~Child() {
  if (!ended()) wait(0);
  unlink(out_.c_str());
  unlink(err_.c_str());
}

void Child::send(int signal) const {
  if (!ended()) kill(pid_, signal);
}

bool Child::ended() const {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

int Child::wait(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (!ended() && Clock::now() < end) nap();
  if (!ended()) {
    kill(-pid_, SIGKILL);
    while (!ended()) nap();
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

bool Child::says(const std::string& text) const {
  const auto end = Clock::now() + std::chrono::seconds(20);
  for (; Clock::now() < end; nap()) {
    const bool last = ended();
    if (err().find(text) != std::string::npos) return true;
    if (last) return false;
  }
  return false;
}

std::string Child::out() const { return read_file(out_); }
std::string Child::err() const { return read_file(err_); }

}  // namespace dtensor::testing
