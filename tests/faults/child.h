// SPDX-License-Identifier: Apache-2.0
// Runs a program as a child process, sends it signals, and reads its output.
#pragma once
#include <sys/types.h>

#include <string>

namespace dtensor::testing {

class Child {
 public:
  // Starts a shell command in a process group of its own. Both outputs go to
  // files of this child alone.
  explicit Child(const std::string& command);
  ~Child();  // kills the child if it has not ended
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void send(int signal) const;
  // Waits until the child has ended. Returns its exit code; 128 + n if signal n
  // ended it. After so many seconds, kills it and all that it has started; the
  // code is then 137.
  int wait(double seconds);
  // Waits until standard error contains the text. Returns false if the child
  // ends without it, or after 20 s.
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
