// SPDX-License-Identifier: Apache-2.0
// A program as a child process: started, signalled, waited for, read.
#pragma once
#include <sys/types.h>

#include <string>

namespace dtensor::testing {

class Child {
 public:
  // Through the shell, in a process group of its own, with both outputs kept
  // apart from those of other children.
  explicit Child(const std::string& command);
  ~Child();  // ends it, when it has not ended
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void send(int signal) const;
  // The exit code, 128 + n for signal n; 137 when it had not ended after so
  // many seconds, and was killed with all that it had started.
  int wait(double seconds);
  // Until standard error holds the text; false when it has ended without, or
  // after 20 s.
  bool says(const std::string& text) const;
  std::string out() const;
  std::string err() const;

 private:
  bool ended() const;

  std::string out_, err_;
  pid_t pid_;
  mutable bool ended_ = false;
  mutable int status_ = 0;
};

}  // namespace dtensor::testing
