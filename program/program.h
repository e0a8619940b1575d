// SPDX-License-Identifier: Apache-2.0
// Programs: command-line flags, exit codes, and starting the ranks.
//
//   int main(int argc, char** argv) {
//     return run(argc, argv, [](Runtime& rt) {
//       Mesh mesh = rt.mesh();
//       ...
//     }, {.mesh = "dp=2,tp=2"});
//   }
//
// Every program has --json, --version and --help. A program with ranks has all
// of these:
//   --mesh dp=2,tp=4   the mesh. The product of its sizes is the number of
//                      ranks. Also 2x4, or "dp=2 of ranks 1,0" (Mesh::parse())
//   --device cuda      the devices: cpu (the default), cuda, or cuda:1 for the
//                      GPUs from number 1 on
//   --ranks-per-gpu 4  the number of ranks that share a GPU; 1 by default
//   --tf32             f32 products on GPUs may round to TF32
//   --tune-gemm        time cuBLASLt's algorithms when a product is first
//                      computed and keep the fastest, also for later runs,
//                      instead of taking cuBLASLt's first proposal
//   --deterministic    attention's gradient in 16 bits on GPUs has the same
//                      bits in every run
//   --backend mpi      how ranks communicate. threads: they read each other's
//                      memory. mpi, tcp and the like: messages between
//                      processes that a launcher started (process_backend.h).
//                      nccl: between the GPUs of threads or of such processes.
//                      The default is the launcher's backend in such processes,
//                      else threads. Processes with GPUs always use NCCL
//                      between them; each process uses the GPUs that match its
//                      local rank (local_process.h)
//   --ranks-per-process 2
//                      the number of ranks in each process; 1 by default
//   --rendezvous PATH  with --backend tcp: a file through which the processes
//                      find each other, instead of MASTER_ADDR and MASTER_PORT
//   --timeout 0.5      seconds that a rank waits for others in a collective, or
//                      a process for others between and after runs, before the
//                      program fails; 60 by default, 0: no limit
//   --checksum         each message between processes carries a checksum, and
//                      one that arrives damaged fails the run; not for NCCL's
//   --flight DIR       the folder for rank-N.json, which has the last
//                      collectives of rank N, for //:flight. Written if the run
//                      fails, and at SIGUSR1. Without the flag, only SIGUSR1
//                      writes the files, to the current folder
//   --trace FILE       a timeline of every rank, for Perfetto and Chrome; also
//                      prints which ranks waited for which
//   --check            compare the values that the ranks pass to from_global(),
//                      and local_map() with one rank
//   --reproducible     the same bits on every mesh, or an error that says why
//                      not (docs/reproducible.md)
//   --dry-run          run one thread without data, and print what would be
//                      sent, the peak memory and the time by the prices, or the
//                      error that the real run would throw
//   --cost FILE        the prices by which layouts and plans are chosen
//                      (cost_file.h), or the name of a machine: h100
//   --html FILE        write a page that shows what a dry run, or rank 0 of a
//                      run, does, operator by operator: layouts, choices,
//                      messages, memory
//   --record FILE      the same as JSON (docs/record.md); "-": standard output
//   --json [FILE]      write the result as a JSON object. Without FILE, or with
//                      "-", standard output has nothing else, and other output
//                      goes to standard error
//   --explore [PORT]   serve a page on this machine, at PORT or any free port.
//                      Its users change the flags and see the record of a dry
//                      run (explore/playground.h)
//   --version          print the version of the library
//   --help
// The exit code is 0 on success, 1 if the run failed, and 2 on bad input or if
// processes cannot meet; 1 and 2 come with one sentence on standard error.
// SIGINT and SIGTERM stop a run with a sentence and exit code 130 or 143, after
// files being saved have been completed or removed. A second signal ends the
// program at once.
//
// When the run is over, standard error, and "stragglers" in the result of
// --json, name the ranks for which others waited longer than a second in total.
// If ranks share cores, the time for which such a rank waited for a core does
// not count; if that leaves no rank to name, a sentence says that they share
// cores (crowd.h). With several processes, only the main process prints, and
// all exit with the same code, unless they cannot reach each other.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/program/flags.h"
#include "dtensor/runtime.h"

