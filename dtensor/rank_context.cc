// SPDX-License-Identifier: Apache-2.0
#include "dtensor/rank_context.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "dtensor/comm/flight_ring.h"
#include "dtensor/device/running_op.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {
thread_local RankContext* current_context = nullptr;

// Drops the older half of a list that has kMost entries. Searching a longer
// list would take more time than making an entry again.
constexpr int64_t kMost = 128;
template <class List>
void make_room(List& list) {
  if (std::ssize(list) == kMost)
    list.erase(list.begin(), list.begin() + kMost / 2);
}

}  // namespace

RankContext& RankContext::current() {
  DT_CHECK(current_context != nullptr, "run",
           "this thread is not a rank; call this inside run(), or pass the "
           "rank's context on with RankContext::set_current");
  return *current_context;
}

RankContext* RankContext::current_or_null() { return current_context; }

void RankContext::set_current(RankContext* c) {
  current_context = c;
  keep_running_op(c ? &c->op : nullptr, c ? c->world_rank : -1);
}

std::string RankScope::about_text() const {
  if (!about || about->op.empty()) return "";
  const std::string text = about->to_string();
  // The error of a collective inside an operator already names the operator.
  return about->op == op ? text.substr(op.size()) : ", made by " + text;
}

std::string_view RankContext::kept_path() {
  if (path != cache.last_path) {
    auto kept = cache.paths.find(path);
    if (kept == cache.paths.end()) kept = cache.paths.emplace(path).first;
    cache.last_path = *kept;
  }
  return cache.last_path;
}

const Coord* RankContext::coordinate_or_null(const Mesh& mesh) {
  for (auto it = cache.coordinates.begin(); it != cache.coordinates.end(); ++it)
    if (it->mesh == mesh) {
      // Move an entry to the end before make_room() may drop it. The returned
      // pointer stays valid until kMost / 4 other meshes have been looked up.
      if (cache.coordinates.end() - it > kMost / 4)
        it = std::rotate(it, it + 1, cache.coordinates.end());
      return it->at.get();
    }
  DT_CHECK(mesh.valid(), "mesh",
           "the mesh is empty; make one with Runtime::mesh");
  const int64_t mine = mesh.mesh_rank_of(world_rank);
  make_room(cache.coordinates);
  cache.coordinates.push_back(
      {mesh, mine < 0 ? nullptr
                      : std::make_unique<const Coord>(mesh.coordinate(mine))});
  return cache.coordinates.back().at.get();
}

const Coord& RankContext::coordinate(const Mesh& mesh,
                                     std::string_view function) {
  const Coord* at = coordinate_or_null(mesh);
  DT_CHECK(at != nullptr, function,
           "rank {} of the run is not in mesh {}; make this call on the ranks "
           "of that mesh only: if (mesh.contains(rt.rank()))",
           world_rank, mesh.to_string());
  return *at;
}

Communicator& RankContext::communicator(const Mesh& mesh, AxisMask axes) {
  for (const CachedCommunicator& c : cache.communicators)
    if (c.mesh == mesh && c.axes == axes) return *c.communicator;
  const Coord& at = coordinate(mesh);
  DT_CHECK((axes & ~mesh.all_axes()) == 0, "communicator",
           "mesh {} has no axis number {}; use numbers below {}",
           mesh.to_string(), std::countr_zero(axes & ~mesh.all_axes()),
           mesh.num_axes());
  std::vector<int64_t> ranks = mesh.group(axes, at);
  for (int64_t& r : ranks) r = mesh.world_rank(r);
  Communicator& made = communicator(ranks);
  make_room(cache.communicators);
  cache.communicators.push_back({mesh, axes, &made});
  return made;
}

Communicator& RankContext::communicator(
    const std::vector<int64_t>& world_ranks) {
  if (const auto it = cache.groups.find(world_ranks); it != cache.groups.end())
    return *it->second;
  DT_CHECK(backend != nullptr, "communicator",
           "rank {} is not part of a run; start ranks with run()", world_rank);
  auto made = backend->group(world_ranks, world_rank, lane);
  made->set_device(*device);
  made->set_watch(&observers);
  if (FlightRing* ring = backend->flight(world_rank, lane))
    made->set_flight(*ring, ring->add_group(world_ranks));
  return *cache.groups.emplace(world_ranks, std::move(made)).first->second;
}

}  // namespace dtensor
