// SPDX-License-Identifier: Apache-2.0
// Compares text with a file of expected results in the source tree.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace dtensor::proof {

// Expects that the file at `path` has this text. With UPDATE_GOLDEN in the
// environment, writes the file instead. `path` is relative to the root of the
// source tree, where Bazel starts tests. `target` is the Bazel target of the
// test, for the message.
inline void expect_golden(const std::string& text, const std::string& path,
                          const std::string& target) {
  const char* tree = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (std::getenv("UPDATE_GOLDEN")) {
    std::string file = tree ? std::string(tree) + "/" + path : path;
    std::ofstream out(file);
    out << text;
    ASSERT_TRUE(out.good()) << "cannot write " << file;
    return;
  }
  std::ifstream in(path);
  ASSERT_TRUE(in.good()) << "cannot read " << path;
  std::ostringstream golden;
  golden << in.rdbuf();
  if (golden.str() == text) return;
  // Print the lines that only one of the two texts has.
  auto lines = [](const std::string& t) {
    std::multiset<std::string> all;
    std::istringstream s(t);
    for (std::string line; std::getline(s, line);) all.insert(line);
    return all;
  };
  auto print = [](const std::string& t, std::multiset<std::string> other,
                  char mark) {
    std::string diff;
    std::istringstream s(t);
    for (std::string line; std::getline(s, line);) {
      auto it = other.find(line);
      if (it == other.end())
        diff += mark + (" " + line) + "\n";
      else
        other.erase(it);
    }
    return diff;
  };
  ADD_FAILURE() << path << " says otherwise:\n"
                << print(golden.str(), lines(text), '-')
                << print(text, lines(golden.str()), '+')
                << "If the new text is right: UPDATE_GOLDEN=1 bazel run "
                << target;
}

}  // namespace dtensor::proof
