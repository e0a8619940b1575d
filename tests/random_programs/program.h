// SPDX-License-Identifier: Apache-2.0
// A random program: leaves, and operators on earlier values. It is data: tests
// can print it, run it on a mesh (run.cc), compute it on plain numbers
// (reference.h), and make it smaller.
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

// Draws the same numbers on every machine, unlike the distributions of std.
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

// A layout that stays valid if the shape or the mesh gets smaller.
struct Lay {
  enum : int { kWhole = -1, kSum = -2, kAvg = -3, kMax = -4 };
  std::vector<int> axes;  // by mesh axis: one of these, or the split dimension
  bool reversed = false;  // whether a dimension's last axis is the outermost
  uint64_t uneven = 0;    // seed of the boundaries of splits; 0: balanced
  uint64_t tree = 0;      // seed of concatenations and products; 0: none
  Layout on(const Mesh&, const Shape&) const;
  bool defined() const { return !axes.empty(); }
};

// Which partials a random layout may have.
enum class Partials { kNone, kSums, kAny };
Lay random_lay(Random&, size_t axes, const Shape&, Partials);

// A step has the name of an operator of the library, or of one of these:
//   leaf               given numbers
//   redistribute       moves a value to `lay`; so does redistribute_async
//   neg_given          moves the negative of a value to `lay`; no other tensor
//                      shares the negative's memory
//   neg_elsewhere      moves a value to a mesh "z" of args[0] ranks, the first
//                      of which is rank args[1], in the layout `lay`; negates
//                      it there, and brings it back
struct Step {
  std::string op;
  std::vector<size_t> in = {};
  Ints args = {};
  Lay lay = {};               // the layout of a leaf, or to which a move goes
  testing::Array value = {};  // the numbers of a leaf
  bool wants_grad = false;    // only for leaves
  // If at least 0, the leaf is a parameter: as_parameter(Keep(keep)) is called.
  int keep = -1;
  Lay use = {};   // if defined, gather_on_use() is called with it
  Lay grad = {};  // if defined, set_grad_layout() is called with it
  // Consecutive operators for which this is true run in one checkpoint().
  bool recomputed = false;
};

// The loss is the sum of x[i] * cos(i + 1) over all elements i of every
// operator's value x that no later step uses.
struct Program {
  std::vector<MeshAxis> axes;
  std::vector<Step> steps;
  bool keeps_products = false;     // whether checkpoints save "matmul"
  std::vector<bool> used() const;  // by step: whether a later step uses it
};

// Whether a step of this name ends in the layout Step::lay.
bool moves(std::string_view op);
// The mesh of a neg_elsewhere step in a program on `mesh`.
Mesh elsewhere(const Step&, const Mesh&);

// The program as text, for error messages. REQUIRES: reference() does not
// throw.
std::string to_text(const Program&);

// The random program of a seed. reference() does not throw for it.
Program random_program(uint64_t seed);

// Programs that lack one thing of this one, with the largest cuts first. Some
// are Unfit (reference.h).
std::vector<Program> smaller(const Program&);

}  // namespace dtensor::random_programs
