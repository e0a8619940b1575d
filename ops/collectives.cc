// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/collectives.h"

#include <algorithm>
#include <string>

#include "dtensor/ops/create.h"
#include "dtensor/ops/local_map.h"
#include "dtensor/ops/local_scope.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/part_shapes.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/owned.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

// Whether local_map() computes on whole inputs, to compare the results.
bool alone() {
  const LocalScope* scope = LocalScope::current();
  return scope && scope->alone();
}

// Throws Error for a function that has no counterpart on one rank.
void check_not_alone(std::string_view op) {
  DT_CHECK(!alone(), op,
           "the results of local_map() are to be compared with those of one "
           "rank, but a function that says what each rank sends to which has "
           "none; write LocalMapOptions{{.check = false}}");
}

// The members of the calling rank's group, as a mesh with one axis.
Mesh group_of(const Mesh& mesh, std::string_view axes) {
  RankContext& ctx = RankContext::current();
  std::vector<std::string> names;
  for (size_t at = 0; at <= axes.size();) {
    const size_t end = std::min(axes.find(',', at), axes.size());
    names.emplace_back(axes.substr(at, end - at));
    at = end + 1;
  }
  const Mesh members = mesh.submesh(names, ctx.coordinate(mesh, "collectives"));
  return Mesh({{"group", members.num_ranks()}}, world_ranks(members));
}

// The dimension in pieces of these sizes, in the order of the group.
Dim in_order(const Mesh& group, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> points{0};
  for (int64_t n : sizes) points.push_back(points.back() + n);
  const int64_t total = points.back();
  return Dim(total, Split::at({0}, std::move(points), group));
}

// A tensor of the group: the shape of x, but with another dimension `d`.
Layout with_dim(const DistTensor& x, int d, Dim dim) {
  Layout l = Layout::replicated(x.shape());
  l.dims[static_cast<size_t>(d)] = std::move(dim);
  return l;
}

// x is this rank's part of a tensor with layout `from`. Returns the part in
// layout `to`.
DistTensor moved(std::string_view op, const DistTensor& x,
                 const AxisGroup& group, const Layout& from, const Layout& to) {
  const Scoped<std::string_view> name(RankContext::current().op, op);
  return to_local(
      from_local(x, group.mesh(), from, from.shape()).redistribute(to));
}

int checked_dim(std::string_view op, const DistTensor& x, int dim) {
  check_local(op, x);
  return normalize_dim(dim, x.ndim(), op);
}

// The sizes of the members' x along a dimension.
std::vector<int64_t> sizes_along(std::string_view op, const DistTensor& x,
                                 const AxisGroup& group, int dim) {
  const std::vector<int64_t> ranks = world_ranks(group.mesh());
  std::vector<int64_t> sizes;
  for (const auto& one : gathered_numbers(op, ranks, {x.size(dim)}))
    sizes.push_back(one[0]);
  const LocalScope* scope = LocalScope::current();
  if (!RankContext::current().dry_run || !scope || scope->alone()) return sizes;
  // In a dry run, others do not tell their sizes. They may be those of an input
  // that the group's axes split as x.
  const Mesh& mesh = scope->mesh();
  std::vector<Coord> at;
  AxisMask axes = 0;
  for (int64_t r : ranks) {
    at.push_back(mesh.coordinate(mesh.mesh_rank_of(r)));
    for (int a = 0; a < mesh.num_axes(); ++a)
      if (at.back()[a] != at[0][a]) axes |= AxisMask{1} << a;
  }
  if (const Dim* like = dim_like(scope->inputs(), axes, x.local(), dim))
    for (size_t i = 0; i < at.size(); ++i)
      sizes[i] = like->local_size(mesh, at[i]);
  return sizes;
}

// Piece j of member i has sizes[i][j] elements along dimension d of x, and goes
// to member j.
DistTensor exchanged(std::string_view op, const DistTensor& x,
                     const AxisGroup& group, int d,
                     const std::vector<std::vector<int64_t>>& sizes) {
  std::vector<Dim> from, to;
  for (size_t i = 0; i < sizes.size(); ++i)
    for (size_t j = 0; j < sizes[i].size(); ++j) {
      if (sizes[i][j] == 0 && (i > 0 || j > 0)) continue;
      from.push_back(
          owned_by(sizes[i][j], group.mesh(), 0, static_cast<int64_t>(i)));
      to.push_back(
          owned_by(sizes[i][j], group.mesh(), 0, static_cast<int64_t>(j)));
    }
  return moved(op, x, group, with_dim(x, d, Dim::concat(std::move(from))),
               with_dim(x, d, Dim::concat(std::move(to))));
}

// The sizes of n elements in balanced pieces, one for each member.
std::vector<int64_t> pieces(const AxisGroup& group, int64_t n) {
  const Split split = Split::over({0});
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < group.size(); ++i)
    sizes.push_back(split.part(group.mesh(), n, i).size());
  return sizes;
}

}  // namespace

AxisGroup::AxisGroup(std::string_view axes) {
  const LocalScope* scope = LocalScope::current();
  DT_CHECK(scope, "collectives",
           "the group \"{}\" has no mesh outside of local_map(); write "
           "{{mesh, \"{}\"}}",
           axes, axes);
  mesh_ = group_of(scope->mesh(), axes);
}
AxisGroup::AxisGroup(const Mesh& mesh, std::string_view axes)
    : mesh_(group_of(mesh, axes)) {}

AxisGroup::AxisGroup() {
  const LocalScope* scope = LocalScope::current();
  mesh_ = scope ? Mesh({{"group", scope->mesh().num_ranks()}},
                       world_ranks(scope->mesh()))
                : Mesh({{"group", RankContext::current().world_size}});
}

