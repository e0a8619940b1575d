// SPDX-License-Identifier: Apache-2.0
// A move in the background of what was not there yet began with whatever the
// first of the moves under way made: also where several were begun together,
// and where it was none, but a parameter that is gathered when it is read.
#include <gtest/gtest.h>

#include <vector>

#include "dtensor/gather.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

std::vector<double> from(double first) {
  std::vector<double> all(4);
  for (size_t i = 0; i < 4; ++i) all[i] = first + static_cast<double>(i);
  return all;
}
DistTensor matrix(const Mesh& m, const std::vector<double>& values) {
  return DistTensor::from_global(Tensor::from({2, 2}, values.data()), m, "S0");
}

TEST(AsyncAfterOthers, OfSeveralMovesEachIsItself) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const std::vector<double> values[] = {from(1), from(5), from(9)};
    std::vector<DistTensor> y;
    for (const auto& v : values) y.push_back(matrix(m, v));
    const std::vector<SpecRef> to(
        3, matrix(m, values[0]).redistribute("S1").spec());
    relayout(y, to, {.async = true});
    std::vector<DistTensor> z;
    for (size_t i : {2, 0, 1}) z.push_back(y[i].redistribute_async("R"));
    EXPECT_EQ(z[0].full().to_doubles(), values[2]);
    EXPECT_EQ(z[1].full().to_doubles(), values[0]);
    EXPECT_EQ(z[2].full().to_doubles(), values[1]);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(y[i].full().to_doubles(), values[i]);
  });
}

TEST(AsyncAfterOthers, AParameterThatIsGatheredWhenItIsRead) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor w = matrix(m, from(1));
    w.as_parameter();
    const Spec* columns = w.redistribute("S1").spec();
    const DistTensor read = gathered_when_read(w, columns);
    const DistTensor z = read.redistribute_async("R");
    EXPECT_EQ(z.full().to_doubles(), from(1));
    EXPECT_EQ(read.full().to_doubles(), from(1));
  });
}

}  // namespace
}  // namespace dtensor
