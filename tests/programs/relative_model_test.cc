// SPDX-License-Identifier: Apache-2.0
// Programs that `bazel run` starts in another folder read a checkpoint whose
// path is relative to the folder of the person who started them.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

namespace fs = std::filesystem;

TEST(RelativeModel, IsInTheCallersFolder) {
  const std::string folder = temporary("caller");
  fs::create_directories(folder);
  fs::copy(fs::absolute("tests/nn/data/llama"), folder + "/model",
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  const std::string at = "BUILD_WORKING_DIRECTORY=" + folder,
                    ids = "--ids model/expected.safetensors ";
  const Ran generated =
      run_program("generate", "--model model --tokens 2 " + ids, at);
  EXPECT_EQ(generated.code, 0) << generated.err;
  const Ran scored = run_program("score", "--model model --out out " + ids, at);
  EXPECT_EQ(scored.code, 0) << scored.err;
  EXPECT_TRUE(fs::exists(folder + "/out"));
  // This checkpoint has no tokenizer.
  for (const char* program : {"chat", "serve"}) {
    const Ran r = run_program(program, "--model model", at);
    EXPECT_EQ(r.code, 1);
    EXPECT_NE(r.err.find(folder + "/model/tokenizer.json"), r.err.npos)
        << r.err;
  }
}

}  // namespace
}  // namespace dtensor::testing
