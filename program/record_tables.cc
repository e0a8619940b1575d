// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/record_tables.h"

#include <utility>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/received.h"

namespace dtensor {
namespace {

using Json = RecordTables::Json;

// The most ranges that parts_json() lists; each coordinate counts as one more.
constexpr size_t kMostRanges = 4096;

Json axes_json(AxisMask axes) {
  Json list = Json::array();
  for (int a = 0; axes >> a; ++a)
    if (axes >> a & 1) list.push_back(a);
  return list;
}

// The sizes of a split's parts as runs [size, how many consecutive parts].
Json runs_json(const Split& split, const Mesh& mesh, int64_t size) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t i = 0; i < split.parts(mesh); ++i) {
    const int64_t n = split.part(mesh, size, i).size();
    if (runs.empty() || runs.back().first != n) runs.push_back({n, 0});
    ++runs.back().second;
  }
  Json list = Json::array();
  for (const auto& [n, count] : runs) list.push_back({n, count});
  return list;
}

// For each coordinate over the dim's axes, the ranges of indices that it has;
// null if there are more than kMostRanges.
Json parts_json(const Dim& dim, const Mesh& mesh) {
  Json list = Json::array();
  size_t ranges = 0;
  for_each_coord(mesh, dim.axes(), [&](const Coord& c) {
    if (ranges > kMostRanges) return;
    IntervalList part;
    dim.intervals(mesh, c, part);
    ranges += part.size() + 1;
    Json& of_rank = list.emplace_back(Json::array());
    for (const Interval& i : part) of_rank.push_back({i.lo, i.hi});
  });
  return ranges > kMostRanges ? Json() : list;
}

double us(int64_t ps) { return static_cast<double>(ps) / 1e6; }

}  // namespace

size_t RecordTables::Table::index(Json entry) {
  const auto [at, added] = known_.try_emplace(
      entry.dump(-1, ' ', false, Json::error_handler_t::replace), list_.size());
  if (added) list_.push_back(std::move(entry));
  return at->second;
}

size_t RecordTables::mesh(const Mesh& mesh) {
  const auto [at, added] = mesh_numbers_.try_emplace(mesh.hash(), 0);
  if (!added) return at->second;
  Json axes = Json::array(), ranks = Json::array();
  for (int a = 0; a < mesh.num_axes(); ++a)
    axes.push_back({{"name", mesh.axis_name(a)}, {"size", mesh.axis_size(a)}});
  bool in_order = true;
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    ranks.push_back(mesh.world_rank(r));
    in_order &= mesh.world_rank(r) == r;
  }
  Json entry = {{"text", mesh.to_string()}, {"axes", std::move(axes)}};
  if (!in_order) entry["ranks"] = std::move(ranks);
  return at->second = meshes_.index(std::move(entry));
}

size_t RecordTables::dim(const Dim& dim, const Mesh& mesh) {
  Json entry = {{"size", dim.size()}};
  if (dim.whole()) return dims_.index(std::move(entry));
  if (dim.kind() == Dim::Kind::kLeaf) {
    entry["axes"] = dim.split().axes();
    entry["runs"] = runs_json(dim.split(), mesh, dim.size());
  } else {
    entry["axes"] = axes_json(dim.axes());
    entry["parts"] = parts_json(dim, mesh);
  }
  // The numbers in "axes" stand for other axes in another mesh, so the entry of
  // a Dim of another mesh must differ.
  entry["mesh"] = this->mesh(mesh);
  return dims_.index(std::move(entry));
}

size_t RecordTables::spec(const Spec* spec) {
  const auto [at, added] = spec_numbers_.try_emplace(SpecRef(spec), 0);
  if (!added) return at->second;
  const Mesh& mesh = spec->mesh();
  Json dims = Json::array(), partials = Json::array();
  for (int d = 0; d < spec->ndim(); ++d)
    dims.push_back(dim(spec->dim(d), mesh));
  for (const Partial& p : spec->layout().partials)
    partials.push_back({{"axis", p.axis}, {"op", name(p.op)}});
  return at->second =
             specs_.index({{"mesh", this->mesh(mesh)},
                           {"shape", std::vector<int64_t>(spec->shape().begin(),
                                                          spec->shape().end())},
                           {"dtype", name(spec->dtype())},
                           {"layout", spec->layout().to_string(mesh)},
                           {"dims", std::move(dims)},
                           {"partials", std::move(partials)},
                           {"bytes", spec->largest_part_bytes()}});
}

Json RecordTables::step(const Step& s, int64_t chunks, const CostTable& cost) {
  const Mesh& mesh = s.from->mesh();
  const AxisMask priced = s.axes ? s.axes : mesh.all_axes();
  const int64_t ps = sends(s.kind)
                         ? cost.collective_ps(s.kind, priced, s.bytes) +
                               (chunks - 1) * cost.link(s.kind, priced).alpha_ps
                         : 0;
  return {{"kind", name(s.kind)},
          {"axes", axes_json(s.axes)},
          {"from", s.from->layout().to_string(mesh)},
          {"to", s.to->layout().to_string(s.to->mesh())},
          {"bytes", s.bytes},
          {"by_all", received_by_all(s, cost)},
          {"us", us(ps)}};
}

int64_t RecordTables::received_by_all(const Step& s, const CostTable& cost) {
  const auto [at, added] =
      received_.try_emplace({s.from, s.to, s.kind, s.axes}, 0);
  if (added) at->second = dtensor::received_by_all(s, cost);
  return at->second;
}

size_t RecordTables::move(const Move& move, const Plan& plan, size_t tensor,
                          const CostTable& cost) {
  Json list = Json::array();
  double sum = 0;
  for (const Step& s : plan.steps) {
    if (static_cast<size_t>(s.tensor) != tensor) continue;
    list.push_back(step(s, plan.chunks, cost));
    sum += list.back()["us"].get<double>();
  }
  return moves_.index({{"from", spec(move.from)},
                       {"to", spec(move.to)},
                       {"steps", std::move(list)},
                       {"us", sum}});
}

size_t RecordTables::event(const CommEvent& e, double us, bool counted) {
  Json entry = {{"kind", name(e.kind)},
                {"mesh", mesh(e.mesh)},
                {"axes", axes_json(e.axes)},
                {"op", e.op},
                {"bytes", e.predicted},
                {"by_all", e.by_all},
                {"us", us},
                {"times", e.times}};
  if (counted) entry["counted"] = e.counted;
  return events_.index(std::move(entry));
}

size_t RecordTables::path(std::string_view path) {
  return paths_.index(std::string(path));
}

size_t RecordTables::phase(std::string_view phase) {
  return phases_.index(std::string(phase));
}

void RecordTables::write(Json& record) const {
  record["meshes"] = meshes_.list();
  record["dims"] = dims_.list();
  record["specs"] = specs_.list();
  record["moves"] = moves_.list();
  record["events"] = events_.list();
  record["paths"] = paths_.list();
  record["phases"] = phases_.list();
}

}  // namespace dtensor
