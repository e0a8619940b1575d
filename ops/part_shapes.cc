// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/part_shapes.h"

#include <string>
#include <utility>

#include "dtensor/comm/communicator.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

// A part as numbers: its dtype, the number of dimensions, and the sizes.
constexpr size_t kNumbers = 2 + kMaxDims;
struct Part {
  Part(const std::vector<int64_t>& numbers, size_t first)
      : dtype(static_cast<DType>(numbers[first])),
        shape(std::span(numbers).subspan(
            first + 2, static_cast<size_t>(numbers[first + 1]))) {}
  DType dtype;
  Shape shape;
};

std::vector<int64_t> numbers_of(TensorList parts) {
  std::vector<int64_t> numbers;
  for (const DistTensor& p : parts) {
    numbers.push_back(static_cast<int64_t>(p.dtype()));
    numbers.push_back(p.ndim());
    for (int d = 0; d < kMaxDims; ++d)
      numbers.push_back(d < p.ndim() ? p.size(d) : 0);
  }
  return numbers;
}

// Dimension d of the tensor, given all parts, by mesh rank. `dim` is how it is
// split; its size does not matter.
Dim joined(std::string_view op, size_t o, const Mesh& mesh, int d,
           const Dim& dim, const std::vector<Part>& parts) {
  const int64_t whole = parts[0].shape[d];
  const Split& split = dim.split();
  std::vector<int64_t> sizes(static_cast<size_t>(split.parts(mesh)), -1),
      holders(sizes.size());
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    const auto i = static_cast<size_t>(split.part_of(mesh, mesh.coordinate(r)));
    const int64_t n = parts[static_cast<size_t>(r)].shape[d];
    if (sizes[i] < 0) {
      sizes[i] = n;
      holders[i] = r;
    }
    DT_CHECK(sizes[i] == n, op,
             "dimension {} of output {} has size {} on rank {} and {} on rank "
             "{}, which hold the same part of it; return the same shape on "
             "both, or split the dimension over the axis in which they differ",
             d, o, sizes[i], mesh.world_rank(holders[i]), n,
             mesh.world_rank(r));
  }
  if (split.whole()) return Dim(whole);
  std::vector<int64_t> points{0};
  for (int64_t n : sizes) points.push_back(points.back() + n);
  const int64_t total = points.back();
  return Dim(total, Split::at(split.axes(), std::move(points), mesh));
}

}  // namespace

std::vector<int64_t> world_ranks(const Mesh& mesh) {
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < mesh.num_ranks(); ++r)
    ranks.push_back(mesh.world_rank(r));
  return ranks;
}

const Dim* dim_like(TensorList inputs, AxisMask axes, const Tensor& part,
                    int d) {
  const Dim* like = nullptr;
  int best = 0;
  for (const DistTensor& x : inputs) {
    const Tensor& own = x.local();
    const bool same = own.shape() == part.shape();
    const Coord& here = RankContext::current().coordinate(x.mesh());
    for (int e = 0; e < x.ndim(); ++e) {
      const Dim& dim = x.spec()->dim(e);
      if (dim.axes() != axes ||
          dim.local_size(x.mesh(), here) != part.shape()[d])
        continue;
      const int fit = !same || e != d                   ? 1
                      : own.storage() != part.storage() ? 2
                                                        : 3;
      if (fit > best) {
        best = fit;
        like = &dim;
      }
    }
  }
  return like;
}

std::vector<std::vector<int64_t>> gathered_numbers(
    std::string_view op, const std::vector<int64_t>& ranks,
    const std::vector<int64_t>& mine) {
  RankContext& ctx = RankContext::current();
  if (ctx.dry_run || ranks.size() == 1)
    return std::vector<std::vector<int64_t>>(ranks.size(), mine);
  std::vector<int64_t> all(mine.size() * ranks.size());
  ctx.communicator(ranks).all_gather_bytes(
      {.kind = StepKind::kAllGatherBytes, .op = op}, mine.data(),
      static_cast<int64_t>(mine.size() * sizeof(int64_t)), all.data());
  std::vector<std::vector<int64_t>> lists;
  for (auto at = all.begin(); at != all.end();
       at += static_cast<std::ptrdiff_t>(mine.size()))
    lists.emplace_back(at, at + static_cast<std::ptrdiff_t>(mine.size()));
  return lists;
}

std::vector<SpecRef> specs_of_parts(std::string_view op, const Mesh& mesh,
                                    const std::vector<Placements>& layouts,
                                    TensorList parts, TensorList inputs) {
  const auto numbers =
      gathered_numbers(op, world_ranks(mesh), numbers_of(parts));
  std::vector<SpecRef> specs;
  for (size_t o = 0; o < parts.size(); ++o) {
    std::vector<Part> all;
    for (const auto& list : numbers) all.emplace_back(list, o * kNumbers);
    const Part& first = all[0];
    for (size_t r = 1; r < all.size(); ++r)
      DT_CHECK(all[r].dtype == first.dtype &&
                   all[r].shape.size() == first.shape.size(),
               op,
               "output {} is {}{} on rank {} and {}{} on rank {}; return the "
               "same type and the same number of dimensions on all ranks",
               o, name(first.dtype), to_string(first.shape), mesh.world_rank(0),
               name(all[r].dtype), to_string(all[r].shape),
               mesh.world_rank(static_cast<int64_t>(r)));
    Layout layout = layouts[o].resolve(mesh, first.shape);
    Shape shape = first.shape;
    for (const Partial& p : layout.partials)
      DT_CHECK(components(p.op) == 1, op,
               "output {} is a partial mean, whose shape does not follow from "
               "its parts; give its shape",
               o);
    for (int d = 0; d < shape.size(); ++d) {
      Dim& dim = layout.dims[static_cast<size_t>(d)];
      DT_CHECK(dim.kind() == Dim::Kind::kLeaf && dim.split().granule() == 1, op,
               "dimension {} of output {} is split in blocks ({}), so that its "
               "size does not follow from its parts; give the shape",
               d, o, layout.to_string(mesh));
      const Dim* known = RankContext::current().dry_run
                             ? dim_like(inputs, dim.axes(), parts[o].local(), d)
                             : nullptr;
      dim = known ? *known : joined(op, o, mesh, d, dim, all);
      shape[d] = dim.size();
    }
    specs.push_back(Spec::get(mesh, shape, layout, first.dtype));
  }
  return specs;
}

}  // namespace dtensor
