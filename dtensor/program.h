// Programs: flags, exit codes, and the ranks behind them.
//
//   int main(int argc, char** argv) {
//     return run(argc, argv, [](Runtime& rt) {
//       Mesh mesh = rt.mesh();
//       ...
//     }, {.mesh = "dp=2,tp=2"});
//   }
//
// Every program has
//   --mesh dp=2,tp=4   as many ranks as the mesh has; or 2x4, or
//                      "dp=2 of ranks 1,0"
//   --device cuda      what the ranks compute on: cpu (the default), cuda, or
//                      cuda:1 for the GPUs from that one on
//   --ranks-per-gpu 4  so many ranks on each GPU, instead of one
//   --tf32             products of f32 on GPUs may round to TF32
//   --tune-gemm        of cuBLASLt's algorithms for a product, the fastest when
//                      it is first computed, instead of the first proposal; not
//                      the same bits in each run and on each GPU
//   --backend mpi      how ranks reach each other: threads (the default), which
//                      read each other's memory; mpi, processes that mpirun or
//                      srun has started (the default of those); tcp, processes
//                      that torchrun, or whoever sets RANK, WORLD_SIZE,
//                      MASTER_ADDR and MASTER_PORT, has started (the default
//                      of those; see comm/tcp.h); or nccl, between GPUs: in
//                      threads, or in processes of either, which send so
//                      between GPUs in any case (each takes those that are its
//                      turn on its machine; see comm/local_process.h)
//   --nccl-memory 4    of ranks that send through NCCL: so many GiB of each
//   GPU,
//                      at first 0, are memory that NCCL reads and writes
//                      itself, without copies of its own (comm/nccl.h)
//   --ranks-per-process 2
//                      so many ranks are threads of each process, instead of
//                      one
//   --rendezvous PATH  with --backend tcp: a file through which the processes
//                      find each other, instead of MASTER_ADDR and MASTER_PORT
//   --timeout 0.5      seconds that a rank waits for others in a collective
//                      before the run fails; 60 by default, 0: without end
//   --flight DIR       for the last collectives of each rank, rank-N.json, for
//                      //:flight: written when the run fails, and at SIGUSR1,
//                      then without the flag to the current folder
//   --trace FILE       what every rank did when, for Perfetto and Chrome; and
//                      prints who waited for whom
//   --dry-run          one thread, no data: prints what would be sent and the
//                      peak memory, or the error that the real run would give
//   --cost FILE        the prices by which layouts and plans are chosen
//                      (cost_file.h), or the name of a machine: h100
//   --json [FILE]      the result as one object. Without FILE, or with "-",
//                      standard output holds nothing else, and what the program
//                      prints goes to standard error
//   --version          of the library that it is linked with
//   --help
// and exits with 0 when it is done, 1 when a check or the run failed, and 2 on
// bad input; 1 and 2 with one sentence on standard error. SIGINT and SIGTERM
// stop a run: with a sentence and 130 or 143, when what is being saved is
// complete or removed. A second one ends the program at once. A rank that was
// waited for longer than a second in all is named on standard error when the
// run is over, and in the result of --json, as "stragglers"; where ranks share
// cores, a sentence says so instead (comm/crowd.h). Of several processes the
// first one speaks for all, and all exit with the same code.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/flags.h"
#include "dtensor/runtime.h"
#include "dtensor/text_file.h"

namespace dtensor {

struct ProgramOptions {
  std::string about = {};  // what --help says first
  std::string mesh = {};   // of a run without --mesh; "" is one rank
  // The axes that the program knows, all of which --mesh has to name; empty:
  // whatever it names.
  std::vector<std::string> axes = {};
  // No rank is ever started, so that any mesh will do.
  bool always_dry = false;
  // It has nothing to do with ranks: no --mesh, --device, --dry-run, ...
  bool no_ranks = false;
  // Flags of its own that processes may be given differently, as files that
  // each one writes. All others have to be the same in every process.
  std::vector<std::string> may_differ = {};
  // --mesh may name ranks that a run of its size does not have: nothing runs,
  // not even dry.
  bool any_ranks = false;
};

// Runs fn on every rank of --mesh and returns the exit code. See
// Program::main() for what it prints in a dry run, and what --json has.
int run(int argc, char** argv, const std::function<void(Runtime&)>& fn,
        const ProgramOptions& = {});

// For programs that have flags of their own, or a result of their own.
class Program {
 public:
  explicit Program(ProgramOptions options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // A flag "--name VALUE" that sets *value. What *value holds is the default,
  // and --help shows it (a number only when it is in range). Numbers have to be
  // finite and in [min, max].
  void add(std::string_view name, int64_t* value, std::string_view help,
           int64_t min = 0, int64_t max = std::numeric_limits<int64_t>::max());
  void add(std::string_view name, double* value, std::string_view help,
           double min = 0);
  // Any text, which --help calls TEXT, FILE or DIR; or one of `choices`.
  void add(std::string_view name, std::string* value, std::string_view help,
           TextKind = TextKind::kText);
  void add(std::string_view name, std::string* value, std::string_view help,
           std::vector<std::string> choices);
  // A flag that may be given several times.
  void add(std::string_view name, std::vector<std::string>* values,
           std::string_view help);
  void add(std::string_view name, bool* value, std::string_view help);
  // Words that belong to no flag: see Flags::add_words().
  void add_words(std::vector<std::string>* words, std::string_view help,
                 std::string_view type);

  // Reads the command line, then calls check() and body(); returns the exit
  // code. An Error from check() is bad input, one from body() a failed run.
  // When body() has run ranks under run_options(), their collectives and peak
  // memory are printed in a dry run, and are the result of --json unless the
  // program writes one of its own.
  int main(int argc, char** argv, const std::function<void()>& check,
           const std::function<void()>& body);

  // From check() on:
  bool given(std::string_view name) const;  // "--name"
  const Mesh& mesh() const;
  bool dry_run() const;
  bool wants_json() const;
  // Whether this process prints: of several the first one, which has rank 0.
  // What others print goes nowhere.
  bool is_main_process() const;
  // How many ranks run in this process.
  int64_t ranks_here() const;
  // What --cost says of that mesh; without it the default prices.
  CostTable cost(const Mesh&) const;
  // For run(): the ranks of mesh(), dry or not.
  RunOptions run_options() const;
  // Writes the result, an object, where --json says, with --trace also who
  // waited; nothing without --json. Called by all processes, and written by the
  // first.
  void write_json(const nlohmann::ordered_json&) const;

 private:
  struct State;
  void report_runs() const;
  std::unique_ptr<State> state_;
};

}  // namespace dtensor
