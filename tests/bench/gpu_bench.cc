// What operators reach of what the device does at its best, measured in turns
// in one run: the same kernel called bare, or a copy of as many bytes.
// gpu_bench.py beside it takes torch's times of the same cases.
//
//   bazel run -c opt //tests/bench:gpu_bench -- --help
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/graph.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizer.h"
#include "dtensor/ops/attention.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "dtensor/rank_context.h"
#include "dtensor/scopes.h"
#include "dtensor/text_table.h"
#include "tests/bench/rounds.h"

namespace dtensor {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Flags {
  std::string cases = "G1,G2,G3,G4,G5,G6,G7,G8", dtype = "bf16";
  int64_t rounds = 15, divide = 1;
};

// A measurement: what it is, how long it took, and how long the best takes.
struct Row {
  std::string name;
  double seconds, best;
  std::string rate;  // "612 TFLOP/s"
  int64_t peak;      // bytes of the first rank, beside what there was before
};

std::string tflops(double flops, double seconds) {
  return fmt::format("{:.1f} TFLOP/s", flops / seconds / 1e12);
}
std::string gbytes(double bytes, double seconds) {
  return fmt::format("{:.0f} GB/s", bytes / seconds / 1e9);
}

// One rank's bench: what it computes on, and how it takes the time.
class Bench {
 public:
  Bench(Runtime& rt, const Flags& flags, std::vector<Row>& rows)
      : mesh(rt.mesh()),
        dtype(parse_dtype(flags.dtype)),
        flags_(flags),
        context_(rt.context()),
        rows_(rows) {}

  const Mesh mesh;
  const DType dtype;

  // A size, divided for devices that are slow.
  int64_t size(int64_t n) const {
    return std::max<int64_t>(8, n / flags_.divide);
  }
  DistTensor random(const Shape& shape, const Placements& p = {}) {
    return randn(shape, mesh, p, dtype, {1, stream_++});
  }
  // One that gradients are taken of.
  DistTensor parameter(const Shape& shape, const Placements& p = {}) {
    DistTensor x = random(shape, p);
    return x.set_requires_grad();
  }
  int64_t divide() const { return flags_.divide; }
  bool has_graphs() const { return context_.device->has_graphs(); }
  const Kernels& kernels() const { return kernels_of(*context_.device); }
  Stream stream() const { return context_.stream; }

  // Both take turns; `work` is in flops, or bytes.
  void compare(const std::string& name, double work, bool is_flops,
               const std::function<void()>& ours,
               const std::function<void()>& best) {
    Communicator& all = context_.communicator(mesh, mesh.all_axes());
    time(ours, 1), time(best, 1);  // what is kept is there
    context_.allocator->reset_peak();
    const int64_t before = context_.allocator->stats().current_bytes;
    const int64_t of_ours = often(all, ours);
    const int64_t peak = context_.allocator->stats().peak_bytes - before;
    const int64_t of_best = often(all, best);
    const auto times =
        take_turns(all,
                   {{"ours", [&] { return time(ours, of_ours); }},
                    {"best", [&] { return time(best, of_best); }}},
                   static_cast<int>(flags_.rounds));
    if (context_.world_rank != 0) return;
    const double seconds = median(times[0]);
    rows_.push_back({name, seconds, median(times[1]),
                     is_flops ? tflops(work, seconds) : gbytes(work, seconds),
                     peak});
  }

  // Of so many bytes, read and written together.
  std::function<void()> copy(double bytes) {
    const int64_t half = std::max<int64_t>(16, static_cast<int64_t>(bytes / 2));
    const Tensor from = Tensor::full({half / 4}, DType::kF32, 1),
                 to = Tensor::empty({half / 4}, DType::kF32);
    return [this, from, to] {
      constexpr int64_t kUnit[] = {1};
      const int64_t shape[] = {from.numel()};
      context_.device->copy(stream(), 4, shape, to.mutable_data(), kUnit,
                            from.data(), kUnit);
    };
  }

