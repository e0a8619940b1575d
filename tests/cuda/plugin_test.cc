// SPDX-License-Identifier: Apache-2.0
// CUDA's plugin as a program finds it. The build needs nvcc, but no GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace dtensor {
namespace {

const char* const kPlugin = "ops/cuda_plugin/libdtensor_cuda.so";

// The output of the command, line by line.
std::vector<std::string> lines_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen((command + " 2>&1").c_str(), "r"), pclose);
  std::vector<std::string> lines(1);
  for (int c; pipe && (c = fgetc(pipe.get())) != EOF;)
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += static_cast<char>(c);
  lines.pop_back();
  return lines;
}

class PluginTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::filesystem::exists(kPlugin)) return;
    std::ifstream status(std::getenv("CUDA_STATUS"));
    std::stringstream reason;
    reason << status.rdbuf();
    ASSERT_EQ(reason.str().substr(0, 7), "no CUDA") << "where is " << kPlugin;
    GTEST_SKIP() << reason.str();
  }
};

TEST_F(PluginTest, ExportsItsEntryAndNothingElse) {
  auto symbols = lines_of(std::string("nm -D --defined-only -P ") + kPlugin);
  // Ignore templates of the C++ library, which NVIDIA's libraries ask for:
  // whoever loads the plugin has its own, which come first. Also ignore static
  // variables in template functions, which the linker lists although nothing
  // outside sees them.
  std::erase_if(symbols, [](const std::string& line) {
    return (line.starts_with("_ZNSt") &&
            line.find(" W ") != std::string::npos) ||
           line.find(" b ") != std::string::npos;
  });
  ASSERT_EQ(symbols.size(), 1u) << symbols[0] << " and others";
  EXPECT_EQ(symbols[0].substr(0, symbols[0].find(' ')), "dtensor_cuda_plugin");
}

TEST_F(PluginTest, FindsAllThatItUses) {
  for (const std::string& line : lines_of(std::string("ldd -r ") + kPlugin))
    EXPECT_TRUE(line.find("not found") == std::string::npos &&
                line.find("undefined symbol") == std::string::npos)
        << line;
}

TEST_F(PluginTest, LoadsWithoutAGpu) {
  void* plugin = dlopen(kPlugin, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(plugin, nullptr) << dlerror();
  EXPECT_NE(dlsym(plugin, "dtensor_cuda_plugin"), nullptr) << dlerror();
}

}  // namespace
}  // namespace dtensor
