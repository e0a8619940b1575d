// SPDX-License-Identifier: Apache-2.0
// Comparing text with a file in the tree that a reviewer reads.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace dtensor::proof {

// `path` is relative to the root of the tree, which is where Bazel starts
// tests. `target` is the test that compares it.
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
  // What only one of the two has, line by line.
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
