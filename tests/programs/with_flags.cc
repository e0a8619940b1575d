// SPDX-License-Identifier: Apache-2.0
// A program for tests, with flags of its own. It starts its ranks itself.
#include "dtensor/dtensor.h"

using namespace dtensor;

int main(int argc, char** argv) {
  int64_t rows = 64;
  std::string notes;
  Program program({.about = "Multiplies.", .mesh = "tp=2"});
  program.add("--rows", &rows, "of the left matrix", 1);
  program.add("--notes", &notes, "a file that nothing reads", TextKind::kFile);
  return program.main(argc, argv, nullptr, [&] {
    run(program.run_options(), [&](Runtime& rt) {
      const Mesh mesh = rt.mesh();
      const DistTensor x = randn({rows, 64}, mesh, {{"tp", Shard(1)}});
      const DistTensor w = randn({64, 64}, mesh, {{"tp", Shard(0)}});
      matmul(x, w).redistribute("R");
    });
  });
}
