// What a rank knows of itself: one object behind one thread-local pointer.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/comm/backend.h"
#include "dtensor/lineage.h"
#include "dtensor/memory_kind.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/step_kind.h"

namespace dtensor {

class Capture;
class Captures;
class FlightRecorder;
class Runtime;
class Tracer;
struct OpCall;

// One collective that ran, or in a dry run would have.
struct CommEvent {
  Mesh mesh;
  AxisMask axes;
  StepKind kind;
  std::string op;     // for which operator
  std::string phase;  // "forward", "backward", ...
  int64_t predicted;  // bytes: the most that any one rank receives
  int64_t counted;    // bytes that this rank received; 0 in a dry run
  // Tensors that move in one collective are an event each, of one number (0: it
  // is one of its own). It was made `times` times, on one part of them after
  // the other.
  int64_t collective = 0;
  int64_t times = 1;
};

struct RankContext {
  Runtime* runtime = nullptr;
  int64_t world_rank = 0;
  int64_t world_size = 1;
  bool dry_run = false;
  Device* device = &cpu();
  Stream stream;  // what this rank's thread hands to the device, in order
  std::shared_ptr<Allocator> allocator;
  Planner planner;  // the prices, and the plans made under them
  std::set<std::string, std::less<>> paths;  // of kept_path()
  // What the operators remember of their decisions on this rank (ops/op.cc).
  struct Memory {
    virtual ~Memory() = default;
    // Called when the rank's function has returned; may throw its last error.
    virtual void finish() {}
  };
  std::unique_ptr<Memory> op_memory;
  // What carrying out plans needs of this rank (execution.cc).
  std::unique_ptr<Memory> executions;
  // The thread that carries out what need not be waited for (async.cc).
  std::unique_ptr<Memory> async;
  // The checkpoint that is saved in the background (io/checkpoint_writer.cc).
  std::unique_ptr<Memory> save;
  // What is to be checked at the next host read (data_check.cc).
  std::unique_ptr<Memory> checks;
  // Parameters that are gathered where they are used (gather.cc), and how many
  // bytes of them may be held beyond what the running operator needs.
  std::unique_ptr<Memory> gathered;
  int64_t gather_budget = 0;

  // Scopes; see the guards that set them.
  bool grad_enabled = true;
  Captures* captures = nullptr;  // see autograd.h
  bool explicit_only = false;    // an op that would communicate throws
  int64_t comm_budget = -1;      // bytes left, -1 without limit
  std::string_view op = "";      // the running operator, for tags and errors
  // The value that the running operator makes, or that is being moved; null:
  // none that members of a collective could compare.
  const Lineage* about = nullptr;
  std::string phase = "forward";
  // Which module runs ("blocks.3.mlp"), and how many operators it has called.
  std::string_view path = "";
  int64_t ordinal = 0;
  MemoryKind memory_kind = MemoryKind::kActivations;  // of what is allocated

  // Of a collective about `about`: Call::lineage, and the end of a sentence
  // that says what that is: ", made by mean, operator 4 of gpt.loss".
  uint64_t lineage() const { return about ? about->hash : 0; }
  std::string about_text() const;
  // `path` in memory that the rank keeps.
  std::string_view kept_path();

  Capture* capture = nullptr;  // what runs now becomes a graph (graph.h)

  // Filled while `record` is set.
  bool record = false;
  std::vector<CommEvent> events;
  int64_t collectives = 0;  // the number of the last one
  // How long this rank's thread was in collectives, or waited for those of its
  // other thread: communication that no computation hid.
  int64_t exposed_ns = 0;
  // When set, told of every operator that has run (ops/op.h).
  std::function<void(const OpCall&)> trace;

  // The calling thread's; throws Error outside run().
  static RankContext& current();
  static RankContext* current_or_null();
  // Makes `c` the calling thread's (null: none).
  static void set_current(RankContext* c);

  // The group of ranks that differ from this one only in `axes`. Collective
  // only in that all members have to ask for it before it is used.
  Communicator& communicator(const Mesh&, AxisMask axes);
  // The group of these ranks of the run, in the order given on all of them.
  Communicator& communicator(const std::vector<int64_t>& world_ranks);
  // This rank's coordinate; throws Error when it is not in the mesh.
  const Coord& coordinate(const Mesh&);
  // The same; null when it is not in the mesh.
  const Coord* coordinate_or_null(const Mesh&);

  // Set by run().
  uint64_t run_id = 0;               // another one for every run
  std::shared_ptr<Backend> backend;  // how it reaches the others
  int lane = 0;                      // 1: of the rank's other thread
  Watch* watch = nullptr;            // told of its collectives
  FlightRecorder* flight = nullptr;  // notes them (flight.h)
  Tracer* tracer = nullptr;          // notes what runs when (trace.h)
  std::string mesh_text;             // --mesh

  // Asked for by every step of every operator, and few: searched one by one.
  struct CachedCommunicator {
    Mesh mesh;
    AxisMask axes;
    Communicator* communicator;
  };
  struct CachedCoordinate {
    Mesh mesh;
    std::unique_ptr<const Coord> at;  // null: not in the mesh
  };
  std::vector<CachedCommunicator> communicators;
  std::map<std::vector<int64_t>, std::unique_ptr<Communicator>> groups;
  std::vector<CachedCoordinate> coordinates;
  std::string_view last_path = "";  // of kept_path()
};

// Sets a value for the length of a scope.
template <class T>
class Scoped {
 public:
  Scoped(T& slot, T value) : slot_(slot), old_(std::move(slot)) {
    slot_ = std::move(value);
  }
  ~Scoped() { slot_ = std::move(old_); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& slot_;
  T old_;
};

}  // namespace dtensor