 private:
  // Of one call, when there are so many, and the device does what they gave it.
  double time(const std::function<void()>& fn, int64_t times) const {
    const auto start = Clock::now();
    for (int64_t i = 0; i < times; ++i) fn();
    context_.device->synchronize(context_.stream);
    return std::chrono::duration<double>(Clock::now() - start).count() /
           static_cast<double>(times);
  }
  // How many calls take long enough to be timed. The first rank says so for
  // all, whose collectives have to meet.
  int64_t often(Communicator& all, const std::function<void()>& fn) const {
    const Call call{StepKind::kAllGatherBytes, "benchmark"};
    std::vector<char> enough(static_cast<size_t>(all.size()));
    for (int64_t times = 1;; times *= 4) {
      const char mine =
          time(fn, times) * static_cast<double>(times) > 0.02 || times > 4096;
      all.all_gather_bytes(call, &mine, 1, enough.data());
      if (enough[0]) return times;
    }
  }

  const Flags& flags_;
  RankContext& context_;
  std::vector<Row>& rows_;
  uint64_t stream_ = 1;
};

// c = a b, bare.
std::function<void()> product(Bench& b, const Tensor& x, const Tensor& w) {
  kernels::Gemm g{.type = x.dtype(), .c_type = x.dtype()};
  g.m = x.shape()[0], g.k = x.shape()[1], g.n = w.shape()[1];
  g.a_m = x.strides()[0], g.a_k = x.strides()[1];
  g.b_k = w.strides()[0], g.b_n = w.strides()[1];
  const Tensor y = Tensor::empty({g.m, g.n}, x.dtype());
  g.c_m = g.n, g.c_n = 1;
  return [&b, g, x, w, y]() mutable {
    g.a = x.data(), g.b = w.data(), g.c = y.mutable_data();
    b.kernels().run(b.stream(), g);
  };
}

// GPT-2's two layers against their products alone.
void feed_forward(Bench& b) {
  const int64_t s = b.size(8192), h = b.size(2048), ffn = 4 * h;
  const DistTensor x = b.parameter({s, h}), w1 = b.parameter({ffn, h}),
                   b1 = b.parameter({ffn}), w2 = b.parameter({h, ffn}),
                   b2 = b.parameter({h}), dy = b.random({s, h});
  const Tensor between = b.random({s, ffn}).local(), in = x.local(),
               out = dy.local(), up = w1.local(), down = w2.local();
  const std::function<void()> products[] = {
      product(b, in, up.transpose(0, 1)),
      product(b, between, down.transpose(0, 1)),
      product(b, out, down),
      product(b, out.transpose(0, 1), between),
      product(b, between, up),
      product(b, between.transpose(0, 1), in)};
  b.compare(
      fmt::format("G1 feed-forward {} x {} forward and backward", s, h),
      12.0 * static_cast<double>(s) * static_cast<double>(h) *
          static_cast<double>(ffn),
      true,
      [&] {
        const DistTensor y = dtensor::linear(x, w1, b1, Activation::kGeluTanh);
        grad(dtensor::linear(y, w2, b2), {x, w1, b1, w2, b2},
             {.cotangent = dy});
      },
      [&] {
        for (const auto& fn : products) fn();
      });
}

void linear(Bench& b) {
  feed_forward(b);
  for (int64_t n : {2048, 4096, 8192, 16384}) {
    n = b.size(n);
    const DistTensor x = b.random({n, n}), w = b.random({n, n}),
                     dy = b.random({n, n});
    const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) *
                         static_cast<double>(n);
    {
      const NoGrad no_grad;
      b.compare(
          fmt::format("G1 linear {}^3 forward", n), flops, true,
          [&] { matmul(x, w); }, product(b, x.local(), w.local()));
    }
    const auto dx = product(b, dy.local(), w.local().transpose(0, 1)),
               dw = product(b, x.local().transpose(0, 1), dy.local()),
               forward = product(b, x.local(), w.local());
    const DistTensor xp = b.parameter({n, n}), wp = b.parameter({n, n});
    b.compare(
        fmt::format("G1 linear {}^3 forward and backward", n), 3 * flops, true,
        [&] {
          grad(matmul(xp, wp), {xp, wp}, {.cotangent = dy});
        },
        [&] { forward(), dx(), dw(); });
  }
}

