// SPDX-License-Identifier: Apache-2.0
// Compares redistribution among thread ranks with an MPI_Alltoallv between two
// processes that pack the data by hand.
//
//   apt-get install libopenmpi-dev openmpi-bin
//   bazel build -c opt //tests/bench:redistribute_mpi_bench
//   mpirun --bind-to none -n 2 bazel-bin/tests/bench/redistribute_mpi_bench
//
// Process 0 also runs the thread ranks, and process 1 sleeps meanwhile; while
// MPI runs, the threads sleep. Contenders take turns in one run.
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <fmt/format.h>
#include <mpi.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <vector>

#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/text_table.h"
#include "tests/bench/mpi_turns.h"
#include "tests/bench/redistribute_cases.h"
#include "tests/bench/rounds.h"

namespace dtensor {
namespace {

constexpr int kGo = 1, kEnd = 2;  // tags: what process 0 tells

// Exchanges half of a matrix of n x n: rows become columns, or columns rows.
class PackedExchange {
 public:
  PackedExchange(int64_t n, int64_t item, bool back)
      : n_(n), item_(item), back_(back) {
    MPI_Comm_rank(MPI_COMM_WORLD, &me_);
    const size_t bytes = static_cast<size_t>(n / 2 * n * item);
    src_.assign(bytes, static_cast<char>(me_));
    dst_.resize(bytes);
    out_.resize(bytes / 2);
    in_.resize(bytes / 2);
  }

  // Packs what the other process needs, exchanges it, unpacks it, and copies
  // what stays. Returns the seconds that process 0 measures between two
  // barriers.
  double run() {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    const int64_t h = n_ / 2 * item_, quarter = n_ / 2 * h;
    const int other = 1 - me_;
    // A half is a part of every row, or whole rows.
    auto at = [&](std::vector<char>& x, int part, bool whole_rows) {
      return x.data() + part * (whole_rows ? quarter : h);
    };
    const int64_t src_step = back_ ? h : 2 * h, dst_step = back_ ? 2 * h : h;
    copy(at(dst_, me_, !back_), dst_step, at(src_, me_, back_), src_step, h);
    copy(out_.data(), h, at(src_, other, back_), src_step, h);
    int counts[2] = {0, 0}, offsets[2] = {0, 0};
    counts[other] = static_cast<int>(quarter);
    MPI_Alltoallv(out_.data(), counts, offsets, MPI_CHAR, in_.data(), counts,
                  offsets, MPI_CHAR, MPI_COMM_WORLD);
    copy(at(dst_, other, !back_), dst_step, in_.data(), h, h);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
  }

 private:
  void copy(char* dst, int64_t dst_step, const char* src, int64_t src_step,
            int64_t bytes) {
    for (int64_t i = 0; i < n_ / 2; ++i)
      std::memcpy(dst + i * dst_step, src + i * src_step,
                  static_cast<size_t>(bytes));
  }

  int64_t n_, item_;
  bool back_;
  int me_;
  std::vector<char> src_, dst_, out_, in_;
};

void compare(int64_t n, int64_t rounds, int process) {
  TextTable table("llrrr",
                  {"case", "contender", "median us", "/ memcpy", "MPI / it"});
  for (const RedistributeCase& c : redistribute_cases(n)) {
    if (c.ranks != 2 || c.from->partial_axes() || c.repeats > 1) continue;
    PackedExchange mpi(n, size_of(c.from->dtype()), c.from->dim(0).whole());
    if (process == 1) {
      take_part(kEnd, [&](int) { mpi.run(); });
      continue;
    }
    run_threads(2, [&](Runtime& rt) {
      const Mesh mesh = rt.mesh();
      Communicator& comm = rt.context().communicator(mesh, mesh.all_axes());
      auto contenders = redistribute_contenders(c, comm);
      contenders.push_back({"packed MPI_Alltoallv", [&] {
                              if (rt.rank() != 0) return 0.;
                              tell_others(kGo);
                              return mpi.run();
                            }});
      const auto times = take_turns(comm, contenders, rounds);
      if (rt.rank() != 0) return;
      const double packed = median(times.back());
      for (size_t i = 0; i < contenders.size(); ++i) {
        const double t = median(times[i]);
        table.add({i == 0 ? c.name : "", contenders[i].name,
                   fmt::format("{:.2f}", t * 1e6),
                   fmt::format("{:.2f}", t / median(times[0])),
                   fmt::format("{:.2f}", packed / t)});
      }
    });
    tell_others(kEnd);
  }
  if (process == 0) std::fputs(table.to_string().c_str(), stdout);
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  dtensor::Flags flags;
  int64_t rounds = 41, n = 2048;
  flags.add("--rounds", &rounds, "how often each contender runs", 1, INT_MAX);
  flags.add("--size", &n, "rows and columns, a multiple of 128", 128, INT_MAX);
  const char* about =
      "Thread ranks against a hand-packed MPI_Alltoallv; start it with "
      "mpirun --bind-to none -n 2.";
  return parse_and_run_over_mpi(
      MPI_THREAD_SERIALIZED, flags, about, argc, argv, [&](int level) {
        if (dtensor::refuse(dtensor::processes() == 2, level)) return 1;
        dtensor::compare(n, rounds, dtensor::process());
        return 0;
      });
}
