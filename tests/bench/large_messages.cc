// SPDX-License-Identifier: Apache-2.0
// Sends messages of more than 2^31 bytes, and of more than 2^31 elements, from
// one rank to another. It takes about 13 GB of memory and a minute. Start it by
// hand:
//
//   bazel build -c opt //tests/bench:large_messages
//   mpirun -n 2 bazel-bin/tests/bench/large_messages
//   DTENSOR_MPI_SHARED_MEMORY=0 mpirun -n 2 bazel-bin/tests/bench/...
//   tests/tcprun.sh 2 bazel-bin/tests/bench/large_messages
#include <fmt/core.h>

#include <cstdint>
#include <memory>

#include "dtensor/comm/communicator.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/one_tensor.h"

namespace dtensor {
namespace {

constexpr int64_t kBytes = (int64_t{1} << 31) + 4097;

// A pattern of bytes that differs between the pieces of a message.
uint8_t byte_at(int64_t i) { return static_cast<uint8_t>(i % 251 & 1); }

// Sends bytes from rank 0, which has them, to rank 1.
void sends(Communicator& c) {
  const Region all{IntervalList{{0, kBytes}}}, none{IntervalList{}};
  const Region has[] = {all, none}, wants[] = {none, all};
  const auto memory = std::make_unique<uint8_t[]>(kBytes);
  const bool first = c.rank() == 0;
  if (first)
    for (int64_t i = 0; i < kBytes; ++i) memory[i] = byte_at(i);
  const int64_t counted = testing::exchange(
      c, {StepKind::kPermute, "large", 1}, {}, DType::kBool,
      {first ? memory.get() : nullptr, {1}, &has[c.rank()]}, has,
      {first ? nullptr : memory.get(), {1}, &wants[c.rank()]}, wants);
  DT_CHECK(counted == (first ? 0 : kBytes), "large", "{} bytes", counted);
  for (int64_t i = 0; i < kBytes; ++i)
    DT_CHECK(memory[i] == byte_at(i), "large", "element {} is {}", i,
             memory[i]);
}

// All-reduces: each rank reduces half, and sends and receives the other half
// twice.
void reduces(Communicator& c) {
  constexpr int64_t n = kBytes;  // elements of two bytes
  const auto memory = std::make_unique<uint16_t[]>(n);
  // The upper halves of the floats 1 and 2, in another order on each rank.
  const auto bits = [](int64_t i, int64_t rank) -> uint16_t {
    return (i + rank) % 251 & 1 ? 0x3f80 : 0x4000;
  };
  const auto value = [](uint16_t b) { return b == 0x3f80 ? 1 : 2; };
  for (int64_t i = 0; i < n; ++i) memory[i] = bits(i, c.rank());
  const int64_t counted =
      c.all_reduce({StepKind::kAllReduce, "large", 2}, {}, ReduceOp::kSum,
                   DType::kBF16, memory.get(), n);
  DT_CHECK(counted == 2 * n, "large", "{} bytes", counted);
  for (int64_t i = 0; i < n; ++i) {
    const int sum = value(bits(i, 0)) + value(bits(i, 1));
    const uint16_t want = sum == 2 ? 0x4000 : sum == 3 ? 0x4040 : 0x4080;
    DT_CHECK(memory[i] == want, "large", "element {} is {:x}, not {:x}", i,
             memory[i], want);
  }
}

int large_messages(int argc, char** argv) {
  return run(argc, argv,
             [](Runtime& rt) {
               Communicator& c = rt.context().communicator({0, 1});
               sends(c);
               reduces(c);
               if (rt.rank() == 0)
                 fmt::print("{} bytes, and elements\n", kBytes);
             },
             {.about = "Messages of more than 2^31 bytes.", .mesh = "x=2"});
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) { return dtensor::large_messages(argc, argv); }
