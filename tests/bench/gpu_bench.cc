// SPDX-License-Identifier: Apache-2.0
// Compares operators with the best that the device can do: the fastest of
// cuBLASLt's algorithms, a copy of as many bytes, or the bare kernels. The two
// take turns in one run. gpu_bench.py beside this file takes torch's times of
// the same cases, under the same names.
//
//   bazel run -c opt //tests/bench:gpu_bench -- --help
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/device/cuda.h"
#include "dtensor/graph.h"
#include "dtensor/nn/engine.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/attention.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/kernels/attention.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/paged_attention.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "dtensor/rank_context.h"
#include "dtensor/scopes.h"
#include "tests/bench/rounds.h"

namespace dtensor {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Flags {
  std::string cases = "G1,G2,G3,G4,G5,G6,G7,G8,G9", dtype = "bf16";
  int64_t rounds = 15, divide = 1;
  bool list = false;
  CudaOptions options = {};
};

class Bench;

struct Case {
  std::string_view name;  // "G3/swiglu"
  // The goal for the best's time divided by ours; 0 if there is none and only
  // torch's time tells what is good.
  double goal;
  void (*run)(Bench&);
  double tuned_goal = goal;  // with --tune-gemm
};

// An operator is compared with one of these.
enum class Best : uint8_t {
  kAlgorithm,  // its products alone, each with cuBLASLt's fastest algorithm
  kCopy,       // a copy of as many bytes
  kBare,       // its kernels alone
  kLaunch,     // a launch of a kernel that does nothing, by the driver
  kEager,      // the same without a CUDA graph
  kOneRank     // the whole of it on one rank
};
std::string_view name(Best best) {
  switch (best) {
    case Best::kAlgorithm:
      return "the fastest algorithm";
    case Best::kCopy:
      return "a copy";
    case Best::kBare:
      return "its kernels";
    case Best::kLaunch:
      return "a bare launch";
    case Best::kEager:
      return "no graph";
    case Best::kOneRank:
      return "one rank";
  }
  return {};
}

// One rank's bench: makes the operands and takes the time.
class Bench {
 public:
  Bench(Runtime& rt, const Flags& flags, const Case& c, Json& rows)
      : mesh(rt.mesh()),
        dtype(parse_dtype(flags.dtype)),
        flags_(flags),
        case_(c),
        context_(rt.context()),
        rows_(rows) {}

  const Mesh mesh;
  const DType dtype;
  // The number of tokens that a call generates; 0 if it generates none.
  int64_t tokens = 0;

  // A size, divided by --divide, for slow devices.
  int64_t size(int64_t n) const {
    return std::max<int64_t>(8, n / flags_.divide);
  }
  DistTensor random(const Shape& shape, const Placements& p = {}) {
    return randn(shape, mesh, p, dtype, {1, stream_++});
  }
  // A random tensor that gradients are computed for.
  DistTensor parameter(const Shape& shape, const Placements& p = {}) {
    DistTensor x = random(shape, p);
    return x.set_requires_grad();
  }
  int64_t divide() const { return flags_.divide; }
  bool is_gpu() const { return context_.device->kind() == Device::Kind::kCuda; }
  bool has_graphs() const { return context_.device->has_graphs(); }
  const Kernels& kernels() const { return kernels_of(*context_.device); }
  Stream stream() const { return context_.stream; }

