// SPDX-License-Identifier: Apache-2.0
// Compares the collectives of --backend mpi with the raw MPI calls that do the
// same. Both take turns in the same processes.
//
//   bazel build //tests/bench:mpi_backend_bench
//   mpirun --bind-to none -n 2 bazel-bin/tests/bench/mpi_backend_bench
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/placement/step_schedule.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/text_table.h"
#include "tests/bench/mpi_turns.h"
#include "tests/bench/rounds.h"

namespace dtensor {
namespace {

enum class Kind { kAllReduce, kAllGather, kReduceScatter };

struct Case {
  std::string name;
  std::function<void()> ours, through_redistribute, raw;
};

// The operands of all cases of a rank.
struct Memory {
  std::vector<float> src, dst;
};

// The layouts between which a tensor of n elements moves.
struct Move {
  const Spec *from, *to;
  Move(Kind kind, const Mesh& mesh, int64_t n) {
    const Dim whole(n), cut(n, Split::over({0}));
    const std::vector<Partial> sum{{0, ReduceOp::kSum}};
    const auto of = [&](const Dim& dim, std::vector<Partial> partials) {
      return Spec::get(mesh, {n}, {{dim}, std::move(partials)}, DType::kF32);
    };
    from = kind == Kind::kAllGather ? of(cut, {}) : of(whole, sum);
    to = kind == Kind::kReduceScatter ? of(cut, {}) : of(whole, {});
  }
};

// The call of the Communicator, with a schedule that was made before, as in a
// plan.
std::function<void()> through_communicator(Kind kind, const Move& move,
                                           Communicator& comm, Memory& m) {
  const int64_t n = move.to->shape()[0];
  if (kind == Kind::kAllReduce)
    return [&comm, &m, n] {
      comm.all_reduce({StepKind::kAllReduce, "bench"}, {}, ReduceOp::kSum,
                      DType::kF32, m.dst.data(), n);
    };
  const bool gathers = kind == Kind::kAllGather;
  const StepKind step =
      gathers ? StepKind::kAllGather : StepKind::kReduceScatter;
  const auto s =
      std::make_shared<Schedule>(schedule({.kind = step,
                                           .axes = move.from->mesh().all_axes(),
                                           .from = move.from,
                                           .to = move.to},
                                          comm.rank()));
  return [&comm, &m, s, gathers, step] {
    Transfer t{.schedule = s.get(),
               .dtype = DType::kF32,
               .src = m.src.data(),
               .src_strides = {1},
               .dst = m.dst.data(),
               .dst_strides = {1}};
    if (gathers)
      comm.exchange({step, "bench"}, {}, {&t, 1});
    else
      comm.reduce({step, "bench"}, {}, {&t, 1});
  };
}

std::function<void()> raw_call(Kind kind, Memory& m, int64_t n, int64_t part) {
  const int all = static_cast<int>(n), mine = static_cast<int>(part);
  switch (kind) {
    case Kind::kAllReduce:
      return [&m, all] {
        MPI_Allreduce(MPI_IN_PLACE, m.dst.data(), all, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      };
    case Kind::kAllGather:
      return [&m, mine] {
        MPI_Allgather(m.src.data(), mine, MPI_FLOAT, m.dst.data(), mine,
                      MPI_FLOAT, MPI_COMM_WORLD);
      };
    case Kind::kReduceScatter:
      return [&m, mine] {
        MPI_Reduce_scatter_block(m.src.data(), m.dst.data(), mine, MPI_FLOAT,
                                 MPI_SUM, MPI_COMM_WORLD);
      };
  }
  return {};
}

Case make_case(Kind kind, Communicator& comm, Memory& m, const Mesh& mesh,
               int64_t n) {
  constexpr const char* kNames[] = {"all-reduce", "all-gather",
                                    "reduce-scatter"};
  const Move move(kind, mesh, n);
  const Coord me = mesh.coordinate(comm.rank());
  const Tensor part = Tensor::full(move.from->local_shape(me), DType::kF32, 1);
  // Each time a new tensor: the result of an earlier move would be reused.
  return {
      kNames[static_cast<size_t>(kind)],
      through_communicator(kind, move, comm, m),
      [part, move] { DistTensor::wrap(part, move.from).redistribute(move.to); },
      raw_call(kind, m, n, n / comm.size())};
}

Contender repeated(const std::string& name, const std::function<void()>& fn,
                   int64_t repeats) {
  return {name, [fn, repeats] {
            MPI_Barrier(MPI_COMM_WORLD);
            const double start = MPI_Wtime();
            for (int64_t i = 0; i < repeats; ++i) fn();
            MPI_Barrier(MPI_COMM_WORLD);
            return (MPI_Wtime() - start) / static_cast<double>(repeats);
          }};
}

void compare(Runtime& rt, int64_t rounds, const std::vector<int64_t>& sizes) {
  const Mesh mesh = rt.mesh();
  Communicator& comm = rt.context().communicator(mesh, mesh.all_axes());
  TextTable table("lrrrrlll", {"collective", "bytes", "raw us", "ours us",
                               "redistribute us", "ours / raw, quartiles",
                               "redistribute / raw", "rounds"});
  Memory m;
  // The elements of the largest size, rounded up to equal parts on all ranks.
  const auto most = (size_t{4} << 20) + static_cast<size_t>(comm.size());
  m.src.assign(most, 1);
  m.dst.assign(most, 0);
  for (const Kind kind :
       {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter})
    for (const int64_t bytes : sizes) {
      // Equal parts, as the raw calls need them.
      const int64_t n =
          (bytes / 4 + comm.size() - 1) / comm.size() * comm.size();
      const Case c = make_case(kind, comm, m, mesh, n);
      const int64_t repeats = std::max<int64_t>(2, (1 << 21) / bytes);
      const Turns turns = take_rounds(
          comm,
          {repeated("raw", c.raw, repeats), repeated("ours", c.ours, repeats),
           repeated("redistribute", c.through_redistribute, repeats)},
          rounds);
      if (rt.rank() != 0) continue;
      const auto &raw = turns.times[0], &ours = turns.times[1],
                 &redistribute = turns.times[2];
      const Ratio a = ratio(ours, raw), b = ratio(redistribute, raw);
      const auto us = [](std::vector<double> x) {
        std::sort(x.begin(), x.end());
        return fmt::format("{:.2f}", 1e6 * median(x));
      };
      table.add(
          {c.name, std::to_string(4 * n), us(raw), us(ours), us(redistribute),
           fmt::format("{:.2f} ({:.2f} - {:.2f})", a.median, a.low, a.high),
           fmt::format("{:.2f} ({:.2f} - {:.2f})", b.median, b.low, b.high),
           std::to_string(raw.size())});
    }
  if (rt.rank() == 0) std::fputs(table.to_string().c_str(), stdout);
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  dtensor::Flags flags;
  int64_t rounds = 21;
  std::vector<int64_t> sizes{1 << 10, 8 << 10, 64 << 10, 1 << 20, 16 << 20};
  flags.add("--rounds", &rounds, "how often each contender runs", 1, INT_MAX);
  flags.add("--bytes", &sizes,
            "of the whole tensor, 16 MiB at most; rounded up to equal parts",
            1 << 10, 16 << 20);
  const char* about =
      "Collectives of --backend mpi against raw MPI calls; start it with "
      "mpirun --bind-to none -n 2.";
  // The backend refuses a lower thread level.
  return parse_and_run_over_mpi(
      MPI_THREAD_MULTIPLE, flags, about, argc, argv, [&](int) {
        dtensor::RunOptions options;
        options.backend = dtensor::backend_named("mpi");
        options.world = dtensor::processes();
        dtensor::run(options, [&](dtensor::Runtime& rt) {
          dtensor::compare(rt, rounds, sizes);
        });
        return 0;
      });
}
