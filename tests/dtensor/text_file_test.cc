// SPDX-License-Identifier: Apache-2.0
// Files that are written: a result that cannot be written whole leaves the old
// file, links are not followed, and nobody waits for a pipe.
#include "dtensor/text_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "dtensor/comm/rendezvous.h"
#include "dtensor/dtensor.h"
#include "dtensor/nn/pretrained_config.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class FilesWritten : public ::testing::Test {
 protected:
  FilesWritten() {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  std::string at(const std::string& name) const { return folder_ / name; }
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(at(name)) << text;
    return at(name);
  }
  static std::string text(const std::string& path) {
    std::ifstream f(path);
    return {std::istreambuf_iterator<char>(f), {}};
  }
  int64_t files() const {
    return std::distance(fs::directory_iterator(folder_), {});
  }
  const fs::path folder_ = fs::path(::testing::TempDir()) /
                           ("files_written" + std::to_string(getpid()));
};

// While this object lives, no file grows beyond 4 KiB.
class SmallFiles {
 public:
  SmallFiles() {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{4096, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST_F(FilesWritten, KeepTheOldOneWhenTheNewOneDoesNotFit) {
  const std::string path = put("result.json", "old");
  ASSERT_NE(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  {
    const SmallFiles small;
    EXPECT_NE(error_of([&] {
                write_text_file("--json", path, std::string(100000, 'x'));
              }).find("[--json] cannot write " + path + ": File too large"),
              std::string::npos);
  }
  EXPECT_EQ(text(path), "old");
  EXPECT_EQ(files(), 1);
  write_text_file("--json", path, "new");
  EXPECT_EQ(text(path), "new");
  EXPECT_EQ(files(), 1);
}

// A process that is killed leaves a part, and a later one may get its number.
TEST_F(FilesWritten, ReplaceAPartOfAnEarlierProcess) {
  put("result.json." + std::to_string(getpid()) + ".part", "a part");
  write_text_file("--json", at("result.json"), "new");
  EXPECT_EQ(text(at("result.json")), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(FilesWritten, AreAnErrorWhenTooLargeAndNoSignal) {
  const std::string path = put("result.json", "old");
  const auto program = [&] {
    signal(SIGXFSZ, SIG_DFL);
    const SmallFiles small;
    const std::string flag = "--json=" + path;
    std::string name = "program";
    char* argv[] = {name.data(), const_cast<char*>(flag.c_str()), nullptr};
    Program p({.about = "Writes a long result."});
    std::_Exit(p.main(2, argv, nullptr, [&] {
      p.write_json(nlohmann::ordered_json(std::string(100000, 'x')));
    }));
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(1), "File too large");
  EXPECT_EQ(text(path), "old");
}

TEST_F(FilesWritten, ReplaceALink) {
  const std::string mine = put("mine", "mine");
  fs::create_symlink(mine, at("result.json"));
  write_text_file("--json", at("result.json"), "new");
  EXPECT_EQ(text(at("result.json")), "new");
  EXPECT_EQ(text(mine), "mine");
}

TEST_F(FilesWritten, DoNotFollowALinkAtATemporaryName) {
  const std::string mine = put("mine", "mine"), path = at("x.safetensors");
  fs::create_symlink(mine, path + ".tmp");
  run(2, [&](Runtime& rt) {
    const Mesh& mesh = rt.mesh();
    SafetensorsWriter writer(mesh, path, {{"x", DType::kF32, {4}}});
    writer.write("x", ones({4}, mesh));
    writer.finish();
  });
  EXPECT_EQ(text(mine), "mine");
  EXPECT_EQ(SafetensorsReader(path).tensors().size(), 1u);
}

TEST_F(FilesWritten, APipeInTheirPlaceIsNotWaitedFor) {
  const std::string pipe = at("config.json");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(error_of([&] {
              SafetensorsReader reader(pipe);
            }).find("name a regular file"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { nn::read_config(pipe); }).find("is not a regular file"),
      std::string::npos);
  EXPECT_NE(error_of([&] {
              RendezvousFile file(pipe);
            }).find("is not a regular file"),
            std::string::npos);
}

}  // namespace
}  // namespace dtensor
