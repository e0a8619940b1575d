// SPDX-License-Identifier: Apache-2.0
// Compares saving and loading a checkpoint with the disk alone: the same bytes,
// from and to the same memory, in the same number of files.
//
//   bazel run -c opt //tests/bench:checkpoint_bench -- --help
//
// Both sides take turns, and each ratio compares times of one round. Written
// files are synced to the disk, and files are read when the system no longer
// has them in memory. Rounds in which the machine gave its cores to others
// (steal) do not count.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/io/checkpoint.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/text_table.h"
#include "tests/bench/rounds.h"
#include "tests/command_line.h"

namespace dtensor {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 4 << 20;

struct Options {
  int64_t ranks = 2, mib = 256, rounds = 11;
  double steal = 1;  // percent
  std::string dir = (fs::temp_directory_path() / "checkpoint_bench").string();
};

// Clock ticks of all cores since the machine was started.
struct Ticks {
  int64_t all = 0, stolen = 0;
};
Ticks ticks() {
  std::ifstream f("/proc/stat");
  std::string cpu;
  f >> cpu;
  Ticks t;
  int64_t n;
  for (int i = 0; i < 8 && f >> n; ++i) {
    t.all += n;
    if (i == 7) t.stolen = n;
  }
  return t;
}

class RawFile {
 public:
  RawFile(const std::string& path, int flags)
      : path_(path), file_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    DT_CHECK(file_ >= 0, "bench", "{} cannot be opened", path);
  }
  ~RawFile() { ::close(file_); }
  void write(const char* from, int64_t bytes, int64_t to) {
    for (int64_t at = 0; at < bytes; at += kBlock) {
      const int64_t n = std::min(kBlock, bytes - at);
      DT_CHECK(::pwrite(file_, from + at, size_t(n), to + at) == n, "bench",
               "{} cannot be written", path_);
    }
  }
  void sync() {
    DT_CHECK(::fsync(file_) == 0, "bench", "{} cannot be synced", path_);
  }
  void read(char* to, int64_t bytes, int64_t from) {
    for (int64_t at = 0; at < bytes; at += kBlock) {
      const int64_t n = std::min(kBlock, bytes - at);
      DT_CHECK(::pread(file_, to + at, size_t(n), from + at) == n, "bench",
               "{} cannot be read", path_);
    }
  }
  // Drops the file from the system's memory.
  void forget() { (void)::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED); }

 private:
  std::string path_;
  int file_;
};

struct Round {
  double raw_write, save, raw_read, load, stolen;
};

std::vector<Round> measure(const Options& o) {
  std::vector<Round> rounds;
  run(o.ranks, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    Communicator& comm = rt.context().communicator(mesh, mesh.all_axes());
    // Four tensors, split over the ranks.
    std::vector<NamedTensor> tensors;
    const int64_t rows = (o.mib << 20) / 4 / 4 / 1024;
    for (const char* name : {"a", "b", "c", "d"}) {
      Tensor part = Tensor::empty({rows, 1024}, DType::kF32);
      float* p = part.mutable_ptr<float>();
      for (int64_t i = 0; i < part.numel(); ++i)
        p[i] = static_cast<float>(i * 31 + rt.rank());
      tensors.push_back({name, DistTensor::from_local(part, mesh, "S0",
                                                      {rows * o.ranks, 1024})});
    }
    const std::string raw = fmt::format("{}/raw-{}", o.dir, rt.rank());
    const int64_t bytes = tensors[0].tensor.local().bytes();
    const auto timed = [&](const std::function<void()>& fn) {
      comm.barrier({.kind = StepKind::kBarrier, .op = "benchmark"});
      const auto start = std::chrono::steady_clock::now();
      fn();
      comm.barrier({.kind = StepKind::kBarrier, .op = "benchmark"});
      const std::chrono::duration<double> took =
          std::chrono::steady_clock::now() - start;
      return took.count();
    };
    for (int64_t round = -1; round < o.rounds; ++round) {  // the first warms up
      const std::string path = fmt::format("{}/step-{:08}", o.dir, round + 1);
      const Ticks before = ticks();
      Round r;
      r.raw_write = timed([&] {
        RawFile file(raw, O_WRONLY | O_CREAT | O_TRUNC);
        int64_t at = 0;
        for (const NamedTensor& t : tensors) {
          file.write(t.tensor.local().ptr<char>(), bytes, at);
          at += bytes;
        }
        file.sync();
      });
      r.save = timed([&] { save_checkpoint(o.dir, round + 1, tensors, {}); });
      const auto forget = [&](const std::string& file) {
        RawFile(file, O_RDONLY).forget();
      };
      forget(raw);
      forget(fmt::format("{}/rank-{:05}.safetensors", path, rt.rank()));
      r.raw_read = timed([&] {
        RawFile file(raw, O_RDONLY);
        std::vector<Tensor> all;
        int64_t at = 0;
        for (size_t i = 0; i < tensors.size(); ++i) {
          all.push_back(Tensor::empty({bytes}, DType::kBool));
          file.read(all.back().mutable_ptr<char>(), bytes, at);
          at += bytes;
        }
      });
      r.load = timed([&] {
        const CheckpointReader saved(path);
        std::vector<CheckpointRequest> requests;
        for (const NamedTensor& t : tensors)
          requests.push_back({t.name, mesh, "S0"});
        saved.read(requests);
      });
      if (rt.rank() == 0) fs::remove_all(path);
      fs::remove(raw);
      const Ticks after = ticks();
      r.stolen = double(after.stolen - before.stolen) /
                 std::max<double>(1, double(after.all - before.all));
      if (rt.rank() == 0 && round >= 0) rounds.push_back(r);
    }
  });
  return rounds;
}