namespace dtensor {

class Record;

struct ProgramOptions {
  std::string about = {};  // the first text of --help
  // The default of --mesh; "" is one axis of all ranks of the job
  // (comm/job.h), or of one rank without a job.
  std::string mesh = {};
  // The axes that --mesh must have, and no others; empty: any axes.
  std::vector<std::string> axes = {};
  // The program never starts ranks, so that a mesh may have any size.
  bool always_dry = false;
  // The program has no ranks, and no --mesh, --device, --dry-run and the like.
  bool no_ranks = false;
  // The program's own flags that may differ between processes, such as files
  // that each process writes. Other flags must have the same value in every
  // process.
  std::vector<std::string> may_differ = {};
  // --mesh may name ranks beyond the size of the run, because the program runs
  // nothing, not even a dry run.
  bool any_ranks = false;
};

// Runs fn on every rank of --mesh and returns the exit code. Program::main()
// describes the output of a dry run and of --json.
int run(int argc, char** argv, const std::function<void(Runtime&)>& fn,
        const ProgramOptions& = {});

// A program with its own flags or its own result.
class Program {
 public:
  explicit Program(ProgramOptions options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Adds a flag "--name VALUE" that sets *value. The current *value is the
  // default, which --help shows (for a number, only if it is in range). Numbers
  // on the command line must be finite and in [min, max].
  void add(std::string_view name, int64_t* value, std::string_view help,
           int64_t min = 0, int64_t max = std::numeric_limits<int64_t>::max());
  void add(std::string_view name, double* value, std::string_view help,
           double min = 0);
  // Adds a flag for a text that is not empty, which --help shows as TEXT, FILE
  // or DIR; or for one of `choices`.
  void add(std::string_view name, std::string* value, std::string_view help,
           TextKind = TextKind::kText);
  void add(std::string_view name, std::string* value, std::string_view help,
           std::vector<std::string> choices);
  // Adds a flag that may be given several times.
  void add(std::string_view name, std::vector<std::string>* values,
           std::string_view help);
  void add(std::string_view name, bool* value, std::string_view help);
  // Accepts words that belong to no flag: see Flags::add_words().
  void add_words(std::vector<std::string>* words, std::string_view help,
                 std::string_view type);

  // Reads the command line, then (unless it has --help, --version or --explore)
  // calls check() and body(); returns the exit code. An Error in check() counts
  // as bad input, one in body() as a failed run. If body() ran ranks with
  // run_options(), a dry run prints their collectives, peak memory and
  // predicted time. These, without the time after a real run, are also the
  // result of --json, unless the program writes its own.
  int main(int argc, char** argv, const std::function<void()>& check,
           const std::function<void()>& body);

  // Call the members below only from check() on, when the flags are known.
  bool given(std::string_view name) const;  // "--name"
  const Mesh& mesh() const;
  bool dry_run() const;
  bool wants_json() const;
  // Whether this is the main process, the one with rank 0. The standard output
  // of other processes is discarded.
  bool is_main_process() const;
  // The number of ranks in this process; in a dry run, all ranks of mesh().
  int64_t ranks_here() const;
  // The prices of --cost for that mesh, or the default prices.
  CostTable cost(const Mesh&) const;
  // Options for run() with the ranks of mesh(), dry or not.
  RunOptions run_options() const;
  // The newest record of --html and --record, to which runs with run_options()
  // add; null without these flags.
  std::shared_ptr<Record> record() const;
  // Begins another record, of runs on that mesh. The page compares it with the
  // earlier ones.
  std::shared_ptr<Record> another_record(std::string title, const Mesh&);
  // Writes the result, an object, to the file of --json; does nothing without
  // --json. Adds stragglers and, with --trace, waiting times. All processes
  // call it, and the main process writes.
  void write_json(const nlohmann::ordered_json&) const;

 private:
  struct State;
  void report_runs() const;
  std::unique_ptr<State> state_;
};

}  // namespace dtensor
