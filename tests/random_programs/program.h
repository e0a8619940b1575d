// SPDX-License-Identifier: Apache-2.0
// A random program: leaves and operators over earlier values. It is data: it
// can be printed, run on a mesh (run.h), computed on plain numbers
// (reference.h) and made smaller.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"
#include "tests/array.h"

namespace dtensor::random_programs {

using Ints = std::vector<int64_t>;

// Draws the same numbers everywhere, which std's distributions do not promise.
class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  int64_t between(int64_t lo, int64_t hi) {
    return lo +
           static_cast<int64_t>(bits_() % static_cast<uint64_t>(hi - lo + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }

 private:
  std::mt19937_64 bits_;
};

// A layout that still means something when the shape or the mesh gets smaller.
struct Lay {
  enum : int { kWhole = -1, kSum = -2, kAvg = -3, kMax = -4 };
  std::vector<int> axes;  // for each mesh axis one of these, or the dimension
  bool reversed = false;  // axes of one dimension, the last one outermost
  uint64_t uneven = 0;    // seed of listed boundaries; 0: balanced
  uint64_t tree = 0;      // seed of segments and products; 0: none
  Layout on(const Mesh&, const Shape&) const;
  bool defined() const { return !axes.empty(); }
};

// Which partials a random layout may have.
enum class Partials { kNone, kSums, kAny };
Lay random_lay(Random&, size_t axes, const Shape&, Partials);

// Beside the operators of the library a step may be
//   leaf               numbers that are given
//   redistribute       to `lay`; redistribute_async the same
//   neg_given          to `lay`, of a negative that nobody else holds
//   neg_elsewhere      to a mesh "z" of args[0] ranks, the first of which is
//                      rank args[1], in the layout `lay`; negated there and
//                      brought back
struct Step {
  std::string op;
  std::vector<size_t> in = {};
  Ints args = {};
  Lay lay = {};               // of a leaf, and where a move goes
  testing::Array value = {};  // of a leaf
  bool wants_grad = false;    // a leaf
  // A leaf that is a parameter: as_parameter() with this, if it is at least 0.
  int keep = -1;
  Lay use = {};   // gather_on_use(), where defined
  Lay grad = {};  // set_grad_layout(), where defined
  // Consecutive operators of which this is true are one checkpoint().
  bool recomputed = false;
};

// The loss is the sum over all values that nothing uses, but leaves, of
// element i times cos(i + 1).
struct Program {
  std::vector<MeshAxis> axes;
  std::vector<Step> steps;
  bool keeps_products = false;     // RecomputeOptions::save of "matmul"
  std::vector<bool> used() const;  // by a later step
};

// Does a step of that name end in the layout Step::lay?
bool moves(std::string_view op);
// The mesh of a step neg_elsewhere in a program on that mesh.
Mesh elsewhere(const Step&, const Mesh&);

// REQUIRES: the reference fits (reference.h).
std::string to_text(const Program&);

// The random program of a seed. Its reference fits.
Program random_program(uint64_t seed);

// Programs with one thing less, the largest cuts first. Some do not fit.
std::vector<Program> smaller(const Program&);

}  // namespace dtensor::random_programs