// The host's time of an operator that computes next to nothing.
void host_cost(Bench& b) {
  const DistTensor x = b.random({8, 8}), y = b.random({8, 8});
  const NoGrad no_grad;
  const Tensor out = Tensor::empty({8, 8}, x.dtype());
  kernels::Binary sum{
      .index = fn::index_of<fn::Add>,
      .of = {
          .type = x.dtype(), .shape = {64}, .strides = {Shape{1}, Shape{1}}}};
  b.compare(
      "G2 add 8x8 (best: its kernel)", 3 * 64.0 * 2, false, [&] { x + y; },
      [&] {
        sum.of.in = {x.local().data(), y.local().data()};
        sum.of.out = out.mutable_data();
        b.kernels().run(b.stream(), sum);
      });
}

// A small model's training step, replayed and as it is.
void small_step(Bench& b) {
  nn::ModelConfig c{.name = "gpt",
                    .layers = 4,
                    .hidden = 8 * std::max<int64_t>(2, b.size(256) / 8),
                    .heads = 8,
                    .seq = b.size(128),
                    .vocab = 256,
                    .dtype = b.dtype};
  const int64_t batch = std::max<int64_t>(1, 8 / b.divide());
  struct Training {
    Training(const Bench& b, const nn::ModelConfig& c, int64_t batch)
        : model(nn::make_model(c, b.mesh, 1)), optimizer(model->parameters()) {
      const Shape shape = {batch, c.seq};
      in = randint(0, c.vocab, shape, b.mesh, {}, DType::kI64, {1, 1});
      out = randint(0, c.vocab, shape, b.mesh, {}, DType::kI64, {1, 2});
    }
    void step() {
      loss = model->loss(in, out);
      optimizer.step(grad(loss, model->parameters()), {});
    }
    std::unique_ptr<nn::LanguageModel> model;
    nn::AdamW optimizer;
    DistTensor in, out, loss;
  };
  Training eager(b, c, batch), captured(b, c, batch);
  double parameters = 0;
  for (const DistTensor& p : eager.model->parameters())
    parameters += static_cast<double>(numel(p.shape()));
  // What is made once is there.
  for (int i = 0; i < 2; ++i) captured.step();
  Graph graph([&] { captured.step(); });
  b.compare(
      fmt::format("G2 step of a GPT, h={} s={} (best: without a graph)",
                  c.hidden, c.seq),
      6 * parameters * static_cast<double>(batch * c.seq), true,
      [&] { graph.replay(); }, [&] { eager.step(); });
}

void small(Bench& b) {
  host_cost(b);
  if (b.has_graphs()) small_step(b);
}

void memory_bound(Bench& b) {
  const int64_t rows = b.size(16384), n = b.size(4096);
  const double item = static_cast<double>(size_of(b.dtype)),
               all = static_cast<double>(rows) * static_cast<double>(n) * item;
  const DistTensor x = b.parameter({rows, n}), y = b.parameter({rows, n}),
                   g = b.parameter({n}), dy = b.random({rows, n}),
                   dh = b.random({rows, n});
  // Read x and the residual; write their sum h and y; read h, dy and dh; write
  // dx, which is the residual's gradient too.
  b.compare(
      "G3 residual and RMS norm forward and backward", 8 * all, false,
      [&] {
        const Normed out = add_rms_norm(x, y, g);
        backward_pass(std::vector{out.y, out.x}, std::vector{dy, dh},
                      std::vector{x, y, g}, {},
                      [](const auto& a, const auto& c) { return a + c; });
      },
      b.copy(8 * all));
  b.compare(
      "G3 SwiGLU forward and backward", 8 * all, false,
      [&] {
        grad(swiglu(x, y), {x, y}, {.cotangent = dy});
      },
      b.copy(8 * all));
  const int64_t heads = std::max<int64_t>(1, n / 128), d = n / heads;
  const DistTensor r = b.parameter({1, rows, heads, d}),
                   dr = b.random({1, rows, heads, d});
  b.compare(
      "G3 rotary forward and backward", 4 * all, false,
      [&] { grad(rotary(r), {r}, {.cotangent = dr}); }, b.copy(4 * all));
}

