// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/checkpoint_boxes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "dtensor/placement/dims.h"

namespace dtensor::checkpoint {
namespace {

// If cuts at kBoxBytes would make more boxes than about this many, boxes are
// cut at more bytes instead, since the index lists every box.
constexpr int64_t kManyBoxes = 1 << 16;

int64_t bytes_of(const Shape& size, DType t) {
  return numel(size) * dtensor::size_of(t);
}

int64_t bytes_of(const Spec* s) { return bytes_of(s->shape(), s->dtype()); }

// Returns the i-th of n parts of the box, cut along dimension d.
Box part_of(Box box, int d, int64_t i, int64_t n) {
  const int64_t lo = i * box.size[d] / n, hi = (i + 1) * box.size[d] / n;
  box.lo[d] += lo;
  box.size[d] = hi - lo;
  return box;
}

// Cuts `box` along dimension `dim` and those after it into boxes of at most
// `most` bytes, and calls fn(part) for each. Each part is contiguous in a
// contiguous `box`.
template <class Fn>
void each_small(const Box& box, DType t, int64_t most, int dim, const Fn& fn) {
  const int64_t bytes = bytes_of(box.size, t);
  if (bytes <= most || dim == box.size.size()) return fn(box);
  const int64_t n = box.size[dim];
  const int64_t rows = std::max<int64_t>(1, most / (bytes / n));
  const int64_t parts = (n + rows - 1) / rows;
  // One index that is still too large is cut along the next dimension.
  for (int64_t i = 0; i < parts; ++i)
    each_small(part_of(box, dim, i, parts), t, most, dim + 1, fn);
}

// Divides the boxes of tensors among the ranks that hold them.
class Sharing {
 public:
  Sharing(int64_t world, int64_t most)
      : loads_(static_cast<size_t>(world)),
        out_(static_cast<size_t>(world)),
        most_(most) {}

  void add(size_t tensor, const Box& box, DType t,
           std::vector<int64_t> holders) {
    std::stable_sort(holders.begin(), holders.end(),
                     [&](int64_t a, int64_t b) { return load(a) < load(b); });
    const auto n = static_cast<int64_t>(holders.size());
    int d = 0;
    while (d < box.size.size() && box.size[d] < n) ++d;
    if (n == 1 || d == box.size.size() ||
        bytes_of(box.size, t) < n * kShareBytes)
      return give(tensor, box, t, holders[0]);
    // The parts' sizes along d differ by at most one index; the ranks with the
    // fewest bytes so far get the larger parts.
    std::vector<Box> parts;
    for (int64_t i = 0; i < n; ++i) parts.push_back(part_of(box, d, i, n));
    std::stable_sort(
        parts.begin(), parts.end(),
        [&](const Box& a, const Box& b) { return a.size[d] > b.size[d]; });
    for (size_t i = 0; i < parts.size(); ++i)
      give(tensor, parts[i], t, holders[i]);
  }
  std::vector<std::vector<OwnedBox>> result() { return std::move(out_); }

 private:
  int64_t& load(int64_t rank) { return loads_[static_cast<size_t>(rank)]; }
  void give(size_t tensor, const Box& box, DType t, int64_t rank) {
    each_small(box, t, most_, 0, [&](const Box& small) {
      const int64_t bytes = bytes_of(small.size, t);
      out_[static_cast<size_t>(rank)].push_back({tensor, small, bytes});
      load(rank) += bytes;
    });
  }

  std::vector<int64_t> loads_;
  std::vector<std::vector<OwnedBox>> out_;
  const int64_t most_;
};

}  // namespace

std::string to_string(const Box& b) {
  std::vector<std::string> ranges;
  for (int d = 0; d < b.lo.size(); ++d)
    ranges.push_back(fmt::format("{}:{}", b.lo[d], b.lo[d] + b.size[d]));
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

Region region_of(const Box& b) {
  Region r;
  for (int d = 0; d < b.lo.size(); ++d)
    r.push_back({{b.lo[d], b.lo[d] + b.size[d]}});
  return r;
}

std::vector<std::vector<OwnedBox>> boxes_by_rank(
    std::span<const Spec* const> specs, int64_t world) {
  int64_t total = 0;
  for (const Spec* s : specs) total += bytes_of(s);
  // Assign large tensors first: the small ones then even out the differences
  // between ranks.
  std::vector<size_t> order(specs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return bytes_of(specs[a]) > bytes_of(specs[b]);
  });
  Sharing sharing(world, std::max(kBoxBytes, total / kManyBoxes));
  for (size_t i : order) {
    const Spec* spec = specs[i];
    const Mesh& mesh = spec->mesh();
    // An axis may split only some segments of a dimension. One rank along that
    // axis saves the other segments.
    Layout once = spec->layout();
    for (Dim& d : once.dims) d = partitioned(d, mesh);
    const Box whole{Shape::filled(spec->ndim(), 0), spec->shape()};
    for_each_coord(mesh, spec->split_axes(), [&](const Coord& c) {
      const Region region = once.region(mesh, c);
      if (empty(region)) return;
      std::vector<int64_t> holders =
          mesh.group(mesh.all_axes() & ~spec->split_axes(), c);
      for (int64_t& r : holders) r = mesh.world_rank(r);
      for (const Window& w : windows(region, whole))
        sharing.add(i, {w.in_box, w.size}, spec->dtype(), holders);
    });
  }
  return sharing.result();
}

std::vector<Window> windows(const Region& held, const Box& box) {
  std::vector<Window> all = {{}};
  for (size_t d = 0; d < held.size(); ++d) {
    const int64_t lo = box.lo[static_cast<int>(d)],
                  hi = lo + box.size[static_cast<int>(d)];
    std::vector<Window> next;
    for (const Window& w : all) {
      int64_t start = 0;  // where the range r begins in the part
      for (const Interval& r : held[d]) {
        const int64_t from = std::max(lo, r.lo), to = std::min(hi, r.hi);
        if (from < to) {
          Window& more = next.emplace_back(w);
          more.in_part.push_back(start + from - r.lo);
          more.in_box.push_back(from - lo);
          more.size.push_back(to - from);
        }
        start += r.size();
      }
    }
    all = std::move(next);
    if (all.empty()) break;
  }
  return all;
}

Tensor view_of(Tensor t, const Shape& lo, const Shape& size) {
  for (int d = 0; d < lo.size(); ++d) t = t.slice(d, lo[d], lo[d] + size[d]);
  return t;
}

}  // namespace dtensor::checkpoint