void print(const Options& o, const std::vector<Round>& all) {
  std::vector<Round> rounds;
  for (const Round& r : all)
    if (100 * r.stolen <= o.steal) rounds.push_back(r);
  fmt::print(
      "{} ranks, {} MiB each, {}; {} of {} rounds count, of the others "
      "more than {} % was stolen\n",
      o.ranks, o.mib, o.dir, rounds.size(), all.size(), o.steal);
  if (rounds.empty()) return;
  TextTable table("lrrrrr", {"", "disk alone GB/s", "checkpoint GB/s", "ratio",
                             "least", "most"});
  const double bytes = double(o.ranks) * double(o.mib << 20);
  const auto add = [&](const char* name, double Round::*raw,
                       double Round::*own) {
    std::vector<double> a, b, ratio;
    for (const Round& r : rounds) {
      a.push_back(bytes / r.*raw / 1e9);
      b.push_back(bytes / r.*own / 1e9);
      ratio.push_back(r.*raw / r.*own);
    }
    for (auto* v : {&a, &b, &ratio}) std::sort(v->begin(), v->end());
    const auto text = [](double x) { return fmt::format("{:.2f}", x); };
    table.add({name, text(median(a)), text(median(b)), text(median(ratio)),
               text(ratio.front()), text(ratio.back())});
  };
  add("save", &Round::raw_write, &Round::save);
  add("load", &Round::raw_read, &Round::load);
  std::fputs(table.to_string().c_str(), stdout);
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  dtensor::Flags flags;
  dtensor::Options o;
  flags.add("--ranks", &o.ranks, "thread ranks", 1, INT_MAX);
  flags.add("--mib", &o.mib, "of each rank", 1, INT_MAX);
  flags.add("--rounds", &o.rounds, "how often each side runs", 1, INT_MAX);
  flags.add("--steal", &o.steal,
            "rounds in which more percent of the cores' time went to others do "
            "not count",
            0);
  flags.add("--dir", &o.dir, "a folder on the disk, made and removed",
            dtensor::TextKind::kFolder);
  const char* about =
      "Saving and loading a checkpoint against writing (with fsync) and "
      "reading the same bytes: the rate of the disk alone, that of the "
      "checkpoint, and their ratio, as the median of the rounds and their "
      "span.";
  return parse_and_run(flags, about, argc, argv, [&] {
    if (std::filesystem::exists(o.dir))
      dtensor::fail("bench", "{} is there already; name a new folder", o.dir);
    std::filesystem::create_directories(o.dir);
    dtensor::print(o, dtensor::measure(o));
    std::filesystem::remove_all(o.dir);
    return 0;
  });
}
