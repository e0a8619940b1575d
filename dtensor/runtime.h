// SPDX-License-Identifier: Apache-2.0
// Starts ranks. A program is one function that every rank runs:
//
//   int main(int argc, char** argv) {
//     return run(argc, argv, [](Runtime& rt) {
//       Mesh mesh = rt.mesh({{"dp", 2}, {"tp", 2}});
//       ...
//       return 0;
//     });
//   }
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

class Device;
class Observer;
class Trace;
struct RankContext;

// One rank's view of the run.
class Runtime {
 public:
  explicit Runtime(RankContext& context) : context_(context) {}
  int64_t rank() const;
  int64_t world_size() const;
  bool dry_run() const;
  RankContext& context() { return context_; }
  // A mesh over the first ranks of the run. Throws Error if it has more ranks
  // than the run.
  Mesh mesh(std::vector<MeshAxis> axes);
  // The mesh of --mesh, or all ranks along a single axis "ranks".
  Mesh mesh();

 private:
  RankContext& context_;
};

class Backend;

struct RunReport {
  double seconds = 0;
  // For each rank: the seconds that ranks of this process waited in collectives
  // that the rank was the last to reach. Short waits do not count, nor do those
  // of second threads: see Backend::waited_for().
  std::vector<double> waited_for;
  // For each rank: the seconds that its thread could run but no core was free;
  // -1 for a rank of another process, or if the system does not tell.
  std::vector<double> waited_for_core = {};
};

// "rank 3 was waited for 4.1 s of 12.0 s (34 %), rank 1 for 2.0 s (17 %)": the
// ranks for which others waited longer than a second, the longest wait first;
// at most 8 ranks. Empty if there are none.
std::string straggler_text(const RunReport&);

struct RunOptions {
  int64_t world = 1;
  std::string mesh;      // the text of --mesh; "" if not given
  bool dry_run = false;  // one thread, no data: see run()
  CostTable cost;
  // Makes the backend, through which the ranks communicate. By default, ranks
  // are threads that read each other's memory. If mpirun, torchrun or another
  // launcher of comm/process_backend.h started the processes, ranks are threads
  // of all these processes: DTENSOR_RANKS_PER_PROCESS (by default 1) in each.
  std::function<std::shared_ptr<Backend>(int64_t world)> backend;
  // How long a rank waits for others in a collective before the run fails, with
  // an Error on every rank that names the missing ones; 0: no limit. Once run()
  // has been called, processes also wait this long for each other between runs
  // and at the end of the program.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
  // Whether each message between processes carries a checksum. If one arrives
  // damaged, every rank throws an Error that names its sender, its receiver and
  // the collective. Covers messages of MPI and TCP, but not NCCL's own; ranks
  // that read each other's memory send no messages. All processes pass the same
  // value.
  bool checksum = false;
  // Whether the first SIGINT or SIGTERM ends the run, with the Error
  // "interrupted by SIGINT" on every rank at its next operator or collective.
  // Otherwise run() does not handle these signals. Not for concurrent runs.
  bool stop_on_signals = false;
  // Called once, by the thread that called run(), when all ranks of this
  // process have left fn, also after a failure. Not called in a dry run.
  std::function<void(const RunReport&)> report;
  // Whether DistTensor::from_global() compares the values of all ranks of the
  // mesh, byte for byte, before it returns, and whether local_map() compares
  // its results with those of one rank. Then from_global() is collective.
  bool check = false;
  // Whether every value has the same bits on every mesh (docs/reproducible.md).
  // An operator that cannot do so on this mesh throws Error. Not with `device`.
  bool reproducible = false;
  // Whether ranks record their collectives from the beginning
  // (RankContext::record).
  bool record = false;
  // Called on every rank after fn has returned without an error, also in a dry
  // run. It may communicate.
  std::function<void(Runtime&)> finish;
  // The folder to which the last collectives of every rank are written if the
  // run fails, as rank-N.json (flight.h). Created if necessary. Empty: nothing
  // is written.
  std::string flight;
  // Records a timeline of every rank (trace.h); may be null.
  std::shared_ptr<Trace> trace;
  // Observe the main thread of rank 0, or of a dry run's only rank
  // (observer.h). An observer of another rank is an Observing in the rank's
  // function.
  std::vector<std::shared_ptr<Observer>> observers;
  // The device of each rank; empty: the CPU. Not called in a dry run.
  std::function<Device&(int64_t rank)> device;
};

// Runs fn on `world` ranks, and returns when all ranks have left fn; the ranks
// of this process are threads. All processes of a job call run(). Ranks that
// wait for a failed rank are released with an Error that names that rank. If
// ranks fail, every process throws the Error of the lowest rank that failed by
// itself, not because another rank failed.
//
// With dry_run, one thread runs fn as the last rank of the world (which holds
// the largest part of every balanced split), on tensors without data. Nothing
// is sent or computed; collectives become events if the rank records them.
void run(const RunOptions&, const std::function<void(Runtime&)>& fn);
void run(int64_t world, const std::function<void(Runtime&)>& fn);

}  // namespace dtensor
