// SPDX-License-Identifier: Apache-2.0
// Runs a sample of the proof over several processes; see tests/mpirun.h.
#include <gtest/gtest.h>

#include <cstdlib>

#include "dtensor/ops/all_ops.h"
#include "tests/mpirun.h"
#include "tests/ops/proof.h"

namespace dtensor {
namespace {

class Proof
    : public ::testing::TestWithParam<std::pair<std::string, const Op*>> {};

TEST_P(Proof, OverProcesses) {
  const Op& op = *GetParam().second;
  proof::Options options;
  const char* text = std::getenv("DTENSOR_RANKS_PER_PROCESS");
  const int64_t here = std::atoi(text ? text : "1");
  // (Every job's results go to every process, which takes long.)
  options.meshes = {here == 1 ? "2x2" : "3"};
  options.chosen = 1;
  options.second = false;
  options.processes = here;
  options.backend = backend_named("mpi", here);
  const proof::Report report = proof::prove(op, options);
  EXPECT_GT(report.forced + report.chosen, 0);
  EXPECT_EQ(report.failed, 0);
  for (const std::string& f : report.failures) ADD_FAILURE() << f;
}

INSTANTIATE_TEST_SUITE_P(Mpi, Proof, ::testing::ValuesIn(proof::named_ops()),
                         [](const auto& info) { return info.param.first; });

TEST(Mpirun, FourProcesses) { testing::run_mpi_tests(4, 1); }
TEST(Mpirun, TwoProcessesOfTwoRanks) { testing::run_mpi_tests(2, 2); }

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  return dtensor::testing::main_with_mpi_tests(argc, argv);
}
