// Starting ranks. A program is one function that every rank runs:
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

#include "dtensor/placement/mesh.h"
#include "dtensor/rank_context.h"
#include "dtensor/run_report.h"

namespace dtensor {

class Trace;

// One rank's view of the run.
class Runtime {
 public:
  explicit Runtime(RankContext& context) : context_(context) {}
  int64_t rank() const { return context_.world_rank; }
  int64_t world_size() const { return context_.world_size; }
  bool dry_run() const { return context_.dry_run; }
  RankContext& context() { return context_; }
  // A mesh over the first ranks of the run; Error when it has more than there
  // are.
  Mesh mesh(std::vector<MeshAxis> axes);
  // The mesh that the command line named (--mesh), or a single axis "ranks".
  Mesh mesh();

 private:
  RankContext& context_;
};

struct RunOptions {
  int64_t world = 1;
  std::string mesh;      // text of --mesh, "" for none
  bool dry_run = false;  // one thread, no data: see below
  CostTable cost;
  // How the ranks reach each other; empty: as threads that read each other's
  // memory, or, when mpirun or srun has started several processes of a program
  // that is built with MPI, as threads of those: of each as many as
  // DTENSOR_RANKS_PER_PROCESS says, or one.
  BackendFactory backend;
  // How long a rank waits for others in a collective before the run fails with
  // an Error on every rank that says who did not come; 0: as long as they take.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
  // Whether the first SIGINT or SIGTERM ends the run, with the Error
  // "interrupted by SIGINT" on every rank at its next operator or collective.
  // Without it these signals are the caller's affair. Not for several runs at a
  // time.
  bool stop_on_signals = false;
  // Called once, by the thread that called run(), when all ranks have left; of
  // a run that failed too. Not in a dry run.
  std::function<void(const RunReport&)> report;
  // Whether ranks record their collectives from the beginning
  // (RankContext::record).
  bool record = false;
  // Called on every rank when fn has returned there without an error, also in a
  // dry run; may communicate.
  std::function<void(Runtime&)> finish;
  // Who is told of the collectives of a rank's own thread; empty: nobody.
  std::function<std::unique_ptr<Watch>(int64_t rank)> watch;
  // Where the last collectives of every rank are written when the run fails, a
  // file rank-N.json for each (flight.h); empty: nowhere. Made if need be.
  std::string flight;
  // Notes what every rank does when (trace.h); none: nobody does.
  std::shared_ptr<Trace> trace;
  // What each rank computes on; none: the CPU. Not asked in a dry run.
  std::function<Device&(int64_t rank)> device;
};

// Runs fn on `world` ranks, those that this process has as threads, and returns
// when all have left it. The first Error (of the lowest rank that failed by
// itself) is thrown again here, in every process; ranks that wait for a failed
// one are released with an Error that names it. Called by all processes.
//
// With dry_run one thread runs fn as the last rank of the world (which holds
// the largest part of every balanced split) on tensors that have no data;
// collectives are recorded as events, and nothing is computed.
void run(const RunOptions&, const std::function<void(Runtime&)>& fn);
void run(int64_t world, const std::function<void(Runtime&)>& fn);

}  // namespace dtensor
