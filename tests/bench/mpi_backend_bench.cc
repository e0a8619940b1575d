// The collectives of --backend mpi against the raw MPI calls that do the same,
// in turns, by the same processes.
//
//   bazel build //tests/bench:mpi_backend_bench
//   mpirun --bind-to none -n 2 bazel-bin/tests/bench/mpi_backend_bench
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <fmt/format.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/runtime/dist_tensor.h"
#include "dtensor/runtime/runtime.h"
#include "dtensor/runtime/text_table.h"
#include "tests/bench/rounds.h"

namespace dtensor {
namespace {

struct Case {
  std::string name;
  int64_t bytes, repeats;
  std::function<void()> ours, through_redistribute, raw;
};

// What all cases of a rank read and write.
struct Memory {
  std::vector<float> src, dst;
};

Case all_reduce(Communicator& comm, Memory& m, const Mesh& mesh,
                int64_t bytes) {
  const int64_t n = bytes / 4;
  const DistTensor x =
      DistTensor::from_local(Tensor::full({n}, DType::kF32, 1), mesh, "P", {n});
  return {"all-reduce",
          bytes,
          0,
          [&comm, &m, n] {
            comm.all_reduce({StepKind::kAllReduce, "bench", 1}, {},
                            ReduceOp::kSum, DType::kF32, m.dst.data(), n);
          },
          [x] { x.redistribute("R"); },
          [&m, n] {
            MPI_Allreduce(MPI_IN_PLACE, m.dst.data(), static_cast<int>(n),
                          MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
          }};
}

// The index ranges of equal parts of n, and of all of it.
struct Parts {
  std::vector<Region> parts, all;
  Parts(int64_t n, int size) {
    for (int64_t m = 0; m < size; ++m)
      parts.push_back({{{m * n / size, (m + 1) * n / size}}});
    all.assign(static_cast<size_t>(size), Region{{{0, n}}});
  }
};

Case all_gather(Communicator& comm, Memory& m, const Mesh& mesh,
                int64_t bytes) {
  const int64_t n = bytes / 4, p = comm.size();
  const DistTensor x = DistTensor::from_local(
      Tensor::full({n / p}, DType::kF32, 1), mesh, "S0", {n});
  auto parts = std::make_shared<Parts>(n, comm.size());
  const auto me = static_cast<size_t>(comm.rank());
  return {"all-gather",
          bytes,
          0,
          [&comm, &m, parts, me] {
            comm.exchange({StepKind::kAllGather, "bench", 1}, {}, DType::kF32,
                          {m.src.data(), {1}, &parts->parts[me]}, parts->parts,
                          {m.dst.data(), {1}, &parts->all[me]}, parts->all);
          },
          [x] { x.redistribute("R"); },
          [&m, n, p] {
            MPI_Allgather(m.src.data(), static_cast<int>(n / p), MPI_FLOAT,
                          m.dst.data(), static_cast<int>(n / p), MPI_FLOAT,
                          MPI_COMM_WORLD);
          }};
}

Case reduce_scatter(Communicator& comm, Memory& m, const Mesh& mesh,
                    int64_t bytes) {
  const int64_t n = bytes / 4, p = comm.size();
  const DistTensor x =
      DistTensor::from_local(Tensor::full({n}, DType::kF32, 1), mesh, "P", {n});
  auto parts = std::make_shared<Parts>(n, comm.size());
  const auto me = static_cast<size_t>(comm.rank());
  return {"reduce-scatter",
          bytes,
          0,
          [&comm, &m, parts, me] {
            comm.reduce({StepKind::kReduceScatter, "bench", 1}, {},
                        ReduceOp::kSum, DType::kF32,
                        {m.src.data(), {1}, &parts->all[me]}, parts->all,
                        {m.dst.data(), {1}, &parts->parts[me]}, parts->parts);
          },
          [x] { x.redistribute("S0"); },
          [&m, n, p] {
            MPI_Reduce_scatter_block(m.src.data(), m.dst.data(),
                                     static_cast<int>(n / p), MPI_FLOAT,
                                     MPI_SUM, MPI_COMM_WORLD);
          }};
}

double seconds(const std::function<void()>& fn, int64_t repeats) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int64_t i = 0; i < repeats; ++i) fn();
  MPI_Barrier(MPI_COMM_WORLD);
  return (MPI_Wtime() - start) / static_cast<double>(repeats);
}

void compare(Runtime& rt, int rounds) {
  const Mesh mesh = rt.mesh();
  Communicator& comm = rt.context().communicator(mesh, mesh.all_axes());
  TextTable table(
      "lrrrrll", {"collective", "bytes", "raw us", "ours us", "redistribute us",
                  "ours / raw, quartiles", "redistribute / raw"});
  Memory m;
  m.src.assign(size_t{4} << 20, 1);
  m.dst.assign(size_t{4} << 20, 0);
  for (const auto& make : {all_reduce, all_gather, reduce_scatter})
    for (const int64_t bytes :
         {1 << 10, 8 << 10, 64 << 10, 1 << 20, 16 << 20}) {
      const Case c = make(comm, m, mesh, bytes);
      const int64_t repeats = std::max<int64_t>(2, (1 << 21) / bytes);
      std::vector<double> raw, ours, redistribute;
      for (int i = 0; i < rounds; ++i) {
        raw.push_back(seconds(c.raw, repeats));
        ours.push_back(seconds(c.ours, repeats));
        redistribute.push_back(seconds(c.through_redistribute, repeats));
      }
      const Ratio a = ratio(ours, raw), b = ratio(redistribute, raw);
      const auto us = [](std::vector<double> x) {
        std::sort(x.begin(), x.end());
        return fmt::format("{:.2f}", 1e6 * median(x));
      };
      table.add(
          {c.name, std::to_string(bytes), us(raw), us(ours), us(redistribute),
           fmt::format("{:.2f} ({:.2f} - {:.2f})", a.median, a.low, a.high),
           fmt::format("{:.2f} ({:.2f} - {:.2f})", b.median, b.low, b.high)});
    }
  if (rt.rank() == 0) std::fputs(table.to_string().c_str(), stdout);
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  CLI::App app(
      "Collectives of --backend mpi against raw MPI calls; start it with "
      "mpirun --bind-to none -n 2.");
  int rounds = 21;
  app.add_option("--rounds", rounds, "how often each contender runs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  dtensor::RunOptions options;
  options.backend = dtensor::backend_named("mpi");
  try {
    int count = 0, threads = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    options.world = count;
    dtensor::run(options,
                 [&](dtensor::Runtime& rt) { dtensor::compare(rt, rounds); });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