  // Times both in turn and prints a row. `work` is in flops, or in bytes for a
  // copy.
  void compare(double work, Best against, const std::function<void()>& ours,
               const std::function<void()>& best) {
    Communicator& all = context_.communicator(mesh, mesh.all_axes());
    if (flags_.rounds == 0) {
      time(ours, 1);
      return;
    }
    const auto before_all = declined_so_far();
    time(ours, 1);
    auto declined = declined_so_far();
    for (auto& [what, n] : declined)
      if (before_all.contains(what)) n -= before_all.at(what);
    std::erase_if(declined, [](const auto& d) { return d.second == 0; });
    time(best, 1);  // makes what is made only once
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
    const double seconds = median(times[0]), least = median(times[1]),
                 ratio = least / seconds;
    const auto rate = [&](double s) {
      return against == Best::kCopy
                 ? fmt::format("{:.0f} GB/s", work / s / 1e9)
                 : fmt::format("{:.1f} TFLOP/s", work / s / 1e12);
    };
    std::string notes;
    if (tokens > 0)
      notes = fmt::format(", {:.0f} tokens/s",
                          static_cast<double>(tokens) / seconds);
    for (const auto& [what, n] : declined)
      notes += fmt::format(", {} x {} declined", n, what);
    std::string goal = case_.name.starts_with("G9") ? "none" : "torch's";
    const double least_ratio =
        flags_.options.tune_gemm ? case_.tuned_goal : case_.goal;
    if (least_ratio > 0)
      goal = fmt::format(">= {:.2f}: {}", least_ratio,
                         ratio >= least_ratio ? "met" : "missed");
    fmt::print(
        "{:<32} {:.1f} us, {:.3f} of {} ({:.1f} us), {} of {}, {:.1f} "
        "MB{}; goal {}\n",
        case_.name, 1e6 * seconds, ratio, name(against), 1e6 * least,
        rate(seconds), rate(least), static_cast<double>(peak) / 1e6, notes,
        goal);
    std::fflush(stdout);
    rows_.push_back({{"case", case_.name},
                     {"seconds", seconds},
                     {"best", name(against)},
                     {"best_seconds", least},
                     {"ratio", ratio},
                     {"goal", least_ratio},
                     {"peak_bytes", peak},
                     {"declined", declined}});
  }

  void skip(std::string_view why) const {
    if (context_.world_rank == 0)
      fmt::print("{:<32} not measured: {}\n", case_.name, why);
  }

  // Computes products with the fastest algorithm that cuBLASLt proposes, as
  // --tune-gemm does.
  std::function<void()> tuned(std::function<void()> products) const {
    if (!is_gpu()) return products;
    return [this, products = std::move(products)] {
      CudaOptions fastest = flags_.options;
      fastest.tune_gemm = true;
      cuda_set_options(fastest);
      products();
      cuda_set_options(flags_.options);
    };
  }

  // A copy that reads and writes `bytes` bytes in all.
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
  // Calls that the GPU's libraries have declined so far, by kind.
  std::map<std::string, int64_t> declined_so_far() const {
    if (!is_gpu()) return {};
    return cuda_declined();
  }
  // The seconds that one of `times` calls takes, together with its work on the
  // device.
  double time(const std::function<void()>& fn, int64_t times) const {
    const auto start = Clock::now();
    for (int64_t i = 0; i < times; ++i) fn();
    context_.device->synchronize(context_.stream);
    return std::chrono::duration<double>(Clock::now() - start).count() /
           static_cast<double>(times);
  }
  // The number of calls that take long enough to be timed. The first rank
  // decides for all ranks, since their collectives have to meet.
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
  const Case& case_;
  RankContext& context_;
  Json& rows_;
  uint64_t stream_ = 1;
};

// The kernel of c = a b, without an operator.
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

// The two linear layers of GPT-2's MLP.
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
      12.0 * static_cast<double>(s) * static_cast<double>(h) *
          static_cast<double>(ffn),
      Best::kAlgorithm,
      [&] {
        const DistTensor y = dtensor::linear(x, w1, b1, Activation::kGeluTanh);
        grad(dtensor::linear(y, w2, b2), {x, w1, b1, w2, b2},
             {.cotangent = dy});
      },
      b.tuned([&] {
        for (const auto& fn : products) fn();
      }));
}

template <int64_t kSize, bool kBackward>
void linear(Bench& b) {
  const int64_t n = b.size(kSize);
  const DistTensor x = b.parameter({n, n}), w = b.parameter({n, n}),
                   dy = b.random({n, n});
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) *
                       static_cast<double>(n);
  const auto forward = product(b, x.local(), w.local());
  if (!kBackward) {
    const NoGrad no_grad;
    return b.compare(
        flops, Best::kAlgorithm, [&] { matmul(x, w); }, b.tuned(forward));
  }
  const auto dx = product(b, dy.local(), w.local().transpose(0, 1)),
             dw = product(b, x.local().transpose(0, 1), dy.local());
  b.compare(
      3 * flops, Best::kAlgorithm,
      [&] {
        grad(matmul(x, w), {x, w}, {.cotangent = dy});
      },
      b.tuned([&] { forward(), dx(), dw(); }));
}

