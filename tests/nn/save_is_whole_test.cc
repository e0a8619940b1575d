// SPDX-License-Identifier: Apache-2.0
// Guards a fix: a save that was killed between its two renames left the config
// of one model beside the weights of another. Here a process saves over an
// older model and is ended before its 1st, 2nd, ... call that changes the disk.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "dtensor/nn/models.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/placement/error.h"
#include "tests/nn/on_mesh.h"

namespace {

std::atomic<int> calls_left{-1};  // until the process ends; negative: never

// If not null, gets the calls of a save on one rank: "unlink config.json.tmp".
std::vector<std::string>* calls_made = nullptr;

void on_call(const char* call, const std::filesystem::path& path) {
  if (calls_left.load() >= 0 && calls_left.fetch_sub(1) == 0) _exit(9);
  if (calls_made)
    calls_made->push_back(std::string(call) + " " + path.filename().string());
}

}  // namespace

// Replace functions of the C library.
extern "C" int rename(const char* from, const char* to) noexcept {
  on_call("rename to", to);
  return static_cast<int>(syscall(SYS_rename, from, to));
}
extern "C" int unlink(const char* path) noexcept {
  on_call("unlink", path);
  return static_cast<int>(syscall(SYS_unlink, path));
}
extern "C" int fsync(int file) {
  std::error_code ignored;
  on_call("sync", std::filesystem::read_symlink(
                      "/proc/self/fd/" + std::to_string(file), ignored));
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace dtensor::nn {
namespace {

namespace fs = std::filesystem;

// The seed of the weights tells to which config they belong.
struct Model {
  double eps;
  uint64_t seed;
};

ModelConfig config_of(const Model& m) {
  return {.name = "gpt",
          .layers = 1,
          .hidden = 4,
          .heads = 2,
          .seq = 3,
          .vocab = 5,
          .norm_eps = m.eps};
}

void save(const Model& model, const std::string& dir,
          const char* mesh = "tp=2") {
  on_mesh<int>(mesh, [&](const Mesh& m) {
    save_pretrained(*make_model(config_of(model), m, model.seed), dir);
    return 0;
  });
}

// The seed of the weights if the folder has a whole model with its own config;
// 0 if it has no model.
uint64_t saved(const std::string& dir, const std::vector<Model>& known) {
  return on_mesh<uint64_t>("tp=1", [&](const Mesh& m) -> uint64_t {
    std::unique_ptr<LanguageModel> model;
    try {
      model = from_pretrained(dir, m);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("cannot be opened"),
                std::string::npos)
          << e.what();
      return 0;
    }
    for (const Model& k : known) {
      const auto same = make_model(config_of(k), m, k.seed);
      bool all = model->config().norm_eps == k.eps;
      for (const NamedParameter& p : same->named_parameters())
        all &= values(p.tensor) == values(model->parameter(p.name));
      if (all) return k.seed;
    }
    ADD_FAILURE() << "a mixture, with eps " << model->config().norm_eps;
    return 0;
  });
}

TEST(SaveIsWhole, WhereverItEnds) {
  const std::string dir =
      (fs::path(::testing::TempDir()) / ("whole_" + std::to_string(::getpid())))
          .string();
  const Model before{1e-5, 1};
  for (const Model& after : {Model{1e-5, 2}, Model{1e-3, 2}}) {
    int kept = 0, gone = 0;
    bool done = false;
    for (int calls = 0; !done; ++calls) {
      ASSERT_LT(calls, 100);
      fs::remove_all(dir);
      save(before, dir);
      const pid_t child = fork();
      if (child == 0) {
        calls_left = calls;
        save(after, dir);
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      done = WEXITSTATUS(status) == 0;
      const uint64_t seed = saved(dir, {before, after});
      EXPECT_TRUE(!done || seed == after.seed);
      kept += seed == before.seed;
      gone += seed == 0;
      // The next save removes what is left over.
      save(after, dir);
      EXPECT_EQ(saved(dir, {before, after}), after.seed);
      for (const auto& entry : fs::directory_iterator(dir))
        EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    }
    EXPECT_GT(kept, 0);
    // If the config changes, the old weights must go first.
    EXPECT_EQ(gone > 0, after.eps != before.eps);
  }
  fs::remove_all(dir);
}

// After a power failure, what was synced is on the disk, and any part of what
// was not. So a file is synced before it gets its name, and the folder after
// each change of its names that later changes rely on.
TEST(SaveIsWhole, EvenOnTheDisk) {
  const std::string name = "synced_" + std::to_string(::getpid()),
                    dir = (fs::path(::testing::TempDir()) / name).string();
  fs::remove_all(dir);
  save({1e-5, 1}, dir);
  std::vector<std::string> calls;
  calls_made = &calls;
  save({1e-3, 2}, dir, "tp=1");
  calls_made = nullptr;
  EXPECT_EQ(calls, (std::vector<std::string>{
                       "unlink model.safetensors.tmp",
                       "sync model.safetensors.tmp", "unlink config.json.tmp",
                       "sync config.json.tmp", "unlink model.safetensors",
                       "sync " + name, "rename to config.json", "sync " + name,
                       "rename to model.safetensors", "sync " + name}));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace dtensor::nn
