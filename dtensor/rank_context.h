// SPDX-License-Identifier: Apache-2.0
// The state of a rank: its identity, what it does at the moment (RankScope),
// its collectives (CommLog), and what it uses. One object behind a thread-local
// pointer.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/comm/backend.h"
#include "dtensor/comm_event.h"
#include "dtensor/observer.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/plan.h"
#include "dtensor/rank_scope.h"
#include "dtensor/rank_services.h"

namespace dtensor {

class Runtime;

// run() makes one for each rank, and async.cc one for a rank's second thread.
struct RankContext : RankScope, CommLog {
  Runtime* runtime = nullptr;
  uint64_t run_id = 0;  // unique within the process
  int64_t world_rank = 0;
  int64_t world_size = 1;
  int lane = 0;  // 0: main thread, 1: second thread
  bool dry_run = false;
  std::string mesh_text;  // the text of --mesh
  Device* device = &cpu();
  Stream stream;  // for this thread's work on the device
  std::shared_ptr<Allocator> allocator;
  std::shared_ptr<Backend> backend;  // makes the groups, records their calls
  Planner planner;  // the prices, and the plans made under them
  // How from_global() compares the values of ranks. run() does not choose
  // kSample if RunOptions::device is set: then the same value may lie in host
  // memory on some ranks only, and the others cannot take a sample.
  enum class InputCheck : uint8_t { kNone, kSample, kAll };
  InputCheck input_check = InputCheck::kSample;
  bool reproducible = false;  // see RunOptions::reproducible
  // The most bytes that the copies of parameters gathered on use may take, half
  // of them for copies that are gathered ahead (gather.h). The running
  // operator's copies may exceed it.
  int64_t gather_budget = 0;

  Observers observers;  // the observers of this thread
  RankServices services;
  // State that the ranks of the process share; null if it has one rank.
  struct Common {
    SharedPlans plans;
    std::mutex mutex;  // guards `services`
    RankServices services;
  };
  std::shared_ptr<Common> common;

  // The calling thread's context. current() throws Error outside run().
  static RankContext& current();
  static RankContext* current_or_null();
  // Makes `c` the calling thread's context; null for none.
  static void set_current(RankContext* c);

  // The group of ranks that differ from this one only in `axes`. Does not
  // communicate, but the group works only if all its members request it. Throws
  // Error if this rank is not in the mesh or the mesh lacks one of the axes.
  Communicator& communicator(const Mesh&, AxisMask axes);
  // The group of these ranks of the run. All members have to pass the same
  // list.
  Communicator& communicator(const std::vector<int64_t>& world_ranks);
  // This rank's coordinate. Throws Error if the rank is not in the mesh; the
  // Error names `function`, the public function that needs the coordinate. The
  // reference stays valid until 32 other meshes have been looked up.
  const Coord& coordinate(const Mesh&, std::string_view function = "mesh");
  // Like coordinate(), but returns null if the rank is not in the mesh.
  const Coord* coordinate_or_null(const Mesh&);

  // A copy of `path` that lives until the run ends.
  std::string_view kept_path();

  // Caches of communicator() and coordinate(), which every step of every
  // operator calls. The vectors are so short that a linear search is fastest.
  struct CachedCommunicator {
    Mesh mesh;
    AxisMask axes;
    Communicator* communicator;
  };
  struct CachedCoordinate {
    Mesh mesh;
    std::unique_ptr<const Coord> at;  // null if the rank is not in the mesh
  };
  struct Cache {
    std::vector<CachedCommunicator> communicators;
    std::map<std::vector<int64_t>, std::unique_ptr<Communicator>> groups;
    std::vector<CachedCoordinate> coordinates;
    std::set<std::string, std::less<>> paths;  // owns the texts of kept_path()
    std::string_view last_path = "";           // the latest path in `paths`
  };
  Cache cache;
};

}  // namespace dtensor
