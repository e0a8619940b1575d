// SPDX-License-Identifier: Apache-2.0
// Every pair of layouts: the result is exact, the bytes that the copying loops
// counted are the bytes that were planned, and no rank ever holds more than
// source, destination and one block.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/placement/plan.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/late_device.h"
#include "tests/dtensor/message_passing.h"
#include "tests/mpirun.h"

namespace dtensor {
namespace {

// All layouts that give each axis one of {R, S0, S1, S2, P}, with the axes of a
// dimension in their natural order and in reverse.
std::vector<Layout> all_layouts(const Mesh& mesh, const Shape& shape) {
  const int n = mesh.num_axes();
  std::vector<int> order;
  for (int a = 0; a < n; ++a) order.push_back(a);
  std::vector<Layout> all;
  bool reversed = false;
  do {
    std::vector<int> choice(static_cast<size_t>(n), 0);
    for (;;) {
      Layout l;
      std::vector<std::vector<int>> axes(3);
      for (int a : order) {
        const int c = choice[static_cast<size_t>(a)];
        if (c == 1) l.partials.push_back({a, ReduceOp::kSum});
        if (c >= 2) axes[static_cast<size_t>(c - 2)].push_back(a);
      }
      for (int d = 0; d < 3; ++d)
        l.dims.push_back(
            Dim(shape[d], Split::over(axes[static_cast<size_t>(d)])));
      l = l.canonical(mesh);
      if (std::find(all.begin(), all.end(), l) == all.end()) all.push_back(l);
      int i = 0;
      while (i < n && ++choice[static_cast<size_t>(i)] == 5)
        choice[static_cast<size_t>(i++)] = 0;
      if (i == n) break;
    }
    std::reverse(order.begin(), order.end());
    reversed = !reversed;
  } while (reversed);
  return all;
}

int64_t value(int64_t i) { return (i * 7) % 23 - 9; }

// The factor of this rank's partial sum: on each partial axis, all ranks but
// the last have -2 times the value, and the last rank has what is missing.
int64_t share(const Spec* spec, const Coord& at) {
  int64_t scale = 1;
  for (const Partial& p : spec->layout().partials) {
    const int64_t n = spec->mesh().axis_size(p.axis);
    scale *= at[p.axis] + 1 < n ? -2 : 2 * (n - 1) + 1;
  }
  return scale;
}

template <class T>
Tensor part_of(const Shape& local, const Region& region, const Shape& shape,
               int64_t scale) {
  std::vector<T> values;
  for (const Interval& a : region[0])
    for (int64_t i = a.lo; i < a.hi; ++i)
      for (const Interval& b : region[1])
        for (int64_t j = b.lo; j < b.hi; ++j)
          for (const Interval& c : region[2])
            for (int64_t k = c.lo; k < c.hi; ++k)
              values.push_back(static_cast<T>(
                  scale * value((i * shape[1] + j) * shape[2] + k)));
  return Tensor::from(local, values.data());
}

using Bytes = std::vector<char>;
// Copies the tensor's bytes to `in`, whose memory is reused, and returns it.
const Bytes& bytes_of(const Tensor& t, Bytes& in) {
  in.resize(static_cast<size_t>(t.bytes()));
  t.to_host(in.data());
  return in;
}

// How the ranks reach each other: as threads on the CPU, through messages, in
// processes of two ranks, as threads on one device whose work runs later, as
// processes of mpirun.
enum class Over { kMemory, kMessages, kProcesses, kRecording, kGpu, kMpi };

struct Case {
  const char* mesh;
  Shape shape;
  DType dtype;
  int64_t block;
  bool free_messages;  // no latency: then bytes are all that counts
  int stride;          // every stride-th pair, unless all are asked for
  Over over = Over::kMemory;
};

// All pairs take some minutes: --test_env=DTENSOR_EVERY_PAIR=1.
bool every_pair() { return std::getenv("DTENSOR_EVERY_PAIR") != nullptr; }

// The results of all ranks for one pair: the bytes of each collective, the
// memory beyond the bound, the number of wrong parts, and the number of
// collectives.
struct Seen {
  static constexpr size_t kSteps = 12;
  std::array<std::atomic<int64_t>, kSteps> counted{}, predicted{};
  std::atomic<int64_t> beyond{0}, wrong{0}, steps{0};
};

// Combines the results of all processes, in every process.
void gather(std::vector<Seen>& seen) {
  struct Told {
    int64_t counted[Seen::kSteps], predicted[Seen::kSteps], beyond, wrong,
        steps;
  };
  const auto most = [](std::atomic<int64_t>& a, int64_t b) {
    int64_t now = a;
    while (now < b && !a.compare_exchange_weak(now, b)) {
    }
  };
  std::vector<Told> mine(seen.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t e = 0; e < Seen::kSteps; ++e) {
      mine[i].counted[e] = seen[i].counted[e];
      mine[i].predicted[e] = seen[i].predicted[e];
    }
    mine[i].beyond = seen[i].beyond;
    mine[i].wrong = seen[i].wrong;
    mine[i].steps = seen[i].steps;
  }
  for (const std::string& bytes :
       all_gather_bytes("seen", 0,
                        {reinterpret_cast<const char*>(mine.data()),
                         mine.size() * sizeof(Told)})) {
    std::vector<Told> theirs(seen.size());
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      for (size_t e = 0; e < Seen::kSteps; ++e) {
        most(seen[i].counted[e], theirs[i].counted[e]);
        most(seen[i].predicted[e], theirs[i].predicted[e]);
      }
      most(seen[i].beyond, theirs[i].beyond);
      most(seen[i].wrong, theirs[i].wrong);
      most(seen[i].steps, theirs[i].steps);
    }
  }
}

