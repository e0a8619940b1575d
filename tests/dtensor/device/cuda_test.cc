// SPDX-License-Identifier: Apache-2.0
// How a program finds libdtensor_cuda.so, with a fake one.
#include "dtensor/device/cuda.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "dtensor/version.h"

namespace dtensor {
namespace {

namespace fs = std::filesystem;

class CudaTest : public testing::Test {
 protected:
  CudaTest() {
    fs::remove_all(root_);
    put("tests/dtensor/device/cuda_probe", program_);
  }

  void put(const std::string& file, const fs::path& to) {
    fs::create_directories(to.parent_path());
    fs::copy_file(file, to, fs::copy_options::overwrite_existing);
  }
  fs::path put_fake(const fs::path& folder) {
    const fs::path to = folder / "libdtensor_cuda.so";
    put("tests/dtensor/device/libfake_cuda.so", to);
    return to;
  }

  // Returns the output of the probe in this environment.
  std::string run(const std::string& environment, int index = 0,
                  const std::string& more = "") {
    const std::string command = "env -i " + environment + " " +
                                program_.string() + " " +
                                std::to_string(index) + more + " 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
        popen(command.c_str(), "r"), pclose);
    std::string text;
    for (int c; (c = std::fgetc(pipe.get())) != EOF;)
      text += static_cast<char>(c);
    return text;
  }

  const fs::path root_ = fs::canonical(testing::TempDir()) / "cuda_test",
                 program_ = root_ / "bin" / "probe";
};

// Removes the library from one place after the other. What the library throws
// is caught as the program's own Error, and it knows the operator that runs.
TEST_F(CudaTest, WhereItIsLookedFor) {
  const fs::path places[] = {
      put_fake(root_ / "named"),
      put_fake(root_ / "bin"),
      put_fake(root_ / "bin/probe.runfiles/dtensor/ops/cuda_plugin"),
      put_fake(root_ / "lib"),
      put_fake(root_ / "system"),
  };
  std::string environment =
      "LD_LIBRARY_PATH=" + places[4].parent_path().string();
  for (const fs::path& place : places) {
    const std::string named =
        place == places[0] ? " DTENSOR_CUDA_LIBRARY=" + place.string() : "";
    EXPECT_EQ(
        run(environment + named, 1),
        "2 devices\n[fake] cuda:1 of " + place.string() + " for 'matmul'\n");
    fs::remove(place);
  }
  const std::string bin = (root_ / "bin").string();
  EXPECT_EQ(
      run(environment),
      "[cuda] libdtensor_cuda.so is in none of " + bin + ", " + bin +
          "/probe.runfiles/dtensor/ops/cuda_plugin, " +
          (root_ / "lib").string() +
          ", nor where the system looks for libraries, so this program was "
          "built without CUDA or moved without that file; build it with "
          "--define=dtensor_cuda=1 where nvcc is installed (./setup.sh "
          "--cuda), or run with --device cpu\n");
}

TEST_F(CudaTest, WhatCannotBeLoaded) {
  const std::string end =
      "; set LD_LIBRARY_PATH to the folders of the CUDA libraries that it "
      "needs, or DTENSOR_CUDA_LIBRARY to the right file, or run with --device "
      "cpu\n";
  EXPECT_EQ(run("DTENSOR_CUDA_LIBRARY=/none.so"),
            "[cuda] /none.so cannot be loaded: /none.so: cannot open shared "
            "object file: No such file or directory" +
                end);
  const std::string path = (root_ / "bin/libdtensor_cuda.so").string();
  std::ofstream(path) << "no library";
  EXPECT_EQ(run(""), "[cuda] " + path + " cannot be loaded: " + path +
                         ": file too short" + end);
  const fs::path system = root_ / "system";
  fs::create_directories(system);
  fs::rename(path, system / "libdtensor_cuda.so");
  EXPECT_EQ(run("LD_LIBRARY_PATH=" + system.string()),
            "[cuda] libdtensor_cuda.so cannot be loaded: " + system.string() +
                "/libdtensor_cuda.so: file too short" + end);
  EXPECT_EQ(run("DTENSOR_CUDA_LIBRARY=libm.so.6"),
            "[cuda] libm.so.6 is not a plugin of dtensor: it has no "
            "dtensor_cuda_plugin; set DTENSOR_CUDA_LIBRARY to the right "
            "libdtensor_cuda.so, or unset it\n");
}

TEST_F(CudaTest, OfAnotherVersion) {
  const std::string path = put_fake(root_ / "bin").string();
  EXPECT_EQ(
      run("FAKE_CUDA=old"),
      "[cuda] " + path + " has version 0.0.1, but this program has version " +
          std::string(version()) + "; build both from the same sources\n");
}

TEST_F(CudaTest, HowProductsAreComputedIsTheLibrarysAffair) {
  const std::string path = put_fake(root_ / "bin").string();
  EXPECT_EQ(run("", 0),
            "2 devices\n[fake] cuda:0 of " + path + " for 'matmul'\n");
  EXPECT_EQ(run("", 0, " tf32"),
            "2 devices\n[fake] cuda:0 of " + path + " for 'matmul' in TF32\n");
  EXPECT_EQ(run("", 0, " tuned"),
            "2 devices\n[fake] cuda:0 of " + path + " for 'matmul', tuned\n");
  EXPECT_EQ(
      run("", 0, " deterministic"),
      "2 devices\n[fake] cuda:0 of " + path + " for 'matmul', deterministic\n");
  EXPECT_EQ(run("FAKE_CUDA=none", 0, " tf32").find("[cuda] there is no"), 0u);
}

TEST_F(CudaTest, DevicesThatAreNotThere) {
  put_fake(root_ / "bin");
  EXPECT_EQ(run("FAKE_CUDA=none"),
            "[cuda] there is no CUDA device here: cudaErrorNoDevice (no "
            "CUDA-capable device is detected); run with --device cpu\n");
  EXPECT_EQ(run("FAKE_CUDA=one", 3),
            "1 devices\n[cuda] cuda:3 does not exist, because this process "
            "sees 1 GPU; write cuda:0\n");
  EXPECT_EQ(run("", 2),
            "2 devices\n[cuda] cuda:2 does not exist, because this process "
            "sees 2 GPUs; write one of cuda:0 to cuda:1\n");
  EXPECT_EQ(run("", -1),
            "2 devices\n[cuda] cuda:-1 does not exist, because this process "
            "sees 2 GPUs; write one of cuda:0 to cuda:1\n");
}

}  // namespace
}  // namespace dtensor
