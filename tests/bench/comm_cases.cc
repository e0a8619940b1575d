// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/comm_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "dtensor/autograd.h"
#include "dtensor/device/streaming.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/placement/step_schedule.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"
#include "dtensor/text_table.h"

namespace dtensor {

// Turns the agreement off, which no public function of the library does.
struct WithoutAgreement {
  explicit WithoutAgreement(Communicator& c) : comm(c) { comm.agrees_ = false; }
  ~WithoutAgreement() { comm.agrees_ = true; }
  Communicator& comm;
};

namespace {

using Kind = CommCase::Kind;
constexpr int64_t kLeastBlock = 4096;  // elements

std::string bytes_text(int64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MB", bytes >> 20);
  if (bytes >= 1 << 10) return fmt::format("{} KB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

struct Layouts {
  const Spec *from, *to;
};
Layouts layouts(const CommCase& c) {
  const Mesh mesh = Mesh::parse(std::to_string(c.ranks));
  const auto of = [&](std::vector<Dim> dims, std::vector<Partial> partials) {
    Shape shape;
    for (const Dim& d : dims) shape.push_back(d.size());
    return Spec::get(mesh, shape, {std::move(dims), std::move(partials)},
                     DType::kF32);
  };
  const Dim whole(c.n), cut(c.n, Split::over({0}));
  const std::vector<Partial> sum{{0, ReduceOp::kSum}};
  switch (c.kind) {
    case Kind::kAllReduce:
      return {of({whole}, sum), of({whole}, {})};
    case Kind::kAllGather:
      return {of({cut}, {}), of({whole}, {})};
    case Kind::kReduceScatter:
      return {of({whole}, sum), of({cut}, {})};
    case Kind::kTurn:
      return {of({cut, whole}, {}), of({whole, cut}, {})};
    case Kind::kTurnBack:
      return {of({whole, cut}, {}), of({cut, whole}, {})};
    case Kind::kBarrier:
      break;
  }
  return {};
}

Tensor part(const Spec* spec, int rank) {
  Tensor t = Tensor::empty(spec->local_shape(spec->mesh().coordinate(rank)),
                           spec->dtype());
  t.fill(0);
  return t;
}

template <class Fn>
std::function<double()> repeated(int64_t times, Fn fn) {
  return [=] {
    for (int64_t i = 0; i < times; ++i) fn();
    return -1.;
  };
}

// d[i] = a[i] + b[i], and the same in `second` unless it is null. If
// `streamed`, it writes past the cache, as copies of so many bytes do.
void add(float* d, float* second, const float* a, const float* b, int64_t n,
         bool streamed) {
  alignas(64) float block[kLeastBlock];
  float* sum = streamed ? block : d;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
  const int64_t bytes = n * static_cast<int64_t>(sizeof(float));
  for (float* to : {d, second}) {
    if (!to || to == sum) continue;
    if (streamed)
      stream_bytes(reinterpret_cast<char*>(to), reinterpret_cast<char*>(sum),
                   bytes);
    else
      std::memcpy(to, sum, static_cast<size_t>(bytes));
  }
}

// The tensors and the schedule of a case.
struct State {
  Layouts layout;
  Tensor src, dst, other, least[4];
  Schedule schedule;
};

// Each rank's share of reading every input once and writing every output once,
// in blocks that stay in the cache and without waiting for anybody. (How the
// ranks share that does not change the total.)
void least(State& s, const CommCase& c) {
  const int64_t n = c.elements() / c.ranks;
  const bool streamed = s.dst.bytes() >= kStreamedBytes;
  const auto at = [&](int i) {
    return s.least[i].defined() ? s.least[i].mutable_ptr<float>() : nullptr;
  };
  float *a = at(0), *b = at(1), *d = at(2), *e = at(3);
  for (int64_t i = 0; i < n; i += kLeastBlock)
    add(d + i, e ? e + i : nullptr, a + i, b + i, std::min(kLeastBlock, n - i),
        streamed);
  if (streamed) streaming_fence();
}

std::vector<Contender> contenders(const CommCase& c, Communicator& comm) {
  if (c.kind == Kind::kBarrier)
    return {{"barrier", repeated(c.repeats, [&comm] {
               comm.barrier({StepKind::kBarrier, "benchmark"});
             })}};
  const int me = comm.rank();
  auto s = std::make_shared<State>();
  s->layout = layouts(c);
  const auto [from, to] = s->layout;
  s->src = part(from, me);
  s->dst = part(to, me);
  s->other = part(to, me);
  std::vector<Contender> list{
      {"memcpy of the local bytes", repeated(c.repeats, [s] {
         std::memcpy(s->dst.mutable_data(), s->other.data(),
                     static_cast<size_t>(s->dst.bytes()));
       })}};
  const bool whole = c.kind == Kind::kAllReduce;
  if ((whole || c.kind == Kind::kReduceScatter) && c.ranks == 2) {
    for (int i = 0; i < (whole ? 4 : 3); ++i) {
      s->least[i] = Tensor::empty(Shape{c.elements() / c.ranks}, DType::kF32);
      s->least[i].fill(0);
    }
    list.push_back(
        {"least traffic", repeated(c.repeats, [s, c] { least(*s, c); })});
  }
  if (whole) {
    list.push_back({"Communicator", repeated(c.repeats, [s, &comm] {
                      comm.all_reduce({StepKind::kAllReduce, "benchmark"}, {},
                                      ReduceOp::kSum, DType::kF32,
                                      s->dst.mutable_data(), s->dst.numel());
                    })});
  } else {
    const StepKind kind = c.kind == Kind::kAllGather ? StepKind::kAllGather
                          : c.kind == Kind::kReduceScatter
                              ? StepKind::kReduceScatter
                              : StepKind::kAllToAll;
    s->schedule = schedule(
        {.kind = kind, .axes = from->mesh().all_axes(), .from = from, .to = to},
        me);
    list.push_back({"Communicator", repeated(c.repeats, [s, kind, &comm] {
                      Transfer t{.schedule = &s->schedule,
                                 .dtype = DType::kF32,
                                 .src = s->src.data(),
                                 .src_strides = s->src.strides(),
                                 .dst = s->dst.mutable_data(),
                                 .dst_strides = s->dst.strides()};
                      if (kind == StepKind::kReduceScatter)
                        comm.reduce({kind, "benchmark"}, {}, {&t, 1});
                      else
                        comm.exchange({kind, "benchmark"}, {}, {&t, 1});
                    })});
  }
  // Each time a new tensor: the result of an earlier move would be reused.
  list.push_back(
      {"redistribute", repeated(c.repeats, [s] {
         DistTensor::wrap(s->src, s->layout.from).redistribute(s->layout.to);
       })});
  // The tensor is given away, as a product is that is summed up at once.
  if (whole)
    list.push_back({"redistribute in place", repeated(c.repeats, [s] {
                      s->src =
                          DistTensor::wrap(std::move(s->src), s->layout.from)
                              .redistribute(s->layout.to)
                              .local();
                    })});
  return list;
}

}  // namespace

int64_t CommCase::elements() const {
  return kind == Kind::kTurn || kind == Kind::kTurnBack ? n * n : n;
}

std::string CommCase::name() const {
  const std::string size = bytes_text(elements() * 4);
  switch (kind) {
    case Kind::kAllReduce:
      return "all-reduce " + size;
    case Kind::kAllGather:
      return "all-gather " + size;
    case Kind::kReduceScatter:
      return "reduce-scatter " + size;
    case Kind::kTurn:
      return fmt::format("S0 -> S1 {}x{}", n, n);
    case Kind::kTurnBack:
      return fmt::format("S1 -> S0 {}x{}", n, n);
    case Kind::kBarrier:
      break;
  }
  return fmt::format("barrier of {}", ranks);
}

std::vector<CommCase> comm_cases() {
  constexpr int64_t kMB = (1 << 20) / 4;  // elements
  return {{Kind::kAllReduce, 2, 1, 2000},
          {Kind::kAllReduce, 2, 256, 2000},
          {Kind::kAllReduce, 2, 16 << 8, 500},
          {Kind::kAllReduce, 2, 64 << 8, 200},
          {Kind::kAllReduce, 2, kMB, 20},
          {Kind::kAllReduce, 2, 16 * kMB, 2},
          {Kind::kAllGather, 2, 16 * kMB, 2},
          {Kind::kReduceScatter, 2, 16 * kMB, 2},
          {Kind::kTurn, 2, 2048, 1},
          {Kind::kTurnBack, 2, 2048, 1},
          {Kind::kBarrier, 2, 0, 2000},
          {Kind::kBarrier, 8, 0, 200},
          {Kind::kAllReduce, 4, 256, 200},
          {Kind::kAllReduce, 4, kMB, 10}};
}

void compare_collectives(int64_t rounds, const std::string& only,
                         const Rivals& rivals) {
  TextTable table("lrlrrrlr",
                  {"case", "ranks", "contender", "median us", "/ memcpy",
                   "/ redistribute", "quartiles", "fastest / its"});
  int64_t dropped = 0, taken = 0;
  for (const CommCase& c : comm_cases()) {
    if (c.name().find(only) == std::string::npos) continue;
    run_threads(c.ranks, [&](Runtime& rt) {
      const Mesh mesh = rt.mesh();
      Communicator& comm = rt.context().communicator(mesh, mesh.all_axes());
      auto list = contenders(c, comm);
      size_t ours = 0;
      while (ours + 1 < list.size() && list[ours].name != "redistribute")
        ++ours;
      for (Contender& rival : rivals(c, rt)) list.push_back(std::move(rival));
      const Turns turns = take_rounds(comm, list, rounds);
      if (rt.rank() != 0) return;
      dropped += turns.dropped;
      taken += rounds;
      const auto fastest = [&](size_t i) {
        return *std::min_element(turns.times[i].begin(), turns.times[i].end());
      };
      for (size_t i = 0; i < list.size(); ++i) {
        auto sorted = turns.times[i];
        std::sort(sorted.begin(), sorted.end());
        const Ratio to_memcpy = ratio(turns.times[i], turns.times[0]),
                    to_ours = ratio(turns.times[i], turns.times[ours]);
        table.add({i == 0 ? c.name() : "",
                   i == 0 ? std::to_string(c.ranks) : "", list[i].name,
                   fmt::format("{:.2f}", median(sorted) * 1e6 /
                                             static_cast<double>(c.repeats)),
                   fmt::format("{:.2f}", to_memcpy.median),
                   fmt::format("{:.2f}", to_ours.median),
                   fmt::format("{:.2f} - {:.2f}", to_ours.low, to_ours.high),
                   fmt::format("{:.2f}", fastest(i) / fastest(ours))});
      }
    });
  }
  std::fputs(table.to_string().c_str(), stdout);
  std::printf("(%ld of %ld rounds dropped: others took the machine)\n", dropped,
              taken);
}

void compare_matmul(int64_t rounds) {
  constexpr int64_t kSize = 1024;
  TextTable table(
      "lrrl", {"x of S0, matmul(x, w)", "median us", "/ w whole", "quartiles"});
  run_threads(2, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const Dim whole(kSize), cut(kSize, Split::over({0}));
    const auto of = [&](Dim rows, Dim columns) {
      return Spec::get(mesh, Shape{kSize, kSize}, {{rows, columns}, {}},
                       DType::kF32);
    };
    const int me = static_cast<int>(rt.rank());
    const Spec* x_spec = of(cut, whole);
    const DistTensor x = DistTensor::wrap(part(x_spec, me), x_spec);
    std::vector<Contender> list;
    const Tensor w = part(of(whole, whole), me);
    list.push_back({"w whole", repeated(1, [=] {
                      matmul(x, DistTensor::wrap(w, of(whole, whole)));
                    })});
    for (const auto& [name, spec] : {std::pair("w of S0", of(cut, whole)),
                                     std::pair("w of S1", of(whole, cut))}) {
      const Tensor w_part = part(spec, me);
      list.push_back(
          {fmt::format("{}, gathered", name), repeated(1, [=, s = spec] {
             matmul(x,
                    DistTensor::wrap(w_part, s).redistribute(of(whole, whole)));
           })});
      const DistTensor lies = DistTensor::wrap(w_part, spec).gather_on_use({});
      list.push_back({fmt::format("{}, where it lies", name), repeated(1, [=] {
                        const NoGrad no_grad;
                        matmul(x, lies);
                      })});
    }
    const Turns turns = take_rounds(
        rt.context().communicator(mesh, mesh.all_axes()), list, rounds);
    if (rt.rank() != 0) return;
    for (size_t i = 0; i < list.size(); ++i) {
      auto sorted = turns.times[i];
      std::sort(sorted.begin(), sorted.end());
      const Ratio r = ratio(turns.times[i], turns.times[0]);
      table.add({list[i].name, fmt::format("{:.1f}", median(sorted) * 1e6),
                 fmt::format("{:.3f}", r.median),
                 fmt::format("{:.3f} - {:.3f}", r.low, r.high)});
    }
  });
  std::fputs(table.to_string().c_str(), stdout);
}

void compare_agreement(int64_t rounds) {
  TextTable table("lrrrl", {"redistribute, P -> R", "with us", "without us",
                            "with/", "quartiles"});
  run_threads(2, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    Communicator& comm = rt.context().communicator(mesh, mesh.all_axes());
    for (int64_t bytes = 4; bytes <= int64_t{16} << 20; bytes *= 4) {
      const CommCase c{.kind = Kind::kAllReduce, .ranks = 2, .n = bytes / 4};
      const Layouts move = layouts(c);
      const Tensor t = part(move.from, comm.rank());
      const int64_t repeats =
          std::max<int64_t>(1, std::min<int64_t>(5000, (8 << 20) / bytes));
      const auto once = repeated(repeats, [t, move] {
        DistTensor::wrap(t, move.from).redistribute(move.to);
      });
      const auto without = [&] {
        const WithoutAgreement none(comm);
        return once();
      };
      // Each of the two comes first once, so that the order does not matter.
      Turns turns = take_rounds(comm,
                                {{"with", once},
                                 {"without", without},
                                 {"without", without},
                                 {"with", once}},
                                rounds);
      if (rt.rank() != 0) continue;
      for (size_t i : {0, 1})
        for (size_t round = 0; round < turns.times[i].size(); ++round)
          turns.times[i][round] =
              (turns.times[i][round] + turns.times[3 - i][round]) / 2;
      turns.times.resize(2);
      const Ratio r = ratio(turns.times[0], turns.times[1]);
      std::vector<std::string> row{bytes_text(bytes)};
      for (auto times : turns.times) {
        std::sort(times.begin(), times.end());
        row.push_back(fmt::format(
            "{:.3f}", median(times) * 1e6 / static_cast<double>(repeats)));
      }
      row.push_back(fmt::format("{:.3f}", r.median));
      row.push_back(fmt::format("{:.3f} - {:.3f}", r.low, r.high));
      table.add(std::move(row));
    }
  });
  std::fputs(table.to_string().c_str(), stdout);
}

}  // namespace dtensor
