// SPDX-License-Identifier: Apache-2.0
// Processes of an MPI job on one machine read long messages in each other's
// memory, and send them through MPI where the system forbids that.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/runtime.h"
#include "tests/mpirun.h"

namespace {
std::atomic<int64_t> bytes_read, refused;
bool forbidden() { return std::getenv("MAY_NOT_READ") != nullptr; }
}  // namespace

// Replaces the function of the C library.
extern "C" ssize_t process_vm_readv(pid_t pid, const iovec* to,
                                    unsigned long to_count, const iovec* from,
                                    unsigned long from_count,
                                    unsigned long flags) noexcept {
  errno = EPERM;
  const ssize_t n = forbidden() ? -1
                                : syscall(SYS_process_vm_readv, pid, to,
                                          to_count, from, from_count, flags);
  if (n < 0) ++refused;
  if (n > 0) bytes_read += n;
  return n;
}

namespace dtensor {
namespace {

// The tests "Mpi/" run only under mpirun, which the tests "Mpirun." start.
class Memory : public ::testing::TestWithParam<int64_t> {};

TEST_P(Memory, IsReadByTheOtherProcess) {
  const int64_t n = GetParam();
  std::vector<float> values(static_cast<size_t>(2 * n));
  std::iota(values.begin(), values.end(), 0.f);
  run(2, [&](Runtime& rt) {
    const Tensor all = Tensor::from({2 * n}, values.data());
    const DistTensor x = DistTensor::from_global(all, rt.mesh(), "S0");
    // (By now the processes have tried whether they may read each other's
    // memory.)
    bytes_read = 0;
    const Tensor whole = x.redistribute("R").local();
    EXPECT_EQ(whole.to_doubles(), all.to_doubles());
  });
  EXPECT_TRUE(refused > 0 || !forbidden());
  EXPECT_EQ(bytes_read, refused > 0 ? 0 : n * int64_t{sizeof(float)});
}

INSTANTIATE_TEST_SUITE_P(Mpi, Memory, ::testing::Values(1 << 18));

// (Otherwise Open MPI itself may read memory in this way.)
const char kNotByMpi[] = "OMPI_MCA_btl_vader_single_copy_mechanism=none";

TEST(Mpirun, MemoryIsRead) { testing::run_mpi_tests(2, 1, kNotByMpi); }
TEST(Mpirun, MemoryMayNotBeRead) {
  testing::run_mpi_tests(2, 1, std::string(kNotByMpi) + " MAY_NOT_READ=1");
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  return dtensor::testing::main_with_mpi_tests(argc, argv);
}
