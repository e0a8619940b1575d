// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/running.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace dtensor::testing {

std::string temporary(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder ? folder : "/tmp") + "/" + name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string write_file(const std::string& name, const std::string& content) {
  const std::string path = temporary(name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

namespace {

// Numbered programs and tutorials are examples.
std::string path_of(const std::string& name) {
  const bool example =
      (name[0] >= '0' && name[0] <= '9') || name.starts_with("tutorials/");
  return (example ? "examples/" : "programs/") + name;
}

// Runs a command that ends with the program's name and arguments.
Ran ran(const std::string& command, const std::string& behind) {
  const std::string out = temporary("stdout"), err = temporary("stderr");
  const std::string all =
      command + " >" + out + " 2>" + err + " </dev/null" + behind;
  const int status = std::system(all.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          read_file(out), read_file(err)};
}

}  // namespace

Ran run_program(const std::string& name, const std::string& args,
                const std::string& environment) {
  return ran(environment + " timeout 60 " + path_of(name) + " " + args, "");
}

Ran run_and_kill(const std::string& name, const std::string& args,
                 double seconds, int signal) {
  return ran(path_of(name) + " " + args,
             " & program=$!; sleep " + std::to_string(seconds) + "; kill -" +
                 std::to_string(signal) +
                 " $program 2>/dev/null; wait $program");
}

Ran run_and_ask(const std::string& name, const std::string& args,
                double seconds, const std::string& then,
                const std::string& environment) {
  return ran(environment + " " + path_of(name) + " " + args,
             " & program=$!; sleep " + std::to_string(seconds) +
                 "; kill -USR1 $program; sleep 0.5; " + then +
                 "; wait $program");
}

}  // namespace dtensor::testing
