// SPDX-License-Identifier: Apache-2.0
// A program for tests. --fault says what rank 2 does that the other ranks do
// not do.
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "dtensor/dtensor.h"

namespace dtensor {
namespace {

int faulty_main(int argc, char** argv) {
  std::string fault = "none";
  Program program({.about = "Goes wrong.", .mesh = "4"});
  program.add("--fault", &fault, "how",
              {"none", "differs", "absent", "late", "swapped"});
  return program.main(argc, argv, nullptr, [&] {
    run(program.run_options(), [&](Runtime& rt) {
      const Mesh mesh = rt.mesh();
      const bool faulty = rt.rank() == 2;
      const auto sum = [&](int64_t n, const char* to) {
        ones({n}, mesh, "P").redistribute(to);
      };
      for (int i = 0; i < 3; ++i) sum(8, "R");
      if (faulty && fault == "absent") return;
      if (faulty && fault == "late")
        std::this_thread::sleep_for(std::chrono::seconds(5));
      if (faulty && fault == "differs") sum(8, "S0");
      if (faulty && fault == "swapped") sum(6, "R");
      sum(8, "R");
      sum(6, "R");
    });
    program.write_json({{"done", true}});
  });
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) { return dtensor::faulty_main(argc, argv); }
