// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/assign_ranks.h"

#include <limits>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/shape.h"

namespace dtensor {
namespace {

// A number of elements times a number of ranks, which may exceed 64 bits.
using Cost = __int128;

// Pairs n rows with n columns so that the sum of cost[row * n + column] is
// minimal. Returns the row of each column. Rows are added one by one, each
// along the shortest augmenting path under reduced costs (Kuhn, The Hungarian
// method for the assignment problem, 1955; Jonker and Volgenant, A shortest
// augmenting path algorithm, 1987).
std::vector<size_t> assign(size_t n, const std::vector<Cost>& cost) {
  constexpr Cost kFar = std::numeric_limits<Cost>::max() / 4;
  // Column n holds the row that is being added.
  std::vector<Cost> row_price(n, 0), column_price(n + 1, 0);
  std::vector<size_t> row_of(n + 1, n), before(n, n);
  for (size_t row = 0; row < n; ++row) {
    std::vector<Cost> distance(n, kFar);
    std::vector<bool> reached(n + 1, false);
    row_of[n] = row;
    size_t column = n;
    do {
      reached[column] = true;
      const size_t r = row_of[column];
      Cost least = kFar;
      size_t next = n;
      for (size_t c = 0; c < n; ++c) {
        if (reached[c]) continue;
        const Cost d = cost[r * n + c] - row_price[r] - column_price[c];
        if (d < distance[c]) {
          distance[c] = d;
          before[c] = column;
        }
        if (distance[c] < least) {
          least = distance[c];
          next = c;
        }
      }
      for (size_t c = 0; c <= n; ++c) {
        if (reached[c]) {
          row_price[row_of[c]] += least;
          column_price[c] -= least;
        } else {
          distance[c] -= least;
        }
      }
      column = next;
    } while (row_of[column] != n);
    while (column != n) {
      row_of[column] = row_of[before[column]];
      column = before[column];
    }
  }
  row_of.pop_back();
  return row_of;
}

}  // namespace

Mesh assign_ranks(const Spec* from, const Mesh& to, const Layout& layout) {
  DT_CHECK(layout.shape() == from->shape(), "assign_ranks",
           "a layout of shape {} does not fit {}; pass a layout of the "
           "tensor's shape",
           to_string(layout.shape()), from->to_string());
  const size_t n = static_cast<size_t>(to.num_ranks());
  std::vector<Region> wants, has;
  for (int64_t r = 0; r < to.num_ranks(); ++r) {
    wants.push_back(layout.region(to, to.coordinate(r)));
    const int64_t old = from->mesh().mesh_rank_of(to.world_rank(r));
    has.push_back(old < 0 ? Region(static_cast<size_t>(from->ndim()))
                          : from->region(from->mesh().coordinate(old)));
  }
  std::vector<Cost> cost(n * n);
  for (size_t r = 0; r < n; ++r) {
    const bool absent =
        from->mesh().mesh_rank_of(to.world_rank(static_cast<int64_t>(r))) < 0;
    for (size_t c = 0; c < n; ++c) {
      const int64_t kept = absent ? 0 : overlap(has[r], wants[c]);
      cost[r * n + c] = Cost{volume(wants[c]) - kept} * Cost(n + 1) + (r != c);
    }
  }
  const std::vector<size_t> row_of = assign(n, cost);
  std::vector<MeshAxis> axes;
  for (int a = 0; a < to.num_axes(); ++a)
    axes.push_back({to.axis_name(a), to.axis_size(a)});
  std::vector<int64_t> ranks;
  for (size_t r : row_of)
    ranks.push_back(to.world_rank(static_cast<int64_t>(r)));
  return Mesh(std::move(axes), std::move(ranks));
}

}  // namespace dtensor
