// SPDX-License-Identifier: Apache-2.0
// Runs the programs of programs/ and examples/ as a user would.
#pragma once
#include <string>

namespace dtensor::testing {

struct Ran {
  int code;  // exit status; 128 + n for signal n
  std::string out, err;
};

// Runs `programs/NAME ARGS` (`examples/NAME ARGS` for 01_mesh and the like, and
// for tutorials/NAME) with the shell, for at most a minute. `environment` is
// put before it: "A=b".
Ran run_program(const std::string& name, const std::string& args,
                const std::string& environment = "");

// Runs a program as run_program() does, and sends it a signal after so many
// seconds unless it has ended. Returns when the program has ended; its code is
// 137 if SIGKILL ended it.
Ran run_and_kill(const std::string& name, const std::string& args,
                 double seconds, int signal = 9);

// Runs a program as run_program() does, until it ends by itself. Sends it
// SIGUSR1 after so many seconds, and runs the shell command `then` half a
// second later.
Ran run_and_ask(const std::string& name, const std::string& args,
                double seconds, const std::string& then = "true",
                const std::string& environment = "");

// Writes a temporary file of this test; returns its path.
std::string write_file(const std::string& name, const std::string& content);
std::string read_file(const std::string& path);
// The path of a temporary file of this test.
std::string temporary(const std::string& name);

}  // namespace dtensor::testing
