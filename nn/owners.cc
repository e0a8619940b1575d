// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/owners.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

#include "dtensor/placement/owned.h"
#include "dtensor/placement/region.h"

namespace dtensor::nn {
namespace {

// The bytes of a rank's part, and of the whole.
int64_t part_bytes(const Spec* s, int64_t mesh_rank) {
  return volume(s->region(s->mesh().coordinate(mesh_rank))) *
         size_of(s->dtype());
}
int64_t whole_bytes(const Spec* s) {
  return numel(s->shape()) * size_of(s->dtype());
}

// Assigns matrices of one mesh.
class Assignment {
 public:
  Assignment(std::span<const MatrixTask> all, const CostTable& cost)
      : all_(all), cost_(cost), mesh_(all[0].spec->mesh()) {}

  std::vector<int64_t> owners(bool always) {
    std::vector<int64_t> best(all_.size(), -1);
    if (mesh_.num_ranks() == 1) return best;
    std::vector<size_t> order(all_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return all_[a].whole_ps > all_[b].whole_ps;
    });
    if (always) return spread(order);
    std::erase_if(order, [&](size_t i) { return !prefers_owner(all_[i]); });
    int64_t least = price(best);
    // With more long matrices than ranks, the ranks are balanced.
    const auto most =
        std::min(order.size(), static_cast<size_t>(mesh_.num_ranks()));
    for (size_t skipped = 0; skipped <= most; ++skipped) {
      std::vector<int64_t> owners = spread(std::span(order).subspan(skipped));
      if (const int64_t ps = price(owners); ps < least)
        least = ps, best = std::move(owners);
    }
    return best;
  }

 private:
  bool prefers_owner(const MatrixTask& t) const {
    const int64_t p = mesh_.num_ranks(), part = t.spec->largest_part_bytes();
    const int64_t bytes = (whole_bytes(t.spec) - part) / p + part;
    return cost_.link(StepKind::kExchange, mesh_.all_axes()).bytes_ps(bytes) +
               static_cast<double>(t.whole_ps) / static_cast<double>(p) <
           static_cast<double>(t.split_ps);
  }

  std::vector<int64_t> spread(std::span<const size_t> order) const {
    std::vector<int64_t> owners(all_.size(), -1);
    using Load = std::pair<int64_t, int64_t>;  // ps, rank
    std::priority_queue<Load, std::vector<Load>, std::greater<>> ranks;
    for (int64_t r = 0; r < mesh_.num_ranks(); ++r) ranks.emplace(0, r);
    for (const size_t i : order) {
      const auto [ps, rank] = ranks.top();
      ranks.pop();
      owners[i] = rank;
      ranks.emplace(ps + all_[i].whole_ps, rank);
    }
    // The last rank, whose place a dry run takes, has the most.
    std::vector<int64_t> place(static_cast<size_t>(mesh_.num_ranks()));
    for (int64_t r = 0; !ranks.empty(); ++r, ranks.pop())
      place[static_cast<size_t>(ranks.top().second)] = r;
    for (const size_t i : order)
      owners[i] = place[static_cast<size_t>(owners[i])];
    return owners;
  }

  // The bytes of each rank's part of a matrix.
  const std::vector<int64_t>& parts(const Spec* s) {
    std::vector<int64_t>& known = parts_[s];
    for (int64_t r = std::ssize(known); r < mesh_.num_ranks(); ++r)
      known.push_back(part_bytes(s, r));
    return known;
  }

  int64_t price(const std::vector<int64_t>& owners) {
    const auto p = static_cast<size_t>(mesh_.num_ranks());
    std::vector<int64_t> work(p), to(p), back(p);
    int64_t ps = 0;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (owners[i] < 0) {
        ps += all_[i].split_ps;
        continue;
      }
      const std::vector<int64_t>& part = parts(all_[i].spec);
      const auto o = static_cast<size_t>(owners[i]);
      for (size_t r = 0; r < p; ++r) back[r] += r == o ? 0 : part[r];
      to[o] += whole_bytes(all_[i].spec) - part[o];
      work[o] += all_[i].whole_ps;
    }
    ps += *std::max_element(work.begin(), work.end());
    for (const auto* bytes : {&to, &back})
      if (const int64_t most = *std::max_element(bytes->begin(), bytes->end()))
        ps += cost_.collective_ps(StepKind::kExchange, mesh_.all_axes(), most);
    return ps;
  }

  std::span<const MatrixTask> all_;
  const CostTable& cost_;
  const Mesh& mesh_;
  std::map<const Spec*, std::vector<int64_t>> parts_;
};

}  // namespace

std::vector<int64_t> assign_owners(std::span<const MatrixTask> all,
                                   const CostTable& cost, bool always) {
  std::vector<int64_t> owners(all.size(), -1);
  std::vector<bool> done(all.size());
  for (size_t first = 0; first < all.size(); ++first) {
    std::vector<MatrixTask> of_mesh;
    std::vector<size_t> which;
    for (size_t i = first; i < all.size(); ++i)
      if (!done[i] && all[i].spec->mesh() == all[first].spec->mesh()) {
        of_mesh.push_back(all[i]);
        which.push_back(i);
        done[i] = true;
      }
    if (which.empty()) continue;
    const auto found = Assignment(of_mesh, cost).owners(always);
    for (size_t k = 0; k < which.size(); ++k) owners[which[k]] = found[k];
  }
  return owners;
}

int64_t owner_bytes(std::span<const SpecRef> matrices,
                    std::span<const int64_t> owners, int64_t world_rank) {
  int64_t bytes = 0;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const int64_t rank = matrices[i]->mesh().mesh_rank_of(world_rank);
    if (owners[i] < 0 || rank < 0) continue;
    const int64_t part = part_bytes(matrices[i], rank);
    bytes += owners[i] == rank ? whole_bytes(matrices[i]) - part : part;
  }
  return bytes;
}

int64_t product_ps(const CostTable& cost, int64_t m, int64_t k, int64_t n,
                   DType t) {
  return cost.work_ps(
      2.0 * static_cast<double>(m * k) * static_cast<double>(n),
      static_cast<double>((m * k + k * n + m * n) * size_of(t)));
}

Layout owned_layout(const Mesh& mesh, const Shape& shape, int64_t mesh_rank) {
  Layout layout = Layout::replicated(shape);
  std::vector<IntervalList> parts(static_cast<size_t>(mesh.num_ranks()));
  parts[static_cast<size_t>(mesh_rank)] = {{0, shape[0]}};
  layout.dims[0] = owned(shape[0], mesh, mesh.all_axes(), parts);
  return layout;
}

}  // namespace dtensor::nn