class RedistributePairs : public ::testing::TestWithParam<Case> {};

TEST_P(RedistributePairs, AreExactAndWithinBounds) {
  const Case& k = GetParam();
  const Mesh mesh = Mesh::parse(k.mesh);
  const std::vector<Layout> layouts = all_layouts(mesh, k.shape);
  std::vector<SpecRef> specs;
  for (const Layout& l : layouts)
    specs.push_back(Spec::get(mesh, k.shape, l, k.dtype));
  RunOptions options;
  options.world = mesh.num_ranks();
  options.cost.block_bytes = k.block;
  if (k.over == Over::kMessages)
    options.backend = testing::message_passing_backend;
  if (k.over == Over::kProcesses) options.backend = testing::processes_of_2;
  std::shared_ptr<Device> device;
  if (k.over == Over::kRecording || k.over == Over::kGpu) {
    device = make_device(k.over == Over::kGpu ? LateDevice::kGpu
                                              : LateDevice::kRecording);
    if (!device) GTEST_SKIP() << no_gpu();
    options.device = [&](int64_t) -> Device& { return *device; };
  }
  if (k.free_messages) {
    AxisCost free_axis;
    free_axis.alpha_ps = 0;
    options.cost.axes.assign(static_cast<size_t>(mesh.num_axes()), free_axis);
  }
  std::vector<std::pair<SpecRef, SpecRef>> pairs;
  size_t number = 0, stride = every_pair() ? 1 : static_cast<size_t>(k.stride);
  for (const Spec* from : specs)
    for (const Spec* to : specs)
      if (number++ % stride == 0) pairs.push_back({from, to});
  std::vector<Seen> seen(pairs.size());
  std::vector<Bytes> exhibits(static_cast<size_t>(options.world));

  run(options, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    const Coord& at = ctx.coordinate(mesh);
    const auto rank = static_cast<size_t>(rt.rank());
    auto part_of_value = [&](const Spec* s, int64_t scale) {
      const auto make =
          k.dtype == DType::kF32 ? part_of<float> : part_of<int64_t>;
      return make(s->local_shape(at), s->region(at), k.shape, scale);
    };
    // This rank's part of the value times `scale`. Parts with scale 1 are kept.
    std::map<SpecRef, Tensor> parts;
    auto part = [&](const Spec* s, int64_t scale) {
      if (scale != 1) return part_of_value(s, scale);
      Tensor& t = parts[s];
      if (!t.defined()) t = part_of_value(s, 1);
      return t;
    };
    Communicator& all = ctx.communicator(mesh, mesh.all_axes());
    const Call meeting{StepKind::kBarrier, "test"};
    ctx.record = true;
    Bytes got, whole;
    std::vector<std::string> theirs;
    const Spec* last = nullptr;
    Tensor source;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto [from, to] = pairs[i];
      Seen& s = seen[i];
      if (from != last) source = part(from, share(from, at));
      last = from;
      const Tensor expected =
          to->partial_axes() ? Tensor() : part(to, share(to, at));
      ctx.events.clear();
      const int64_t before = ctx.allocator->stats().current_bytes;
      ctx.allocator->reset_peak();
      Tensor moved = redistribute_local(source, from, to);
      const int64_t peak = ctx.allocator->stats().peak_bytes - before;
      const int64_t beyond = peak - moved.bytes() - k.block;
      if (beyond > 0) s.beyond = beyond;
      if (moved.storage() != source.storage() &&
          moved.storage()->bytes() != moved.bytes())
        ++s.wrong;
      s.steps = static_cast<int64_t>(ctx.events.size());
      for (size_t e = 0; e < ctx.events.size() && e < Seen::kSteps; ++e) {
        s.predicted[e] = ctx.events[e].predicted;
        int64_t most = s.counted[e];
        while (
            most < ctx.events[e].counted &&
            !s.counted[e].compare_exchange_weak(most, ctx.events[e].counted)) {
        }
      }
      if (!to->partial_axes()) {
        if (moved.shape() != expected.shape() ||
            bytes_of(moved, got) != bytes_of(expected, whole))
          ++s.wrong;
        continue;
      }
      // The ranks of a sum add up each other's parts, each for its share of the
      // elements.
      bytes_of(moved, exhibits[rank]);
      if (k.over == Over::kMpi) {
        const std::vector<std::string> shown = all_gather_bytes(
            "exhibits", 0, {exhibits[rank].data(), exhibits[rank].size()});
        theirs.assign(shown.begin(), shown.end());
      } else {
        all.barrier(meeting);
      }
      const std::vector<int64_t> group = mesh.group(to->partial_axes(), at);
      bytes_of(part(to, 1), whole);
      const int64_t n = moved.numel(), p = static_cast<int64_t>(group.size());
      int64_t me = 0;
      while (group[static_cast<size_t>(me)] != mesh.rank(at)) ++me;
      bool good = true;
      visit(k.dtype, [&]<class T>() {
        if constexpr (std::is_same_v<T, float> || std::is_same_v<T, int64_t>) {
          const auto in = [](const auto& bytes, int64_t i) {
            T x;
            std::memcpy(&x, bytes.data() + i * size_of(dtype_of<T>), sizeof(T));
            return x;
          };
          for (int64_t x = n * me / p; x < n * (me + 1) / p; ++x) {
            T sum = 0;
            for (int64_t r : group)
              sum += k.over == Over::kMpi
                         ? in(theirs[static_cast<size_t>(r)], x)
                         : in(exhibits[static_cast<size_t>(r)], x);
            good &= sum == in(whole, x);
          }
        }
      });
      if (!good) ++s.wrong;
      if (k.over != Over::kMpi) all.barrier(meeting);
    }
    if (k.over == Over::kMpi) gather(seen);
  });
  if (device) {
    EXPECT_GT(device->waits(), 0);
  }
  if (const auto* late = dynamic_cast<RecordingDevice*>(device.get())) {
    EXPECT_EQ(late->synchronized(), 0);
  }

  int64_t collectives = 0, shown = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [from, to] = pairs[i];
    const Seen& s = seen[i];
    ASSERT_LE(static_cast<size_t>(s.steps), Seen::kSteps);
    bool counts = true;
    std::string steps;
    int64_t bytes = 0;
    for (size_t e = 0; e < static_cast<size_t>(s.steps); ++e) {
      counts &= s.counted[e] == s.predicted[e];
      bytes += s.counted[e];
      steps += " planned " + std::to_string(s.predicted[e]) + ", counted " +
               std::to_string(s.counted[e]) + ";";
    }
    collectives += s.steps;
    const auto bound = lower_bound_bytes(from, to);
    const bool least = !k.free_messages || !bound || bytes == *bound;
    if (counts && least && s.beyond == 0 && s.wrong == 0) continue;
    if (++shown > 10) continue;
    ADD_FAILURE() << from->to_string() << " -> " << to->to_string() << ": "
                  << s.wrong << " wrong, " << s.beyond << " bytes beyond,"
                  << steps << (least ? "" : " more than the lower bound ")
                  << (bound ? *bound : -1);
    for (const Step& step : plan(from, to, options.cost).steps)
      std::cout << "  " << to_string(step) << "\n";
  }
  EXPECT_EQ(shown, 0) << "of " << pairs.size() << " pairs";
  std::cout << k.mesh << " " << to_string(k.shape) << ": " << pairs.size()
            << " pairs, " << collectives << " collectives\n";
}

