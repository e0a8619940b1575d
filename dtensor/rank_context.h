// SPDX-License-Identifier: Apache-2.0
// The state of a rank: one object behind a thread-local pointer.
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
#include "dtensor/lineage.h"
#include "dtensor/memory_kind.h"
#include "dtensor/observer.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/plan.h"
#include "dtensor/scoped.h"

namespace dtensor {

class Capture;
class Captures;
class Runtime;

struct RankContext {
  Runtime* runtime = nullptr;
  int64_t world_rank = 0;
  int64_t world_size = 1;
  bool dry_run = false;
  Device* device = &cpu();
  Stream stream;  // of this thread's work on the device
  std::shared_ptr<Allocator> allocator;
  Planner planner;  // the prices, and the plans made under them
  std::set<std::string, std::less<>> paths;  // owns the texts of kept_path()
  // State that other files keep for this rank.
  struct Memory {
    virtual ~Memory() = default;
    // Completes pending work, and throws its error if it failed. run() calls it
    // for `checks`, `async` and `save` when the rank's function has returned
    // without an error.
    virtual void finish() {}
  };
  // State that the ranks of the process share; null if it has one rank.
  struct Common {
    SharedPlans plans;
    std::once_flag once;                // guards the making of `decisions`
    std::unique_ptr<Memory> decisions;  // ops/decision.cc
  };
  std::shared_ptr<Common> common;
  // The cached choices of operators' layouts (ops/decision.cc).
  std::unique_ptr<Memory> op_memory;
  // The cached executions of plans (execution.cc).
  std::unique_ptr<Memory> executions;
  // The rank's second thread, for asynchronous redistributions (async.cc).
  std::unique_ptr<Memory> async;
  // The checkpoint that is being saved in the background
  // (io/checkpoint_writer.cc).
  std::unique_ptr<Memory> save;
  // Checks to be made at the next item() (data_check.cc).
  std::unique_ptr<Memory> checks;
  // The copies of parameters that are gathered on use (gather.cc).
  std::unique_ptr<Memory> gathered;
  // The most bytes that these copies may take, half of them for copies that are
  // gathered ahead. The running operator's copies may exceed it.
  int64_t gather_budget = 0;

  // These are set for the duration of a scope (scopes.h, scoped.h).
  bool grad_enabled = true;
  Captures* captures = nullptr;  // see autograd.h
  bool explicit_only = false;    // operators must not communicate
  int64_t comm_budget = -1;      // bytes left; -1: no limit
  std::string_view op = "";      // the running operator, for tags and errors
  // The lineage of the value that the running operator makes, or of the value
  // that is being moved. While it is null, collectives compare no lineages.
  const Lineage* about = nullptr;
  std::string phase = "forward";
  std::string_view path = "";  // the running module ("blocks.3.mlp")
  int64_t ordinal = 0;         // how many operators that module has called
  // The module that called the operator whose gradient is being computed.
  std::string_view gradient_of = "";
  MemoryKind memory_kind = MemoryKind::kActivations;  // of new memory

  // lineage() is the hash of `about`, for the Call (comm/communicator.h) of a
  // collective. about_text() says how the value was made, as the end of a
  // sentence: ", made by mean, operator 4 of gpt.loss", for example.
  uint64_t lineage() const { return about ? about->hash : 0; }
  std::string about_text() const;
  // A copy of `path` that lives until the run ends.
  std::string_view kept_path();

  Capture* capture = nullptr;  // the active capture of a graph (graph.h)

  // Whether this rank adds its collectives to `events`.
  bool record = false;
  std::vector<CommEvent> events;
  int64_t collectives = 0;  // the number of the latest collective
  // The time that this rank's main thread, while `record` was set, spent in
  // collectives or waiting for its second thread: communication that no
  // computation hid.
  int64_t exposed_ns = 0;

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

  // Set by run(), or by async.cc in the context of a rank's second thread.
  uint64_t run_id = 0;               // unique within the process
  std::shared_ptr<Backend> backend;  // makes the groups, records their calls
  int lane = 0;                      // 0: main thread, 1: second thread
  Observers observers;               // of this thread
  std::string mesh_text;             // --mesh
  // How from_global() compares the values of ranks. run() does not choose
  // kSample if RunOptions::device is set: then the same value may lie in host
  // memory on some ranks only, and the others cannot take a sample.
  enum class InputCheck : uint8_t { kNone, kSample, kAll };
  InputCheck input_check = InputCheck::kSample;

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
  std::vector<CachedCommunicator> communicators;
  std::map<std::vector<int64_t>, std::unique_ptr<Communicator>> groups;
  std::vector<CachedCoordinate> coordinates;
  std::string_view last_path = "";  // the latest result of kept_path()
};

}  // namespace dtensor
