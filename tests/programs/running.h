// SPDX-License-Identifier: Apache-2.0
// Runs the programs of programs/ and examples/ as a user does.
#pragma once
#include <string>

namespace dtensor::testing {

struct Ran {
  int code;  // exit status; 128 + n for signal n
  std::string out, err;
};

// `programs/NAME ARGS` (`examples/NAME ARGS` for 01_mesh and so on) through the
// shell, at most a minute. `environment` goes in front: "A=b".
Ran run_program(const std::string& name, const std::string& args,
                const std::string& environment = "");

// The same, sent a signal after so many seconds unless it has ended by then
// (with SIGKILL the code is 137 then); it is gone on return.
Ran run_and_kill(const std::string& name, const std::string& args,
                 double seconds, int signal = 9);

// The same, sent SIGUSR1 after so many seconds; it runs to its end. The shell
// command `then` runs half a second after the signal.
Ran run_and_ask(const std::string& name, const std::string& args,
                double seconds, const std::string& then = "true",
                const std::string& environment = "");

// A file of this test with that content; returns its path.
std::string write_file(const std::string& name, const std::string& content);
std::string read_file(const std::string& path);
// A path for a file of this test.
std::string temporary(const std::string& name);

}  // namespace dtensor::testing
