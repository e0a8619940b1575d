// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/dtensor/device/recording_device.h"
#include "tests/dtensor/io/checkpoint_testing.h"
#include "tests/dtensor/message_passing.h"

namespace dtensor {
namespace {

using namespace testing;

// Uneven sizes, empty parts, several axes on one dimension, trees, scalars.
std::vector<Sample> samples(int axes) {
  const auto layout = [&](const char* one, const char* two) {
    return std::string(axes == 1 ? one : two);
  };
  return {{"matrix", DType::kF32, {5, 6}, layout("S0", "S0,S1")},
          {"twice", DType::kBF16, {7, 3, 2}, layout("S0", "S0,S0")},
          {"half", DType::kF16, {3, 5}, layout("S1", "R,S1")},
          {"columns", DType::kF64, {3, 5}, layout("S1", "R,S1")},
          {"small", DType::kI64, {2}, layout("S0", "S0,R")},
          {"mask", DType::kBool, {4, 9}, layout("R", "R,S0")},
          {"weights", DType::kI8, {7, 5}, layout("S0", "S0,S1")},
          {"copied", DType::kF32, {3, 3}, layout("R", "R,R")},
          {"scalar", DType::kI32, {}, layout("R", "R,R")},
          {"nothing", DType::kF32, {0, 4}, layout("S1", "S0,S1")},
          {"heads",
           DType::kF32,
           {2, 24},
           layout("S1(3 h=4 d=2:h)", "S0,S1(3 h=4 d=2:h)")},
          {"joined",
           DType::kBF16,
           {14, 2},
           layout("S0(q=8|k=4|v=2:q,k,v)", "S0(q=8|k=4|v=2:q,k,v),R")}};
}

std::vector<NamedTensor> tensors_on(const Mesh& mesh, uint64_t seed) {
  std::vector<NamedTensor> all;
  for (const Sample& s : samples(mesh.num_axes()))
    all.push_back({s.name, s.on(mesh, s.layout, seed)});
  return all;
}

void save(const RunOptions& how, const Mesh& mesh, const std::string& dir,
          int64_t step, const CheckpointOptions& options = {}) {
  run(how, [&](Runtime&) {
    save_checkpoint(dir, step, tensors_on(mesh, static_cast<uint64_t>(step)),
                    {}, options);
  });
}

// Reads all tensors on the mesh, twice: in their layouts, and whole.
void expect_saved(const RunOptions& how, const Mesh& mesh,
                  const std::string& path, int64_t step) {
  run(how, [&](Runtime&) {
    const CheckpointReader saved(path);
    EXPECT_EQ(saved.step(), step);
    std::vector<CheckpointRequest> requests;
    for (const Sample& s : samples(mesh.num_axes()))
      requests.push_back({s.name, mesh, s.layout.c_str()});
    const std::vector<DistTensor> read = saved.read(requests);
    size_t i = 0;
    for (const Sample& s : samples(mesh.num_axes())) {
      const uint64_t seed = static_cast<uint64_t>(step);
      expect_is(read[i++], s, s.layout, seed);
      const std::string whole = mesh.num_axes() == 1 ? "R" : "R,R";
      expect_is(saved.read(s.name, mesh, whole.c_str()), s, whole, seed);
    }
  });
}

// A checkpoint that is saved on any mesh loads on any other, bit for bit.
TEST(Checkpoint, EveryMeshReadsWhatEveryMeshWrote) {
  const std::vector<std::string> meshes = {"a=2,b=4", "a=3", "a=1,b=6",
                                           "a=1",     "a=7", "a=2,b=2"};
  for (const std::string& from : meshes) {
    const Folder dir("meshes");
    const Mesh mesh = Mesh::parse(from);
    save(of_ranks(mesh.num_ranks()), mesh, dir.path(), 3);
    for (const std::string& to : meshes) {
      SCOPED_TRACE(from + " to " + to);
      const Mesh other = Mesh::parse(to);
      expect_saved(of_ranks(other.num_ranks()), other, dir / "step-00000003",
                   3);
    }
  }
}

TEST(Checkpoint, OverMessagesAndOnADeviceThatTheHostMayNotTouch) {
  const auto device = RecordingDevice::make();
  for (const bool background : {false, true})
    for (const std::string kind : {"messages", "device"}) {
      const Folder dir("backends");
      const Mesh mesh = Mesh::parse("a=2,b=3");
      RunOptions how = of_ranks(6);
      if (kind == "messages") how.backend = message_passing_backend;
      if (kind == "device")
        how.device = [&](int64_t) -> Device& { return *device; };
      save(how, mesh, dir.path(), 1, {.background = background});
      expect_saved(how, mesh, dir / "step-00000001", 1);
      expect_saved(of_ranks(6), mesh, dir / "step-00000001", 1);
    }
}

// Meshes of some ranks, that overlap or not, in one checkpoint.
TEST(Checkpoint, TensorsOfSeveralMeshes) {
  const Folder dir("several");
  const Sample s{"x", DType::kF32, {5, 4}, "S0"};
  const Mesh first = Mesh::parse("a=2 of ranks 0,1"),
             last = Mesh::parse("a=3 of ranks 3,1,2");
  run(5, [&](Runtime&) {
    save_checkpoint(
        dir.path(), 0,
        {{"first", s.on(first, "S0", 1)}, {"last", s.on(last, "S1", 2)}}, {});
  });
  run(5, [&](Runtime&) {
    const CheckpointReader saved(dir / "step-00000000");
    const auto read = saved.read(
        {{"first", last, "S0"}, {"last", first, "S1"}, {"last", last, "R"}});
    expect_is(read[0], s, "S0", 1);
    expect_is(read[1], s, "S1", 2);
    expect_is(read[2], s, "R", 2);
  });
}

TEST(Checkpoint, ValuesComeBack) {
  const Folder dir("values");
  const CheckpointValues values = {
      {"least", std::numeric_limits<int64_t>::min()},
      {"most", std::numeric_limits<uint64_t>::max()},
      {"zero", int64_t{0}},
      {"none", uint64_t{0}},
      {"text", std::string("é \"x\"\n\0y", 10)},
      {"", std::string()}};
  run(2, [&](Runtime&) { save_checkpoint(dir.path(), 7, {}, values); });
  const CheckpointReader saved(dir / "step-00000007");
  EXPECT_EQ(saved.values(), values);
  EXPECT_TRUE(saved.tensors().empty());
  EXPECT_EQ(names_in(dir / "step-00000007"),
            std::vector<std::string>{"index.json"});
}

TEST(Checkpoint, ListsWhatIsThere) {
  const Folder dir("lists");
  EXPECT_EQ(latest_checkpoint(dir / "no"), std::nullopt);
  EXPECT_EQ(latest_checkpoint(dir.path()), std::nullopt);
  const Mesh mesh = Mesh::parse("a=2");
  for (const int64_t step : {100, 20, 123456789})
    save(of_ranks(2), mesh, dir.path(), step);
  fs::create_directories(dir / "step-00000500.tmp");
  fs::create_directories(dir / "step-00000600");
  fs::create_directories(dir / "step-7");
  fs::create_directories(dir / "step-0000070x.tmp");
  EXPECT_EQ(
      list_checkpoints(dir.path()),
      (std::vector<std::string>{dir / "step-00000020", dir / "step-00000100",
                                dir / "step-123456789"}));
  EXPECT_EQ(latest_checkpoint(dir.path()), dir / "step-123456789");
  EXPECT_EQ(unfinished_checkpoints(dir.path()),
            (std::vector<std::string>{dir / "step-00000600",
                                      dir / "step-00000500.tmp"}));
  // A copy is as good, under any name.
  fs::copy(dir / "step-00000020", dir / "copy", fs::copy_options::recursive);
  fs::remove_all(dir / "step-00000020");
  expect_saved(of_ranks(2), mesh, dir / "copy", 20);
  EXPECT_NE(error_of([&] {
              list_checkpoints(dir / "copy/index.json");
            }).find("cannot be listed: Not a directory"),
            std::string::npos);
}

TEST(Checkpoint, WhatTheReaderSays) {
  const Folder dir("says");
  const Mesh mesh = Mesh::parse("a=2,b=2");
  save(of_ranks(4), mesh, dir.path(), 1);
  const CheckpointReader saved(dir / "step-00000001");
  ASSERT_EQ(saved.tensors().size(), samples(2).size());
  EXPECT_EQ(saved.tensors()[1].name, "twice");
  EXPECT_EQ(saved.tensors()[1].dtype, DType::kBF16);
  EXPECT_EQ(saved.tensors()[1].shape, (Shape{7, 3, 2}));
  EXPECT_TRUE(saved.contains("twice"));
  EXPECT_FALSE(saved.contains("Twice"));
  for (const std::string& e : errors_on(
           of_ranks(4), [&](Runtime&) { saved.read("matrix", mesh, "P,R"); }))
    EXPECT_NE(e.find("is partial; write R"), e.npos) << e;
  for (const std::string& e : errors_on(
           of_ranks(4), [&](Runtime&) { saved.read("Twice", mesh, "R,R"); }))
    EXPECT_NE(e.find("has no tensor Twice"), e.npos) << e;
}

// Every element is written once, and all ranks write about as much.
TEST(Checkpoint, RanksShareTheWork) {
  const Folder dir("share");
  const Mesh mesh = Mesh::parse("dp=4,tp=2");
  const std::vector<Sample> all = {{"copied", DType::kF32, {1000, 333}, "R,R"},
                                   {"wide", DType::kF32, {2, 300'001}, "R,R"},
                                   {"half", DType::kBF16, {2048, 515}, "R,S1"},
                                   {"split", DType::kF32, {4099, 64}, "S0,R"},
                                   {"bias", DType::kF32, {333}, "R,R"},
                                   {"norm", DType::kF32, {1000}, "R,R"},
                                   {"scale", DType::kF32, {}, "R,R"}};
  run(8, [&](Runtime&) {
    std::vector<NamedTensor> tensors;
    for (const Sample& s : all)
      tensors.push_back({s.name, s.on(mesh, s.layout, 1)});
    save_checkpoint(dir.path(), 1, tensors, {});
  });
  int64_t total = 0, least = INT64_MAX, most = 0;
  for (int r = 0; r < 8; ++r) {
    const int64_t bytes = std::ssize(
        data_of(dir / fmt::format("step-00000001/rank-{:05}.safetensors", r)));
    total += bytes;
    least = std::min(least, bytes), most = std::max(most, bytes);
  }
  int64_t expected = 0;
  for (const Sample& s : all) expected += numel(s.shape) * size_of(s.dtype);
  EXPECT_EQ(total, expected);
  EXPECT_LE(most - least, 4096) << least << " to " << most;
  run(8, [&](Runtime&) {
    const CheckpointReader saved(dir / "step-00000001");
    for (const Sample& s : all) {
      const char* layout = s.shape.empty() ? "R,R" : "S0,R";
      expect_is(saved.read(s.name, mesh, layout), s, layout, 1);
    }
  });
}

// The ranks take tensors of one size in the order in which they are given.
TEST(Checkpoint, EqualTensorsKeepTheirOrder) {
  const Folder dir("order");
  const Mesh mesh = Mesh::parse("dp=3");
  run(3, [&](Runtime&) {
    std::vector<NamedTensor> tensors;
    for (int value : {7, 8, 9})
      tensors.push_back(
          {fmt::format("t{}", value),
           DistTensor::from_global(Tensor::full({4}, DType::kF32, value), mesh,
                                   "R")});
    save_checkpoint(dir.path(), 1, tensors, {});
  });
  for (int r = 0; r < 3; ++r) {
    const std::string bytes =
        data_of(dir / fmt::format("step-00000001/rank-{:05}.safetensors", r));
    ASSERT_EQ(bytes.size(), 4 * sizeof(float));
    float first = 0;
    std::memcpy(&first, bytes.data(), sizeof(first));
    EXPECT_EQ(first, 7 + r);
  }
}

// Boxes are cut at 4 MiB, contiguous and not.
TEST(Checkpoint, LargeTensors) {
  const Folder dir("large");
  const Mesh mesh = Mesh::parse("a=2");
  const std::vector<Sample> all = {
      {"rows", DType::kF32, {1500, 1001}, "S0"},
      {"columns", DType::kF32, {1001, 2700}, "S1"},
      {"one_row", DType::kF64, {1, 1'200'003}, "S1"}};
  run(2, [&](Runtime&) {
    std::vector<NamedTensor> tensors;
    for (const Sample& s : all)
      tensors.push_back({s.name, s.on(mesh, s.layout, 1)});
    save_checkpoint(dir.path(), 1, tensors, {});
  });
  run(3, [&](Runtime&) {
    const CheckpointReader saved(dir / "step-00000001");
    const Mesh other = Mesh::parse("a=3");
    for (const Sample& s : all)
      for (const char* layout : {"S0", "S1", "R"})
        expect_is(saved.read(s.name, other, layout), s, layout, 1);
  });
  std::istringstream index(text_of(dir / "step-00000001/index.json"));
  int boxes = 0;
  for (std::string line; std::getline(index, line);) {
    if (!line.starts_with(",{\"box\"")) continue;
    ++boxes;
    EXPECT_LE(std::stoll(line.substr(line.find("\"bytes\":") + 8)), 4 << 20);
  }
  EXPECT_EQ(boxes, 2 * 1 + 2 * 2 + 2 * 2);
}

TEST(Checkpoint, ADryRunDoesNothing) {
  const Folder dir("dry");
  const Mesh mesh = Mesh::parse("a=2,b=2");
  save(of_ranks(4), mesh, dir.path(), 1);
  RunOptions dry = of_ranks(4);
  dry.dry_run = true;
  for (const bool background : {false, true})
    save(dry, mesh, dir / "new", 1, {.background = background});
  EXPECT_FALSE(fs::exists(dir / "new"));
  run(dry, [&](Runtime&) {
    const CheckpointReader saved(dir / "step-00000001");
    EXPECT_EQ(saved.read("twice", mesh, "S0,R").shape(), (Shape{7, 3, 2}));
    finish_saves();
  });
}

TEST(Checkpoint, MisuseIsRefusedAlikeOnEveryRank) {
  const Folder dir("misuse");
  const Mesh mesh = Mesh::parse("a=2");
  const Sample s{"x", DType::kF32, {4}, "S0"};
  const auto expect_error = [&](const std::string& part,
                                const std::function<void(Runtime&)>& fn) {
    const auto errors = errors_on(of_ranks(2), fn);
    for (const std::string& e : errors) {
      EXPECT_EQ(e, errors[0]);
      EXPECT_NE(e.find(part), e.npos) << e;
    }
  };
  const auto x = [&](const char* layout) { return s.on(mesh, layout, 1); };
  expect_error("two tensors are called \"x\"; give each", [&](Runtime&) {
    save_checkpoint(dir.path(), 1, {{"x", x("S0")}, {"x", x("R")}}, {});
  });
  expect_error("which is partial", [&](Runtime&) {
    save_checkpoint(dir.path(), 1, {{"x", x("P")}}, {});
  });
  expect_error("step -1 is negative; write 0 or more",
               [&](Runtime&) { save_checkpoint(dir.path(), -1, {}, {}); });
  expect_error("is not UTF-8", [&](Runtime&) {
    save_checkpoint(dir.path(), 1, {{"x\xff", x("S0")}}, {});
  });
  expect_error("is not UTF-8", [&](Runtime&) {
    save_checkpoint(dir.path(), 1, {}, {{"v", std::string("\xc0\x80")}});
  });
  expect_error(
      "has 300023 bytes, but a line has at most 262143; "
      "shorten",
      [&](Runtime&) {
        save_checkpoint(dir.path(), 1, {}, {{"v", std::string(300'000, 'x')}});
      });
  // All ranks have to pass the same values.
  expect_error("checkpoint", [&](Runtime& rt) {
    save_checkpoint(dir.path(), 1, {},
                    {{"rank", static_cast<int64_t>(rt.rank())}});
  });
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{});
  save(of_ranks(2), mesh, dir.path(), 1);
  expect_error("step-00000001 exists already", [&](Runtime&) {
    save_checkpoint(dir.path(), 1, {{"x", x("S0")}}, {});
  });
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"step-00000001"});
  expect_saved(of_ranks(2), mesh, dir / "step-00000001", 1);
}

// A folder of that name that a killed save has left is replaced.
TEST(Checkpoint, ReplacesItsOwnRubbish) {
  const Folder dir("rubbish");
  fs::create_directories(dir / "step-00000001.tmp/x");
  write_text(dir / "step-00000001.tmp/rank-00000.safetensors", "old");
  const Mesh mesh = Mesh::parse("a=2");
  save(of_ranks(2), mesh, dir.path(), 1);
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"step-00000001"});
  expect_saved(of_ranks(2), mesh, dir / "step-00000001", 1);
}

// In the background: what is saved is the value at the call.
TEST(Checkpoint, InTheBackground) {
  const Folder dir("background");
  const Mesh mesh = Mesh::parse("a=2,b=2");
  run(4, [&](Runtime&) {
    const auto tensors = tensors_on(mesh, 1);
    save_checkpoint(dir.path(), 1, tensors, {}, {.background = true});
    for (const NamedTensor& t : tensors) Tensor(t.tensor.local()).fill(0);
    // The rank's own collectives meanwhile.
    for (int i = 0; i < 20; ++i)
      (void)tensors[0].tensor.redistribute("R,R").full();
    finish_saves();
    EXPECT_EQ(latest_checkpoint(dir.path()), dir / "step-00000001");
    // The next save waits for the previous one, and the end of the run for
    // both.
    const auto later = tensors_on(mesh, 2), last = tensors_on(mesh, 3);
    save_checkpoint(dir.path(), 2, later, {}, {.background = true});
    save_checkpoint(dir.path(), 3, last, {}, {.background = true});
    EXPECT_TRUE(fs::exists(dir / "step-00000002"));
  });
  EXPECT_EQ(names_in(dir.path()),
            (std::vector<std::string>{"step-00000001", "step-00000002",
                                      "step-00000003"}));
  for (const int64_t step : {1, 2, 3})
    expect_saved(of_ranks(4), mesh, dir / fmt::format("step-{:08}", step),
                 step);
}

TEST(Checkpoint, KeepsTheLastOnes) {
  const Folder dir("keeps");
  const Mesh mesh = Mesh::parse("a=2");
  for (const int64_t step : {10, 20, 900})
    save(of_ranks(2), mesh, dir.path(), step);
  fs::create_directories(dir / "step-00000015");  // no checkpoint
  run(2, [&](Runtime&) {
    const auto tensors = tensors_on(mesh, 1);
    save_checkpoint(dir.path(), 30, tensors, {}, {.keep = 2});
    save_checkpoint(dir.path(), 40, tensors, {},
                    {.background = true, .keep = 3});
    finish_saves();
  });
  EXPECT_EQ(names_in(dir.path()),
            (std::vector<std::string>{"step-00000015", "step-00000020",
                                      "step-00000030", "step-00000040",
                                      "step-00000900"}));
  run(2, [&](Runtime&) {
    save_checkpoint(dir.path(), 50, tensors_on(mesh, 1), {}, {.keep = 1});
  });
  EXPECT_EQ(
      list_checkpoints(dir.path()),
      (std::vector<std::string>{dir / "step-00000050", dir / "step-00000900"}));
  EXPECT_NE(error_of([&] {
              run(2, [&](Runtime&) {
                save_checkpoint(dir.path(), 60, {}, {}, {.keep = -1});
              });
            }).find("-1 checkpoints cannot be kept"),
            std::string::npos);
}

// A save in the background ends without a call that waits for it.
TEST(Checkpoint, InTheBackgroundByItself) {
  const Folder dir("by_itself");
  const Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime&) {
    save_checkpoint(dir.path(), 1, tensors_on(mesh, 1), {},
                    {.background = true});
    while (!latest_checkpoint(dir.path())) ::usleep(1000);
  });
  expect_saved(of_ranks(3), mesh, dir / "step-00000001", 1);
}

// Such a layout keeps the heads of keys whole where there are too few to split.
TEST(Checkpoint, SegmentsThatEveryRankHoldsAreSavedOnce) {
  const Folder dir("segments");
  const Mesh mesh = Mesh::parse("a=2,b=2");
  const Sample s{"x", DType::kF32, {7, 3}, "[(4{a,b}|3),{}]"};
  run(4, [&](Runtime&) {
    const DistTensor x = s.on(mesh, s.layout, 1);
    save_checkpoint(dir.path(), 1, {{"x", x}}, {});
    const CheckpointReader saved(dir / "step-00000001");
    expect_is(saved.read("x", mesh, s.layout.c_str()), s, s.layout, 1);
    expect_is(saved.read("x", mesh, "R,S1"), s, "R,S1", 1);
  });
}

// The index is read in pieces of 64 KiB. The line feed after the longest line
// is the first byte of a piece here.
TEST(Checkpoint, TheLongestValueAtTheEndOfAPieceIsRead) {
  const Folder dir("longest");
  const auto line_of = [](const char* name, int64_t size) {
    return fmt::format(",{{\"value\":\"{}\",\"text\":\"{}\"}}", name,
                       std::string(static_cast<size_t>(size), 'x'));
  };
  const int64_t piece = 64 << 10, longest = 4 * piece;
  const int64_t before = std::ssize(std::string(",{\"step\":1}\n")) +
                         std::ssize(line_of("a", 0) + "\n");
  const CheckpointValues values = {
      {"a", std::string(static_cast<size_t>(piece - before), 'x')},
      {"b",
       std::string(static_cast<size_t>(longest - std::ssize(line_of("b", 0))),
                   'y')}};
  run(1, [&](Runtime&) {
    save_checkpoint(dir.path(), 1, {}, values);
    const CheckpointReader saved(dir / "step-00000001");
    EXPECT_EQ(saved.values(), values);
  });
}

// A run that fails while it saves does not hang; a rank that never wrote leaves
// no checkpoint.
TEST(Checkpoint, ARunThatFailsMeanwhile) {
  const Folder dir("fails");
  const Mesh mesh = Mesh::parse("a=2");
  save(of_ranks(2), mesh, dir.path(), 1);
  for (const int64_t failing : {0, 1})
    EXPECT_EQ(error_of([&] {
                run(2, [&](Runtime& rt) {
                  save_checkpoint(dir.path(), 2 + failing, tensors_on(mesh, 2),
                                  {}, {.background = true});
                  if (rt.rank() == failing) fail("test", "on purpose");
                });
              }),
              "[test] on purpose");
  expect_saved(of_ranks(2), mesh, dir / "step-00000001", 1);
  for (const std::string& path : list_checkpoints(dir.path()))
    EXPECT_EQ(error_of([&] { CheckpointReader saved(path); }), "no error");
}

}  // namespace
}  // namespace dtensor