// Launches a kernel that does nothing, by the driver: without the plugin and
// CUDA's runtime.
class BareLaunch {
 public:
  // Uses the calling thread's GPU, which must have done some work already.
  BareLaunch() {
    driver_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    DT_CHECK(driver_, "bare launch", "CUDA's driver does not load: {}",
             dlerror());
    void* module = nullptr;
    check(call<int(void**, const void*)>("cuModuleLoadData")(&module, kNothing),
          "cuModuleLoadData");
    check(call<int(void**, void*, const char*)>("cuModuleGetFunction")(
              &nothing_, module, "nothing"),
          "cuModuleGetFunction");
    launch_ = call<Launch>("cuLaunchKernel");
  }
  void operator()(void* stream) const {
    check(launch_(nothing_, 1, 1, 1, 64, 1, 1, 0, stream, nullptr, nullptr),
          "cuLaunchKernel");
  }

 private:
  using Launch = int(void* function, unsigned, unsigned, unsigned, unsigned,
                     unsigned, unsigned, unsigned shared, void* stream,
                     void** arguments, void** extra);
  static constexpr char kNothing[] =
      ".version 7.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry nothing() { ret; }\n";

  template <class F>
  F* call(const char* name) const {
    auto* const found = reinterpret_cast<F*>(dlsym(driver_, name));
    DT_CHECK(found, "bare launch", "CUDA's driver has no {}", name);
    return found;
  }
  static void check(int status, const char* name) {
    DT_CHECK(status == 0, "bare launch", "{} failed with status {}", name,
             status);
  }

  void *driver_, *nothing_ = nullptr;  // never freed
  Launch* launch_ = nullptr;
};

// The time that the host takes for an operator which computes next to nothing.
void host_cost(Bench& b) {
  if (!b.is_gpu()) return b.skip("the device has no launches");
  const DistTensor x = b.random({8, 8}), y = b.random({8, 8});
  const NoGrad no_grad;
  x + y;  // makes the GPU this thread's
  const BareLaunch launch;
  b.compare(
      64.0, Best::kLaunch, [&] { x + y; }, [&] { launch(b.stream().handle); });
}

// A small model's training step: replays of a graph against steps without one.
void small_step(Bench& b) {
  if (!b.has_graphs()) return b.skip("the device has no CUDA graphs");
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
  // These steps make all that is made only once.
  for (int i = 0; i < 2; ++i) captured.step();
  Graph graph([&] { captured.step(); });
  b.compare(
      6 * parameters * static_cast<double>(batch * c.seq), Best::kEager,
      [&] { graph.replay(); }, [&] { eager.step(); });
}

// Two inputs of a function that works on rows, and the bytes of one input.
struct Rows {
  explicit Rows(Bench& b)
      : rows(b.size(16384)),
        n(b.size(4096)),
        bytes(static_cast<double>(rows * n * size_of(b.dtype))),
        x(b.parameter({rows, n})),
        y(b.parameter({rows, n})),
        dy(b.random({rows, n})) {}
  int64_t rows, n;
  double bytes;
  DistTensor x, y, dy;
};

void residual_norm(Bench& b) {
  const Rows r(b);
  const DistTensor g = b.parameter({r.n}), dh = b.random({r.rows, r.n});
  // Read x and the residual; write their sum h and y; read h, dy and dh; write
  // dx, which is the residual's gradient too.
  b.compare(
      8 * r.bytes, Best::kCopy,
      [&] {
        const Normed out = add_rms_norm(r.x, r.y, g);
        backward_pass(std::vector{out.y, out.x}, std::vector{r.dy, dh},
                      std::vector{r.x, r.y, g}, {},
                      [](const auto& a, const auto& c) { return a + c; });
      },
      b.copy(8 * r.bytes));
}

