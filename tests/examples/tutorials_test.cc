// SPDX-License-Identifier: Apache-2.0
// The ported tutorials, which check their own results, on meshes of several
// sizes. Each mesh that is listed last has sizes that nothing divides.
#include <gtest/gtest.h>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

struct Tutorial {
  std::string name;
  std::vector<std::string> meshes;
  std::string prints;
};

std::ostream& operator<<(std::ostream& out, const Tutorial& t) {
  return out << t.name;
}

const std::vector<Tutorial> kTutorials = {
    {"automatic_parallelism",
     {"dp=2,tp=2", "dp=3,tp=5"},
     "data and tensor parallel: loss "},
    {"collective_matmul",
     {"i=1", "i=4", "i=7"},
     "scatter, around a ring: f32[40, 8]"},
    {"context_parallel", {"cp=1", "cp=4", "cp=5"}, "all-to-all: f32[8, 8, 64"},
    {"data_parallel", {"dp=1", "dp=2", "dp=7"}, "the loss after loading: "},
    {"fully_sharded", {"dp=1", "dp=2", "dp=3"}, "step 9: "},
    {"hybrid_sharding",
     {"replicate=2,shard=2", "replicate=2,shard=7"},
     "rank 3: shard="},
    {"manual_parallelism",
     {"batch=1,feats=1", "batch=2,feats=2", "batch=7,feats=3"},
     "both: loss "},
    {"pipeline_stages", {"pp=1", "pp=2", "pp=3"}, "micro-batch 3: "},
    {"resharding", {"dp=1", "dp=4", "dp=5"}, "equal on dp=1\n"},
    {"send_receive", {"ranks=1", "ranks=2", "ranks=5"}, "rank 0 received "},
    {"sharded_computation", {"x=2,y=4", "x=3,y=5"}, "a layer of parts: "},
    {"synchronous_sgd", {"dp=1", "dp=2", "dp=3"}, "epoch 9: "},
    {"tensor_parallel", {"tp=1", "tp=2", "tp=3"}, ", as on one rank"},
    {"two_dimensional", {"dp=2,tp=2", "dp=3,tp=3"}, "step 9: "},
};

class Tutorials : public ::testing::TestWithParam<Tutorial> {};

TEST_P(Tutorials, ComputeWhatOneRankComputes) {
  const auto run = [](const std::string& flags) {
    return run_program("tutorials/" + GetParam().name, flags,
                       "TMPDIR=" + temporary(""));
  };
  for (const std::string& mesh : GetParam().meshes) {
    const Ran r = run("--mesh " + mesh);
    EXPECT_EQ(r.code, 0) << mesh << "\n" << r.err;
    EXPECT_NE(r.out.find(GetParam().prints), r.out.npos) << mesh << "\n"
                                                         << r.out;
  }
  for (const char* flag : {"--check", "--dry-run"}) {
    const Ran r = run(flag);
    EXPECT_EQ(r.code, 0) << flag << "\n" << r.err;
  }
  EXPECT_NE(run("--help").out.find("--mesh"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, Tutorials, ::testing::ValuesIn(kTutorials),
                         [](const auto& tutorial) {
                           return tutorial.param.name;
                         });

}  // namespace
}  // namespace dtensor::testing