void sdpa(Bench& b) {
  for (int64_t s : {4096, 16384}) {
    s = b.size(s);
    const int64_t heads = 32, d = 128;
    const Shape shape = {1, heads, s, d};
    const DistTensor q = b.random(shape), k = b.random(shape),
                     v = b.random(shape), dy = b.random(shape);
    // Two products, half of whose elements count.
    const double flops = 2 * 2 * 0.5 * static_cast<double>(heads) *
                         static_cast<double>(s) * static_cast<double>(s) *
                         static_cast<double>(d);
    kernels::AttentionForward f;
    kernels::Attention& a = f.of;
    a.type = b.dtype;
    a.b = 1, a.hq = a.hkv = heads, a.s = a.t = s, a.d = d;
    std::array<int64_t, 4> strides;
    std::ranges::copy(q.local().strides(), strides.begin());
    a.q.strides = a.k.strides = a.v.strides = f.out.strides = strides;
    a.scale = 1 / std::sqrt(static_cast<double>(d));
    a.causal = true;
    const Tensor out = Tensor::empty(shape, b.dtype),
                 lse = Tensor::empty({1, heads, s}, kernels::stat_of(b.dtype));
    {
      const NoGrad no_grad;
      b.compare(
          fmt::format("G4 attention {} forward", s), flops, true,
          [&] { attention(q, k, v, {.causal = true}); },
          [&] {
            a.q.data = q.local().data(), a.k.data = k.local().data();
            a.v.data = v.local().data();
            f.out.data = out.mutable_data(), f.lse = lse.mutable_data();
            b.kernels().run(b.stream(), f);
          });
    }
    const Tensor dq = Tensor::empty(shape, b.dtype),
                 dk = Tensor::empty(shape, b.dtype),
                 dv = Tensor::empty(shape, b.dtype);
    kernels::AttentionBackward g;
    g.out.strides = g.dout.strides = strides;
    g.dq.strides = g.dk.strides = g.dv.strides = strides;
    const DistTensor qp = b.parameter(shape), kp = b.parameter(shape),
                     vp = b.parameter(shape);
    b.compare(
        fmt::format("G4 attention {} forward and backward", s), 3.5 * flops,
        true,
        [&] {
          grad(attention(qp, kp, vp, {.causal = true}), {qp, kp, vp},
               {.cotangent = dy});
        },
        [&] {
          f.out.data = out.mutable_data(), f.lse = lse.mutable_data();
          b.kernels().run(b.stream(), f);
          g.of = a;
          g.out.data = out.data(), g.dout.data = dy.local().data();
          g.lse = lse.data();
          g.dq.data = dq.mutable_data(), g.dk.data = dk.mutable_data();
          g.dv.data = dv.mutable_data();
          b.kernels().run(b.stream(), g);
        });
  }
}

// A layer of Llama against its products and its attention alone.
void layer(Bench& b) {
  const int64_t h = b.size(4096), s = b.size(4096), heads = 32,
                d = std::max<int64_t>(2, h / heads);
  nn::ModelConfig c{.name = "llama",
                    .layers = 1,
                    .hidden = heads * d,
                    .heads = heads,
                    .seq = s,
                    .vocab = 64,
                    .dtype = b.dtype};
  const auto model = nn::make_model(c, b.mesh, 1);
  const DistTensor in = randint(0, 64, {1, s}, b.mesh, {}, DType::kI64, {1, 1}),
                   out =
                       randint(0, 64, {1, s}, b.mesh, {}, DType::kI64, {1, 2});
  const int64_t ffn = c.ffn_size();
  double flops = 0;
  std::vector<std::function<void()>> products;
  const auto add = [&](int64_t k, int64_t n) {
    const Tensor x = b.random({s, k}).local(), w = b.random({k, n}).local(),
                 dy = b.random({s, n}).local();
    products.push_back(product(b, x, w));
    products.push_back(product(b, dy, w.transpose(0, 1)));
    products.push_back(product(b, x.transpose(0, 1), dy));
    flops += 6.0 * static_cast<double>(s) * static_cast<double>(k) *
             static_cast<double>(n);
  };
  for (int i = 0; i < 4; ++i) add(c.hidden, c.hidden);
  add(c.hidden, ffn), add(c.hidden, ffn), add(ffn, c.hidden);
  const DistTensor q = b.parameter({1, heads, s, d}),
                   k = b.parameter({1, heads, s, d}),
                   v = b.parameter({1, heads, s, d}),
                   dy = b.random({1, heads, s, d});
  b.compare(
      fmt::format("G5 layer h={} s={} forward and backward", c.hidden, s),
      flops, true, [&] { grad(model->loss(in, out), model->parameters()); },
      [&] {
        for (const auto& fn : products) fn();
        grad(attention(q, k, v, {.causal = true}), {q, k, v},
             {.cotangent = dy});
      });
}