void gated(Bench& b) {
  const Rows r(b);
  b.compare(
      8 * r.bytes, Best::kCopy,
      [&] {
        grad(swiglu(r.x, r.y), {r.x, r.y}, {.cotangent = r.dy});
      },
      b.copy(8 * r.bytes));
}

void rotate(Bench& b) {
  const int64_t rows = b.size(16384), n = b.size(4096),
                heads = std::max<int64_t>(1, n / 128), d = n / heads;
  const DistTensor x = b.parameter({1, rows, heads, d}),
                   dy = b.random({1, rows, heads, d});
  const double bytes = 4 * static_cast<double>(rows * n * size_of(b.dtype));
  b.compare(
      bytes, Best::kCopy, [&] { grad(rotary(x), {x}, {.cotangent = dy}); },
      b.copy(bytes));
}

template <int64_t kLength, bool kBackward>
void sdpa(Bench& b) {
  const int64_t s = b.size(kLength), heads = 32, d = 128;
  const Shape shape = {1, heads, s, d};
  const DistTensor q = b.parameter(shape), k = b.parameter(shape),
                   v = b.parameter(shape), dy = b.random(shape);
  // Two products. The causal mask leaves half of the elements.
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
  const auto forward = [&] {
    a.q.data = q.local().data(), a.k.data = k.local().data();
    a.v.data = v.local().data();
    f.out.data = out.mutable_data(), f.lse = lse.mutable_data();
    b.kernels().run(b.stream(), f);
  };
  if (!kBackward) {
    const NoGrad no_grad;
    return b.compare(
        flops, Best::kBare, [&] { attention(q, k, v, {.causal = true}); },
        forward);
  }
  const Tensor dq = Tensor::empty(shape, b.dtype),
               dk = Tensor::empty(shape, b.dtype),
               dv = Tensor::empty(shape, b.dtype);
  kernels::AttentionBackward g;
  g.out.strides = g.dout.strides = strides;
  g.dq.strides = g.dk.strides = g.dv.strides = strides;
  b.compare(
      3.5 * flops, Best::kBare,
      [&] {
        grad(attention(q, k, v, {.causal = true}), {q, k, v},
             {.cotangent = dy});
      },
      [&] {
        forward();
        g.of = a;
        g.out.data = out.data(), g.dout.data = dy.local().data();
        g.lse = lse.data();
        g.dq.data = dq.mutable_data(), g.dk.data = dk.mutable_data();
        g.dv.data = dv.mutable_data();
        b.kernels().run(b.stream(), g);
      });
}

// A layer of Llama against the kernels of its products and its attention alone.
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
      flops, Best::kAlgorithm,
      [&] { grad(model->loss(in, out), model->parameters()); }, b.tuned([&] {
        for (const auto& fn : products) fn();
        grad(attention(q, k, v, {.causal = true}), {q, k, v},
             {.cotangent = dy});
      }));
}

void vocabulary(Bench& b) {
  const int64_t rows = b.size(4096), v = b.size(131072);
  const DistTensor x = b.parameter({rows, v}),
                   targets =
                       randint(0, v, {rows}, b.mesh, {}, DType::kI64, {1, 1});
  const double all = static_cast<double>(rows) * static_cast<double>(v) *
                     static_cast<double>(size_of(b.dtype));
  b.compare(
      3 * all, Best::kCopy, [&] { grad(cross_entropy(x, targets), {x}); },
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
      bytes, Best::kCopy, [&] { optimizer.step({g}, {}); }, b.copy(bytes));
}

// An MLP that is split over ranks, which may share the device, against the
// whole MLP on the first rank.
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
      flops, Best::kOneRank,
      [&] {
        const DistTensor y = matmul(gelu(matmul(x, w1)), w2);
        grad(y.redistribute(Placements{}), {w1, w2}, {.cotangent = dy});
      },
      whole);
}

