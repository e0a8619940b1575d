// SPDX-License-Identifier: Apache-2.0
// The owners of matrices share the work evenly, and are given by price.
#include "dtensor/nn/owners.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace dtensor::nn {
namespace {

// The matrices of GPT-2's blocks, with the work of Muon's iterations.
std::vector<MatrixTask> gpt2(const Mesh& mesh, int64_t split_ps) {
  std::vector<MatrixTask> all;
  for (int block = 0; block < 12; ++block)
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{2304, 768},
                               {768, 768},
                               {3072, 768},
                               {768, 3072}}) {
      const int64_t k = std::min(m, n), l = std::max(m, n);
      const auto product = [&](int64_t size) {
        return product_ps({}, k, k, size, DType::kF32);
      };
      all.push_back({Spec::replicated(mesh, {m, n}, DType::kF32), split_ps,
                     5 * (2 * product(l) + product(k))});
    }
  return all;
}

std::vector<int64_t> loads(const std::vector<MatrixTask>& all,
                           const std::vector<int64_t>& owners, int64_t p) {
  std::vector<int64_t> work(static_cast<size_t>(p));
  for (size_t i = 0; i < all.size(); ++i)
    if (owners[i] >= 0) work[static_cast<size_t>(owners[i])] += all[i].whole_ps;
  return work;
}

TEST(Owners, RanksHaveEquallyMuchToDo) {
  for (const char* text : {"tp=2", "tp=4", "dp=2,tp=3", "dp=4,tp=2"}) {
    const Mesh mesh = Mesh::parse(text);
    const auto all = gpt2(mesh, int64_t{1} << 50);
    const auto work =
        loads(all, assign_owners(all, {}, false), mesh.num_ranks());
    const double mean = static_cast<double>(std::accumulate(
                            work.begin(), work.end(), int64_t{0})) /
                        static_cast<double>(work.size());
    EXPECT_LE(static_cast<double>(*std::max_element(work.begin(), work.end())),
              1.05 * mean)
        << text;
    EXPECT_TRUE(std::is_sorted(work.begin(), work.end())) << text;
  }
}

TEST(Owners, ThePriceDecides) {
  const Mesh mesh = Mesh::parse("tp=4");
  const auto owned = [](const std::vector<int64_t>& owners) {
    return std::count_if(owners.begin(), owners.end(),
                         [](int64_t o) { return o >= 0; });
  };
  EXPECT_EQ(owned(assign_owners(gpt2(mesh, 1), {}, false)), 0);
  EXPECT_EQ(owned(assign_owners(gpt2(mesh, 1), {}, true)), 48);
  // One long matrix would keep one rank busy, so it has no owner.
  auto all = gpt2(mesh, int64_t{1} << 50);
  all[5].whole_ps *= 100;
  all[5].split_ps = all[5].whole_ps / 2;
  const auto owners = assign_owners(all, {}, false);
  EXPECT_EQ(owned(owners), 47);
  EXPECT_EQ(owners[5], -1);
  // Alone, it has one only if that takes less time than shared work.
  const auto of_one = [&](int64_t split_ps) {
    return assign_owners(
        std::vector<MatrixTask>{{all[5].spec, split_ps, all[5].whole_ps}}, {},
        false)[0];
  };
  EXPECT_EQ(of_one(all[5].whole_ps), -1);
  EXPECT_EQ(of_one(2 * all[5].whole_ps), 3);
  // A mesh of one rank has nothing to divide.
  const Mesh one = Mesh::parse("tp=1");
  EXPECT_EQ(owned(assign_owners(gpt2(one, int64_t{1} << 50), {}, true)), 0);
}

TEST(Owners, BytesAndLayout) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  const Layout rows = parse_layout("R,S0", mesh, {6, 4});
  const std::vector<SpecRef> specs = {
      Spec::get(mesh, {6, 4}, rows, DType::kF32),
      Spec::replicated(mesh, {2, 2}, DType::kF64)};
  // Rank 1 lacks half of the first; others get their half of its update.
  const std::vector<int64_t> owners = {1, -1};
  for (int64_t r = 0; r < 4; ++r) EXPECT_EQ(owner_bytes(specs, owners, r), 48);
  // Owners of a replicated matrix lack nothing.
  EXPECT_EQ(owner_bytes(specs, std::vector<int64_t>{-1, 2}, 2), 0);
  EXPECT_EQ(owner_bytes(specs, std::vector<int64_t>{-1, 2}, 3), 32);
  EXPECT_EQ(owner_bytes(specs, owners, 4), 0);  // outside of the mesh
  for (int64_t owner = 0; owner < 4; ++owner) {
    const Spec* s = specs[0]->with(owned_layout(mesh, {6, 4}, owner));
    for (int64_t r = 0; r < 4; ++r)
      EXPECT_EQ(volume(s->region(mesh.coordinate(r))), r == owner ? 24 : 0);
  }
}

}  // namespace
}  // namespace dtensor::nn