void vocabulary(Bench& b) {
  const int64_t rows = b.size(4096), v = b.size(131072);
  const DistTensor x = b.parameter({rows, v}),
                   targets =
                       randint(0, v, {rows}, b.mesh, {}, DType::kI64, {1, 1});
  const double all = static_cast<double>(rows) * static_cast<double>(v) *
                     static_cast<double>(size_of(b.dtype));
  b.compare(
      fmt::format("G7 cross entropy {} x {} forward and backward", rows, v),
      3 * all, false, [&] { grad(cross_entropy(x, targets), {x}); },
      b.copy(3 * all));
}

void adamw(Bench& b) {
  const int64_t elements =
      std::max<int64_t>(1024, 1'000'000'000 / (b.divide() * b.divide()));
  const DistTensor p = b.random({elements}), g = b.random({elements});
  nn::AdamW optimizer(std::vector{p});
  // Read g, m, v, master; write m, v, master, p.
  const double item = static_cast<double>(size_of(b.dtype)),
               bytes = static_cast<double>(elements) *
                       (b.dtype == DType::kF32 ? 28 : 2 * item + 24);
  b.compare(
      fmt::format("G8 AdamW of {} parameters", elements), bytes, false,
      [&] { optimizer.step({g}, {}); }, b.copy(bytes));
}

// An MLP split over ranks that may share the device, against the whole of it on
// the first one.
void tensor_parallel(Bench& b) {
  const int64_t s = b.size(4096), h = b.size(4096);
  const std::string axis = b.mesh.axis_name(0);
  const DistTensor x = b.random({s, h}), dy = b.random({s, h}),
                   w1 = b.parameter({h, 4 * h}, {{axis, Shard(1)}}),
                   w2 = b.parameter({4 * h, h}, {{axis, Shard(0)}});
  const double flops = 3 * 2 * 2.0 * static_cast<double>(s) *
                       static_cast<double>(h) * 4 * static_cast<double>(h);
  const bool first = RankContext::current().world_rank == 0;
  std::function<void()> whole = [] {};
  if (first) {
    const Mesh one({{"one", 1}}, {0});
    const auto draw = [&](const Shape& shape) {
      DistTensor t = randn(shape, one, {}, b.dtype, {2, 1});
      return t.set_requires_grad();
    };
    const DistTensor x1 = draw({s, h}), a = draw({h, 4 * h}),
                     c = draw({4 * h, h}), d = draw({s, h}).detach();
    whole = [x1 = x1.detach(), a, c, d] {
      grad(matmul(gelu(matmul(x1, a)), c), {a, c}, {.cotangent = d});
    };
  }
  b.compare(
      fmt::format("G6 MLP on {} ranks (best: on one)", b.mesh.num_ranks()),
      flops, true,
      [&] {
        const DistTensor y = matmul(gelu(matmul(x, w1)), w2);
        grad(y.redistribute(Placements{}), {w1, w2}, {.cotangent = dy});
      },
      whole);
}

// What ranks that share the device move, against the first one's copy of as
// many bytes as all of them have to read and write.
void collectives(Bench& b) {
  const int64_t n = b.size(8192) * b.size(4096), p = b.mesh.num_ranks();
  const std::string axis = b.mesh.axis_name(0);
  const DistTensor whole = b.random({n});
  const DistTensor terms = DistTensor::from_local(whole.local(), b.mesh,
                                                  {{axis, PartialOf()}}, {n}),
                   part = whole.redistribute({{axis, Shard(0)}});
  const double bytes = static_cast<double>(n * size_of(b.dtype)),
               ranks = static_cast<double>(p);
  const bool first = RankContext::current().world_rank == 0;
  const auto move = [&](const char* what, const DistTensor& from,
                        const Placements& to, double work) {
    b.compare(
        fmt::format("G6 {} of {:.0f} MB on {} ranks (best: a copy)", what,
                    bytes / 1e6, p),
        work, false, [&] { from.redistribute(to); },
        first ? b.copy(work) : [] {});
  };
  const NoGrad no_grad;
  // Each reads all and writes all; each reads its part of all and writes that;
  // the second, and then the first in what is there.
  move("all-gather", part, Placements{}, 2 * ranks * bytes);
  move("reduce-scatter", terms, {{axis, Shard(0)}}, (ranks + 1) * bytes);
  move("all-reduce", terms, Placements{}, (3 * ranks - 1) * bytes);
}

void sharing(Bench& b) {
  tensor_parallel(b);
  if (b.mesh.num_ranks() > 1) collectives(b);
}

constexpr std::pair<std::string_view, void (*)(Bench&)> kCases[] = {
    {"G1", linear}, {"G2", small},   {"G3", memory_bound}, {"G4", sdpa},
    {"G5", layer},  {"G6", sharing}, {"G7", vocabulary},   {"G8", adamw}};

// Those of "G1,G3", in the order that they have here.
std::vector<size_t> chosen(const std::string& text) {
  std::vector<size_t> all;
  std::istringstream in(text);
  for (std::string name; std::getline(in, name, ',');) {
    size_t i = 0;
    while (i < std::size(kCases) && kCases[i].first != name) ++i;
    DT_CHECK(i < std::size(kCases), "--cases",
             "there is no {}; write some of G1 to G8, as G1,G3", name);
    all.push_back(i);
  }
  std::ranges::sort(all);
  return all;
}

void bench_rank(Runtime& rt, const Flags& flags, std::vector<Row>& rows) {
  for (const size_t i : chosen(flags.cases)) {
    const auto& [name, fn] = kCases[i];
    Bench bench(rt, flags, rows);
    fn(bench);
    if (rt.rank() == 0) fmt::print(stderr, "{} done\n", name);
  }
}

int bench_main(int argc, char** argv) {
  Flags flags;
  Program program({.about = "What operators reach of what the device does at "
                            "its best: the ratio of their times.",
                   .mesh = "tp=1"});
  program.add("--cases", &flags.cases, "which of G1 to G8");
  program.add("--dtype", &flags.dtype, "of the tensors");
  program.add("--rounds", &flags.rounds, "how often both sides run", 1);
  program.add("--divide", &flags.divide,
              "sizes by so much: for a device that is slow", 1);
  return program.main(
      argc, argv, [&] { parse_dtype(flags.dtype), chosen(flags.cases); },
      [&] {
        std::vector<Row> rows;
        run(program.run_options(),
            [&](Runtime& rt) { bench_rank(rt, flags, rows); });
        TextTable table("lrrrrr", {"case", "us", "best us", "best / ours",
                                   "rate", "peak MB"});
        Json json = Json::array();
        for (const Row& r : rows) {
          table.add({r.name, fmt::format("{:.1f}", 1e6 * r.seconds),
                     fmt::format("{:.1f}", 1e6 * r.best),
                     fmt::format("{:.3f}", r.best / r.seconds), r.rate,
                     fmt::format("{:.1f}", static_cast<double>(r.peak) / 1e6)});
          json.push_back({{"case", r.name},
                          {"seconds", r.seconds},
                          {"best_seconds", r.best},
                          {"peak_bytes", r.peak}});
        }
        fmt::print("{}", table.to_string());
        program.write_json(json);
      });
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) { return dtensor::bench_main(argc, argv); }
