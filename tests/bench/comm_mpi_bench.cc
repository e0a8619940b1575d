// The collectives of thread ranks against raw MPI calls between processes.
//
//   apt-get install libopenmpi-dev openmpi-bin
//   bazel build //tests/bench:comm_mpi_bench
//   mpirun --bind-to none -n 2 bazel-bin/tests/bench/comm_mpi_bench
//
// Process 0 also runs the thread ranks, and the others sleep meanwhile; while
// MPI runs, the threads sleep. Contenders take turns in one run. Cases of
// another number of ranks than there are processes have no MPI rows.
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <mpi.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/comm_cases.h"
#include "tests/bench/mpi_turns.h"

namespace dtensor {
namespace {

using Kind = CommCase::Kind;

int process() {
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  return me;
}
int processes() {
  int count = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  return count;
}

// One raw call of all processes.
struct RawCall {
  std::string name;
  std::function<void()> call;
};

// Those that do what the case does.
std::vector<RawCall> raw_calls(const CommCase& c) {
  struct Memory {
    std::vector<float> src, dst;
    std::vector<int> counts;
  };
  const int n = static_cast<int>(c.elements()), p = processes();
  auto m = std::make_shared<Memory>();
  m->src.resize(static_cast<size_t>(n));
  m->dst.resize(static_cast<size_t>(n));
  m->counts.assign(static_cast<size_t>(p), n / p);
  RawCall all_reduce{"MPI_Allreduce", [m, n] {
                       MPI_Allreduce(m->src.data(), m->dst.data(), n, MPI_FLOAT,
                                     MPI_SUM, MPI_COMM_WORLD);
                     }};
  switch (c.kind) {
    case Kind::kAllReduce:
      return {all_reduce};
    case Kind::kAllGather:
      return {{"MPI_Allgather", [m, n, p] {
                 MPI_Allgather(m->src.data(), n / p, MPI_FLOAT, m->dst.data(),
                               n / p, MPI_FLOAT, MPI_COMM_WORLD);
               }}};
    case Kind::kReduceScatter:
      return {{"MPI_Reduce_scatter",
               [m] {
                 MPI_Reduce_scatter(m->src.data(), m->dst.data(),
                                    m->counts.data(), MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD);
               }},
              all_reduce};
    case Kind::kTurn:
    case Kind::kTurnBack:  // without the packing that it needs
      return {{"MPI_Alltoall of the bytes", [m, n, p] {
                 MPI_Alltoall(m->src.data(), n / p / p, MPI_FLOAT,
                              m->dst.data(), n / p / p, MPI_FLOAT,
                              MPI_COMM_WORLD);
               }}};
    case Kind::kBarrier:
      return {{"MPI_Barrier", [] { MPI_Barrier(MPI_COMM_WORLD); }}};
  }
  return {};
}

// The calls of a case. Process 0 tells the others which one to make.
class Raw {
 public:
  explicit Raw(const CommCase& c) : calls_(raw_calls(c)), repeats_(c.repeats) {}

  // What the other processes do until process 0 has had enough.
  void serve() {
    take_part(end(), [&](int call) { time(static_cast<size_t>(call)); });
  }
  // By process 0: the seconds of a call's repeats.
  double run(size_t call) {
    // The thread ranks that wait spin for a while before they sleep.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    tell_others(static_cast<int>(call));
    return time(call);
  }
  void stop() { tell_others(end()); }
  const std::vector<RawCall>& calls() const { return calls_; }

 private:
  int end() const { return static_cast<int>(calls_.size()); }
  double time(size_t call) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int64_t i = 0; i < repeats_; ++i) calls_[call].call();
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
  }

  const std::vector<RawCall> calls_;
  const int64_t repeats_;
};

// Process 0's thread ranks, of which rank 0 speaks for MPI.
std::vector<Contender> rivals(const CommCase& c, Runtime& rt) {
  if (c.ranks != processes()) return {};
  std::shared_ptr<Raw> raw;
  if (rt.rank() == 0)
    raw = {new Raw(c), [](Raw* r) {
             r->stop();
             delete r;
           }};
  std::vector<Contender> list;
  for (size_t i = 0; i < raw_calls(c).size(); ++i)
    list.push_back({raw ? raw->calls()[i].name : "",
                    [raw, i] { return raw ? raw->run(i) : 0.; }});
  return list;
}

void serve_all(const std::string& only) {
  for (const CommCase& c : comm_cases())
    if (c.ranks == processes() && c.name().find(only) != std::string::npos)
      Raw(c).serve();
}

int refuse(int level) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  if (processes() > 1 && level >= MPI_THREAD_SERIALIZED && CPU_COUNT(&cpus) > 1)
    return 0;
  if (process() == 0)
    std::fprintf(stderr,
                 "%d processes of %d cores; start two that may use two cores "
                 "each, with mpirun --bind-to none -n 2\n",
                 processes(), CPU_COUNT(&cpus));
  return 1;
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  CLI::App app(
      "Collectives of thread ranks against raw MPI calls; start it with "
      "mpirun --bind-to none -n 2.");
  int rounds = 41;
  std::string only;
  app.add_option("--rounds", rounds, "how often each contender runs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--only", only, "cases whose name has this");
  int code = 0;
  try {
    app.parse(argc, argv);
    code = dtensor::refuse(level);
    if (code == 0 && dtensor::process() == 0)
      dtensor::compare_collectives(rounds, only, dtensor::rivals);
    else if (code == 0)
      dtensor::serve_all(only);
  } catch (const CLI::ParseError& e) {
    code = dtensor::process() == 0 ? app.exit(e) : e.get_exit_code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return code;
}
