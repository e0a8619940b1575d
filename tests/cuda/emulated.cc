// SPDX-License-Identifier: Apache-2.0
// Runs a GPU test on the emulated plugin. emulated.bzl says which test. Further
// arguments go to that test.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

int main(int argc, char** argv) {
  std::istringstream environment(EMULATED_ENVIRONMENT);
  for (std::string pair; std::getline(environment, pair, ',');) {
    const size_t end = pair.find('=');
    setenv(pair.substr(0, end).c_str(), pair.substr(end + 1).c_str(), 1);
  }
  const std::string plugin = std::filesystem::absolute(EMULATED_PLUGIN);
  setenv("DTENSOR_CUDA_LIBRARY", plugin.c_str(), 1);
  std::string command = EMULATED_TEST " '--gtest_filter=" EMULATED_FILTER "'";
  for (int i = 1; i < argc; ++i) command += " '" + std::string(argv[i]) + "'";
  command += " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return 1;
  bool skipped = false, passed = false, misused = false;
  std::string line;
  for (int c; (c = std::fgetc(pipe)) != EOF;) {
    std::putchar(c);
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    misused |= line.starts_with("[cuda emulation] NCCL:");
    skipped |= line.starts_with("[  SKIPPED ]");
    passed |= line.starts_with("[  PASSED  ] ") &&
              !line.starts_with("[  PASSED  ] 0");
    line.clear();
  }
  const int status = pclose(pipe);
  if (!WIFEXITED(status)) return 1;
  if (WEXITSTATUS(status) != 0) return WEXITSTATUS(status);
  if (skipped) std::puts("a test was skipped, and a GPU is there");
  if (!passed) std::puts("no test has run");
  if (misused) std::puts("NCCL was called as it must not be");
  return skipped || !passed || misused;
}