constexpr int64_t kMiB = 1 << 20, kKiB = 1 << 10;

// All pairs on two axes, and of small tensors on three axes. Cases that take
// long have a sample of the pairs: large tensors in small blocks or on three
// axes, and messages without latency on three axes.
std::vector<Case> all_pairs() {
  std::vector<Case> list;
  for (const char* mesh : {"2x3", "2x4", "4x4", "2x2x2"}) {
    const bool three = std::string(mesh) == "2x2x2";
    for (bool free_messages : {false, true}) {
      const int64_t block = free_messages ? kKiB : kMiB;
      const auto add = [&](const Shape& shape, DType dtype, int every) {
        list.push_back({mesh, shape, dtype, block, free_messages, every});
      };
      const int some = free_messages ? 7 : 1, few = three ? some : 1;
      add({64, 64, 64}, DType::kF32, three ? 97 : some);
      add({5, 7, 3}, DType::kI64, few);
      add({1, 9, 2}, DType::kF32, few);
      add({0, 4, 4}, DType::kI64, few);
    }
  }
  return list;
}

// All pairs of small tensors on two axes, and a sample of the others.
std::vector<Case> sampled(Over over) {
  std::vector<Case> list;
  for (const char* mesh : {"2x2", "2x3", "2x2x2"})
    for (bool free_messages : {false, true}) {
      const int stride = std::string(mesh) == "2x2x2" ? 127 : 1;
      const auto add = [&](const Shape& shape, DType dtype, int every) {
        list.push_back({mesh, shape, dtype, free_messages ? kKiB : kMiB,
                        free_messages, every, over});
      };
      add({5, 7, 3}, DType::kI64, stride);
      add({1, 9, 2}, DType::kF32, stride);
      add({16, 12, 10}, DType::kF32, 7 * stride);
    }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Meshes, RedistributePairs,
                         ::testing::ValuesIn(all_pairs()));
