#include "tests/examples/running.h"

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

Ran run_program(const std::string& name, const std::string& args,
                const std::string& environment) {
  const std::string out = temporary("stdout"), err = temporary("stderr");
  const std::string command = environment + " timeout 60 examples/" + name +
                              " " + args + " >" + out + " 2>" + err +
                              " </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          read_file(out), read_file(err)};
}

}  // namespace dtensor::testing