// Moves between ranks that share the device, against a copy by the first rank
// of as many bytes as all ranks have to read and write.
struct Shared {
  explicit Shared(Bench& b)
      : axis(b.mesh.axis_name(0)),
        n(b.size(8192) * b.size(4096)),
        ranks(static_cast<double>(b.mesh.num_ranks())),
        bytes(static_cast<double>(n * size_of(b.dtype))),
        whole(b.random({n})) {}
  DistTensor part() const { return whole.redistribute({{axis, Shard(0)}}); }
  DistTensor terms() const {
    return DistTensor::from_local(whole.local(), whole.mesh(),
                                  {{axis, PartialOf()}}, {n});
  }
  void move(Bench& b, const DistTensor& from, const Placements& to,
            double work) const {
    if (ranks == 1) return b.skip("one rank moves nothing");
    const NoGrad no_grad;
    const bool first = RankContext::current().world_rank == 0;
    b.compare(
        work, Best::kCopy, [&] { from.redistribute(to); },
        first ? b.copy(work) : [] {});
  }
  std::string axis;
  int64_t n;
  double ranks, bytes;
  DistTensor whole;
};

// Each rank reads all and writes all.
void all_gather(Bench& b) {
  const Shared s(b);
  s.move(b, s.part(), Placements{}, 2 * s.ranks * s.bytes);
}
// Each rank reads its part of every summand, and writes its part.
void reduce_scatter(Bench& b) {
  const Shared s(b);
  s.move(b, s.terms(), {{s.axis, Shard(0)}}, (s.ranks + 1) * s.bytes);
}
// As a reduce-scatter; then each rank reads and writes all but its own part.
void all_reduce(Bench& b) {
  const Shared s(b);
  s.move(b, s.terms(), Placements{}, (3 * s.ranks - 1) * s.bytes);
}

// Generates the next token of several texts, whose keys and values are cached.
// A step reads all weights once.
template <int64_t kTexts>
void generation(Bench& b) {
  const nn::ModelConfig c{
      .name = "llama",
      .layers = std::max<int64_t>(1, 16 / b.divide()),
      .hidden = 32 * std::max<int64_t>(2, b.size(2048) / 32),
      .heads = 32,
      .kv_heads = 8,
      .seq = 512,
      .vocab = b.size(32768),
      .dtype = b.dtype};
  const auto model = nn::make_model(c, b.mesh, 1);
  nn::Engine engine(*model, {.texts = kTexts});
  double bytes = 0;
  for (const DistTensor& p : model->parameters())
    bytes += static_cast<double>(numel(p.shape()) * size_of(b.dtype));
  b.tokens = kTexts;
  b.compare(
      bytes, Best::kCopy,
      [&] {
        while (engine.running() + engine.waiting() < kTexts)
          engine.add({.prompt = {1},
                      .tokens = c.seq - 1,
                      .sampling = {.temperature = 0}});
        engine.step();
      },
      b.copy(bytes));
}

// Attention of one query of each of 32 texts to the keys and values of 4096
// positions.
void paged(Bench& b) {
  constexpr int64_t kTexts = 32, kPage = 32, kHeads = 32, kKvHeads = 8;
  const int64_t d = b.size(128), pages = b.size(4096) / kPage + 1,
                slots = kTexts * pages * kPage;
  const DistTensor q = b.random({kTexts, kHeads, d}),
                   k = b.random({slots, kKvHeads, d}),
                   v = b.random({slots, kKvHeads, d}),
                   texts = arange(kTexts, b.mesh),
                   table =
                       reshape(arange(kTexts * pages, b.mesh), {kTexts, pages}),
                   last = full({kTexts}, pages * kPage - 1, b.mesh, {},
                               DType::kI64);
  const double bytes =
      2 * static_cast<double>(numel(k.shape()) * size_of(b.dtype));
  const NoGrad no_grad;
  b.compare(
      bytes, Best::kCopy,
      [&] {
        paged_attention(q, k, v, table, texts, last,
                        {.kv_heads = kKvHeads, .page = kPage});
      },
      b.copy(bytes));
}

// A token times weights of int8.
void int8_weights(Bench& b) {
  const int64_t n = b.size(8192);
  const DistTensor x = b.random({1, n});
  const Int8Weight w = to_int8(b.random({n, n}));
  const double bytes = static_cast<double>(n * n);
  const NoGrad no_grad;
  b.compare(
      bytes, Best::kCopy, [&] { int8_linear(x, w.weight, w.scale); },
      b.copy(bytes));
}