Mesh AxisGroup::mesh() const {
  if (!alone()) return mesh_;
  return Mesh({{"group", 1}}, {RankContext::current().world_rank});
}

int64_t AxisGroup::rank() const {
  return mesh().mesh_rank_of(RankContext::current().world_rank);
}

DistTensor all_reduce(const DistTensor& x, const AxisGroup& group,
                      ReduceOp op) {
  check_local("all_reduce", x);
  DT_CHECK(components(op) == 1, "all_reduce",
           "cannot reduce by mean, which takes pairs of a sum and a count; "
           "write ReduceOp::kAvg");
  Layout from = Layout::replicated(x.shape());
  from.partials = {{0, op}};
  return moved("all_reduce", x, group, from, Layout::replicated(x.shape()));
}

DistTensor all_gather(const DistTensor& x, const AxisGroup& group, int dim) {
  const int d = checked_dim("all_gather", x, dim);
  const Dim from =
      in_order(group.mesh(), sizes_along("all_gather", x, group, d));
  return moved("all_gather", x, group, with_dim(x, d, from),
               with_dim(x, d, Dim(from.size())));
}

DistTensor reduce_scatter(const DistTensor& x, const AxisGroup& group,
                          int dim) {
  const int d = checked_dim("reduce_scatter", x, dim);
  Layout from = Layout::replicated(x.shape());
  from.partials = {{0, ReduceOp::kSum}};
  return moved("reduce_scatter", x, group, from,
               with_dim(x, d, Dim(x.size(d), Split::over({0}))));
}

DistTensor all_to_all(const DistTensor& x, const AxisGroup& group,
                      int split_dim, int concat_dim) {
  const int s = checked_dim("all_to_all", x, split_dim);
  const int c = checked_dim("all_to_all", x, concat_dim);
  const std::vector<int64_t> sizes = sizes_along("all_to_all", x, group, c);
  if (s == c) {
    std::vector<std::vector<int64_t>> all;
    for (int64_t n : sizes) all.push_back(pieces(group, n));
    return exchanged("all_to_all", x, group, s, all);
  }
  const Dim joined = in_order(group.mesh(), sizes);
  Layout to = with_dim(x, s, Dim(x.size(s), Split::over({0})));
  to.dims[static_cast<size_t>(c)] = Dim(joined.size());
  return moved("all_to_all", x, group, with_dim(x, c, joined), to);
}

DistTensor all_to_all(const DistTensor& x, const AxisGroup& group,
                      const std::vector<int64_t>& sizes) {
  checked_dim("all_to_all", x, 0);
  check_not_alone("all_to_all");
  int64_t sum = 0;
  for (int64_t n : sizes) {
    DT_CHECK(n >= 0, "all_to_all", "a size is {}; write 0 or more", n);
    sum += n;
  }
  DT_CHECK(std::ssize(sizes) == group.size() && sum == x.size(0), "all_to_all",
           "{} sizes with the sum {} were given for a group of {} and {}; give "
           "one size for each member, and all elements of dimension 0",
           sizes.size(), sum, group.size(), x.spec()->to_string());
  return exchanged(
      "all_to_all", x, group, 0,
      gathered_numbers("all_to_all", world_ranks(group.mesh()), sizes));
}

DistTensor broadcast(const DistTensor& x, const AxisGroup& group,
                     int64_t root) {
  check_local("broadcast", x);
  if (alone()) return x;
  DT_CHECK(root >= 0 && root < group.size(), "broadcast",
           "the root is {}, but the group has {} members; write a number from "
           "0 to {}",
           root, group.size(), group.size() - 1);
  if (x.ndim() == 0)
    return reshape(broadcast(reshape(x, {1}), group, root), {});
  const DistTensor part = group.rank() == root ? x : slice(x, 0, 0, 0);
  return moved("broadcast", part, group,
               with_dim(x, 0, owned_by(x.size(0), group.mesh(), 0, root)),
               Layout::replicated(x.shape()));
}

DistTensor ppermute(const DistTensor& x, const AxisGroup& group,
                    const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  check_local("ppermute", x);
  check_not_alone("ppermute");
  if (x.ndim() == 0)
    return reshape(ppermute(reshape(x, {1}), group, pairs), {});
  const auto n = static_cast<size_t>(group.size());
  std::vector<int64_t> to(n, -1), from(n, -1);
  for (const auto& [source, destination] : pairs) {
    DT_CHECK(source >= 0 && source < group.size() && destination >= 0 &&
                 destination < group.size(),
             "ppermute",
             "a pair is ({}, {}), but the group has {} members; write numbers "
             "from 0 to {}",
             source, destination, group.size(), group.size() - 1);
    DT_CHECK(to[static_cast<size_t>(source)] < 0 &&
                 from[static_cast<size_t>(destination)] < 0,
             "ppermute",
             "the pair ({}, {}) has a source or a destination of an earlier "
             "pair; write each once",
             source, destination);
    to[static_cast<size_t>(source)] = destination;
    from[static_cast<size_t>(destination)] = source;
  }
  const std::vector<int64_t> sizes = sizes_along("ppermute", x, group, 0);
  std::vector<std::vector<int64_t>> all(n, std::vector<int64_t>(n, 0));
  for (size_t i = 0; i < n; ++i)
    if (to[i] >= 0) all[i][static_cast<size_t>(to[i])] = sizes[i];
  const auto me = static_cast<size_t>(group.rank());
  const DistTensor part = to[me] >= 0 ? x : slice(x, 0, 0, 0);
  const DistTensor y = exchanged("ppermute", part, group, 0, all);
  // The result depends on y on every rank, so that all ranks take its gradient.
  return from[me] >= 0 ? y : cat({y, zeros_like(x)}, 0);
}

}  // namespace dtensor
