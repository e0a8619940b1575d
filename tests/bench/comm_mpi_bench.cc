// SPDX-License-Identifier: Apache-2.0
// Compares collectives of thread ranks with raw MPI calls between processes.
//
//   apt-get install libopenmpi-dev openmpi-bin
//   bazel build //tests/bench:comm_mpi_bench
//   mpirun --bind-to none -n 2 bazel-bin/tests/bench/comm_mpi_bench
//
// Process 0 also runs the thread ranks, while the other processes sleep. While
// MPI runs, the threads sleep. Contenders take turns in one run. If a case
// needs another number of ranks than there are processes, it has no MPI rows.
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <mpi.h>

#include <chrono>
#include <climits>
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

// One raw call of all processes.
struct RawCall {
  std::string name;
  std::function<void()> call;
};

// The MPI calls that do what the case does.
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

  // Makes the calls that process 0 tells, until it tells the end. For other
  // processes.
  void serve() {
    take_part(end(), [&](int call) { time(static_cast<size_t>(call)); });
  }
  // Process 0 calls it. Returns the seconds that the call's repeats take.
  double run(size_t call) {
    // Thread ranks that wait spin for a while before they sleep: wait for that.
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

// The MPI contenders. Rank 0 of process 0's thread ranks makes the calls.
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

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  dtensor::Flags flags;
  int64_t rounds = 41;
  std::string only;
  flags.add("--rounds", &rounds, "how often each contender runs", 1, INT_MAX);
  flags.add("--only", &only, "cases whose name has this",
            dtensor::TextKind::kText);
  const char* about =
      "Collectives of thread ranks against raw MPI calls; start it with "
      "mpirun --bind-to none -n 2.";
  return parse_and_run_over_mpi(
      MPI_THREAD_SERIALIZED, flags, about, argc, argv, [&](int level) {
        if (dtensor::refuse(dtensor::processes() > 1, level)) return 1;
        if (dtensor::process() == 0)
          dtensor::compare_collectives(rounds, only, dtensor::rivals);
        else
          dtensor::serve_all(only);
        return 0;
      });
}