constexpr Case kCases[] = {
    {"G1/feed-forward", 0.95, feed_forward, 0.99},
    {"G1/linear-2048-forward", 0.95, linear<2048, false>, 0.99},
    {"G1/linear-2048-both", 0.95, linear<2048, true>, 0.99},
    {"G1/linear-4096-forward", 0.95, linear<4096, false>, 0.99},
    {"G1/linear-4096-both", 0.95, linear<4096, true>, 0.99},
    {"G1/linear-8192-forward", 0.95, linear<8192, false>, 0.99},
    {"G1/linear-8192-both", 0.95, linear<8192, true>, 0.99},
    {"G1/linear-16384-forward", 0.95, linear<16384, false>, 0.99},
    {"G1/linear-16384-both", 0.95, linear<16384, true>, 0.99},
    {"G2/add", 1 / 1.15, host_cost},
    {"G2/step", 2, small_step},
    {"G3/residual-norm", 0.88, residual_norm},
    {"G3/swiglu", 0.88, gated},
    {"G3/rotary", 0.88, rotate},
    {"G4/attention-4096-forward", 0, sdpa<4096, false>},
    {"G4/attention-4096-both", 0, sdpa<4096, true>},
    {"G4/attention-16384-forward", 0, sdpa<16384, false>},
    {"G4/attention-16384-both", 0, sdpa<16384, true>},
    {"G5/layer", 0.75, layer},
    {"G6/mlp", 0.91, tensor_parallel},
    {"G6/all-gather", 0.85, all_gather},
    {"G6/reduce-scatter", 0.85, reduce_scatter},
    {"G6/all-reduce", 0.85, all_reduce},
    {"G7/cross-entropy", 0.88, vocabulary},
    {"G8/adamw", 0.88, adamw},
    {"G9/generate-1", 0, generation<1>},
    {"G9/generate-32", 0, generation<32>},
    {"G9/paged-attention", 0.5, paged},
    {"G9/int8-linear", 0.5, int8_weights}};

// The cases of a text such as "G1,G3/swiglu", in the order of kCases.
std::vector<const Case*> chosen(const std::string& text) {
  std::vector<const Case*> all;
  std::istringstream in(text);
  for (std::string name; std::getline(in, name, ',');) {
    const size_t before = all.size();
    for (const Case& c : kCases)
      if (c.name == name || c.name.starts_with(name + "/")) all.push_back(&c);
    DT_CHECK(all.size() > before, "--cases",
             "there is no {}; write some of G1 to G9, or of the names that "
             "--list prints, as G1,G3/swiglu",
             name);
  }
  std::ranges::sort(all);
  return all;
}

int bench_main(int argc, char** argv) {
  Flags flags;
  Program program({.about = "What operators reach of what the device does at "
                            "its best: the ratio of their times.",
                   .mesh = "tp=1"});
  program.add("--cases", &flags.cases, "which of G1 to G9");
  program.add("--dtype", &flags.dtype, "of the tensors");
  program.add("--rounds", &flags.rounds,
              "how often both sides run; 0: ours once, for a profiler");
  program.add("--divide", &flags.divide,
              "sizes by so much: for a device that is slow", 1);
  program.add("--list", &flags.list, "print the names of the cases, and stop");
  return program.main(
      argc, argv,
      [&] {
        parse_dtype(flags.dtype);
        chosen(flags.cases);
        flags.options = {.tf32 = program.given("--tf32"),
                         .tune_gemm = program.given("--tune-gemm"),
                         .deterministic = program.given("--deterministic")};
      },
      [&] {
        Json rows = Json::array();
        if (flags.list) {
          for (const Case& c : kCases) fmt::print("{}\n", c.name);
          return;
        }
        run(program.run_options(), [&](Runtime& rt) {
          for (const Case* c : chosen(flags.cases)) {
            Bench bench(rt, flags, *c, rows);
            c->run(bench);
          }
        });
        program.write_json(rows);
      });
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) { return dtensor::bench_main(argc, argv); }