INSTANTIATE_TEST_SUITE_P(Messages, RedistributePairs,
                         ::testing::ValuesIn(sampled(Over::kMessages)));
INSTANTIATE_TEST_SUITE_P(Processes, RedistributePairs,
                         ::testing::ValuesIn(sampled(Over::kProcesses)));
INSTANTIATE_TEST_SUITE_P(Recording, RedistributePairs,
                         ::testing::ValuesIn(sampled(Over::kRecording)));
INSTANTIATE_TEST_SUITE_P(Gpu, RedistributePairs,
                         ::testing::ValuesIn(sampled(Over::kGpu)));

// The tests "Mpi/" run only under mpirun, which the tests "Mpirun." start.
std::vector<Case> of_four() {
  std::vector<Case> list;
  for (const Shape& shape : {Shape{5, 7, 3}, {1, 9, 2}, {0, 4, 4}})
    for (const char* mesh : {"2x2", "4", "3"})
      list.push_back({mesh, shape, DType::kI64, kMiB, false, 3, Over::kMpi});
  list.push_back(
      {"2x2", {64, 64, 64}, DType::kF32, kMiB, false, 37, Over::kMpi});
  return list;
}
INSTANTIATE_TEST_SUITE_P(Mpi, RedistributePairs,
                         ::testing::ValuesIn(of_four()));

TEST(Mpirun, PairsOnFourProcesses) { testing::run_mpi_tests(4, 1); }
TEST(Mpirun, PairsThroughMessagesOfMpi) {
  testing::run_mpi_tests(4, 1, "DTENSOR_MPI_SHARED_MEMORY=0");
}
TEST(Mpirun, PairsOnTwoProcessesOfTwoRanks) { testing::run_mpi_tests(2, 2); }

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  return dtensor::testing::main_with_mpi_tests(argc, argv);
}
