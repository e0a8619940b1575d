// SPDX-License-Identifier: Apache-2.0
// Compares pipelines with the same layers on one rank.
#include "dtensor/nn/pipeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/owned.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;
using testing::values;

constexpr DType kF64 = DType::kF64;
constexpr int64_t kHidden = 5, kFfn = 7;

// A layer computes x + gelu(x up^T + b) down^T.
struct Layer {
  DistTensor up, bias, down;
  Layer(const Mesh& m, uint64_t number) {
    const bool tp = m.has_axis("tp");
    const auto leaf = [&](uint64_t i, Shape s, int dim) {
      Placements p;
      if (tp && dim >= 0) p = Placements({{"tp", Shard(dim)}});
      return randn(s, m, p, kF64, {1, 10 * number + i}, 0, 0.4).as_parameter();
    };
    up = leaf(0, {kFfn, kHidden}, 0);
    bias = leaf(1, {kFfn}, 0);
    down = leaf(2, {kHidden, kFfn}, 1);
  }
  std::vector<DistTensor> parameters() const { return {up, bias, down}; }
  DistTensor operator()(const DistTensor& x) const {
    return x + linear(gelu(linear(x, up, bias)), down);
  }
};

// Stages of one layer each. The last stage also has a head if `tied`: the `up`
// of the first layer.
struct Case {
  int64_t stages = 1, micros = 1, rows = 11;
  bool tied = false;
  // Besides its result, a stage passes on the sum of the squares so far, and a
  // number that depends on nothing. Both are in the loss.
  bool beside = false;
  bool in_parts = false;  // gradients are split over dp
};

DistTensor batch(const Mesh& m, const char* layout, int64_t rows,
                 uint64_t stream, int64_t width) {
  return randn({rows, width}, m, layout, kF64, {2, stream});
}

DistTensor loss_of(const DistTensor& y, const DistTensor& target) {
  const DistTensor d = y - target;
  return mean(d * d);
}

DistTensor with(const DistTensor& loss, const DistTensor& squares,
                const DistTensor& number) {
  return loss + squares * mean(number) * 0.3;
}

// The rows of a micro-batch.
std::pair<int64_t, int64_t> rows_of(const Case& c, int64_t i) {
  return {i * c.rows / c.micros, (i + 1) * c.rows / c.micros};
}

struct Values {
  double loss = 0;
  std::vector<std::vector<double>> grads;
};

Values on_one_rank(const Case& c) {
  Values v;
  run(1, [&](Runtime&) {
    const Mesh m = Mesh::parse("a=1");
    std::vector<Layer> layers;
    std::vector<DistTensor> all;
    for (int64_t s = 0; s < c.stages; ++s) {
      layers.emplace_back(m, static_cast<uint64_t>(s));
      for (const DistTensor& p : layers.back().parameters()) all.push_back(p);
    }
    DistTensor x = batch(m, "R", c.rows, 0, kHidden);
    DistTensor squares = zeros({}, m, {}, kF64);
    for (const Layer& layer : layers) {
      x = layer(x);
      squares = squares + mean(square(x));
    }
    if (c.tied) x = linear(x, layers[0].up);
    DistTensor loss =
        loss_of(x, batch(m, "R", c.rows, 1, c.tied ? kFfn : kHidden));
    if (c.beside) loss = with(loss, squares, full({3}, 2, m, {}, kF64));
    v.loss = loss.item();
    for (const DistTensor& g : grad(loss, all))
      v.grads.push_back(values(g.full()));
  });
  return v;
}

Mesh stage_mesh(const Mesh& mesh, int64_t position) {
  std::vector<std::string> rest;
  for (int a = 0; a < mesh.num_axes(); ++a)
    if (mesh.axis_name(a) != "pp") rest.push_back(mesh.axis_name(a));
  Coord at;
  at[mesh.axis("pp")] = static_cast<int32_t>(position);
  return mesh.submesh(rest, at);
}

// The stages of the pipeline, with their layers, inputs and targets.
struct Model {
  Case c;
  std::vector<Mesh> meshes;
  std::vector<Layer> layers;
  std::vector<DistTensor> inputs, targets;
  std::vector<double> shares;

  Model(const Case& of, const Mesh& mesh, int64_t positions) : c(of) {
    for (int64_t s = 0; s < c.stages; ++s) {
      meshes.push_back(stage_mesh(mesh, s % positions));
      layers.emplace_back(meshes.back(), static_cast<uint64_t>(s));
      if (c.in_parts)
        for (DistTensor p : layers.back().parameters()) {
          Layout layout = p.layout();
          layout.dims[0] =
              subdivided(layout.dims[0], p.mesh(), p.mesh().axis("dp"));
          p.set_grad_layout(layout);
        }
    }
    const char* rows = mesh.has_axis("tp") ? "S0,R" : "S0";
    const auto cut = [&](const DistTensor& all, int64_t i, const char* layout) {
      const auto [lo, hi] = rows_of(c, i);
      return slice(all, 0, lo, hi).redistribute(layout);
    };
    const char* whole = mesh.has_axis("tp") ? "R,R" : "R";
    for (int64_t i = 0; i < c.micros; ++i) {
      inputs.push_back(
          cut(batch(meshes[0], whole, c.rows, 0, kHidden), i, rows));
      targets.push_back(
          cut(batch(meshes.back(), whole, c.rows, 1, c.tied ? kFfn : kHidden),
              i, rows));
      const auto [lo, hi] = rows_of(c, i);
      shares.push_back(static_cast<double>(hi - lo) /
                       static_cast<double>(c.rows));
    }
  }

  std::vector<PipelineStage> stages() const {
    std::vector<PipelineStage> list;
    for (int64_t s = 0; s < c.stages; ++s) {
      const Layer& layer = layers[static_cast<size_t>(s)];
      const bool last = s + 1 == c.stages;
      PipelineStage stage{
          meshes[static_cast<size_t>(s)],
          [this, layer, last](const DistTensor& x, int64_t i,
                              std::span<const DistTensor> borrowed) {
            DistTensor y = layer(x);
            if (!last) return y;
            if (c.tied) y = linear(y, c.stages > 1 ? borrowed[0] : layer.up);
            return loss_of(y, targets[static_cast<size_t>(i)]);
          },
          layer.parameters()};
      if (c.beside)
        stage.forward = [this, layer, first = s == 0, last](
                            const std::vector<DistTensor>& x, int64_t i,
                            std::span<const DistTensor> borrowed) {
          DistTensor y = layer(x[0]), squares = mean(square(y));
          if (!first) squares = squares + x[1];
          const DistTensor number =
              first ? full({3}, 2, y.mesh(), {}, kF64) : x[2];
          if (!last) return std::vector{y, squares, number};
          if (c.tied) y = linear(y, borrowed[0]);
          return std::vector{with(loss_of(y, targets[static_cast<size_t>(i)]),
                                  squares, number)};
        };
      if (last && c.tied && c.stages > 1) stage.borrows = {layers[0].up};
      list.push_back(std::move(stage));
    }
    return list;
  }
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-12 * (1 + std::abs(b[i]))) << what;
}

void expect_equal(const PipelineResult& r, const Model& model, const Values& v,
                  const std::string& what) {
  double loss = 0;
  for (size_t i = 0; i < r.losses.size(); ++i)
    if (r.losses[i].here()) loss += r.losses[i].item() * model.shares[i];
  if (r.losses[0].here()) {
    EXPECT_NEAR(loss, v.loss, 1e-12 * (1 + v.loss)) << what;
  }
  for (size_t s = 0; s < r.grads.size(); ++s)
    for (size_t k = 0; k < r.grads[s].size(); ++k) {
      const DistTensor& g = r.grads[s][k];
      EXPECT_EQ(g.spec(), model.layers[s].parameters()[k].grad_spec());
      if (g.here())
        expect_near(values(g.full()), v.grads[3 * s + k],
                    what + ", stage " + std::to_string(s));
    }
}

// Runs a schedule with the stages of a case on a mesh.
void check(const std::string& name, const std::string& mesh_text, Case c,
           int64_t chunks, const Values& expected,
           const PipelineOptions& options = {}) {
  const Mesh mesh = Mesh::parse(mesh_text);
  const int64_t positions = mesh.axis_size(mesh.axis("pp"));
  const std::string what = name + " on " + mesh_text + " of " +
                           std::to_string(c.micros) + " micro-batches";
  run(mesh.num_ranks(), [&](Runtime& rt) {
    const Model model(c, mesh, positions);
    Pipeline pipe(make_schedule(name, positions, c.micros, chunks),
                  model.stages());
    // The second run uses what the first one has found out.
    for (int time = 0; time < 2; ++time) {
      const PipelineResult r = pipe.run(model.inputs, model.shares, options);
      expect_equal(r, model, expected, what);
      // The tasks ran in the schedule's order.
      const int32_t position = mesh.coordinate(rt.rank())[mesh.axis("pp")];
      std::vector<PipelineTask> ran;
      for (const TimedTask& t : r.tasks) ran.push_back(t.task);
      EXPECT_EQ(ran, pipe.schedule().tasks[static_cast<size_t>(position)])
          << what;
    }
  });
}

TEST(Pipeline, EverySchedule) {
  for (int64_t p = 2; p <= 5; ++p)
    for (int64_t m = 1; m <= 7; ++m) {
      const Case c{.stages = p, .micros = m};
      const Values expected = on_one_rank(c);
      for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
        check(name, "pp=" + std::to_string(p) + ",dp=1", c, 1, expected);
    }
}

TEST(Pipeline, Interleaved) {
  for (const int64_t p : {1, 2, 3})
    for (int64_t m = p; m <= 5; ++m) {
      const Case c{.stages = 2 * p, .micros = m, .tied = true};
      check("interleaved", "pp=" + std::to_string(p) + ",dp=1", c, 2,
            on_one_rank(c));
    }
}

// Batches and matrices that the ranks of a stage's mesh do not divide evenly.
TEST(Pipeline, WithDataAndTensorParallelism) {
  for (int64_t m : {1, 3, 7}) {
    const Case c{.stages = 2, .micros = m, .rows = 9, .tied = true};
    const Values expected = on_one_rank(c);
    for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
      check(name, "pp=2,dp=2,tp=2", c, 1, expected);
  }
  const Case c{.stages = 4, .micros = 3, .rows = 9, .tied = true};
  check("interleaved", "dp=3,pp=2", c, 2, on_one_rank(c));
}

// Stages pass on several tensors. In the first stage, one needs no gradient.
TEST(Pipeline, StagesThatHandOnSeveral) {
  for (int64_t m : {1, 3}) {
    Case c{.stages = 3, .micros = m, .rows = 9, .beside = true};
    Values expected = on_one_rank(c);
    for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
      check(name, "pp=3,dp=2", c, 1, expected);
    c.tied = true;
    expected = on_one_rank(c);
    check("zb-h1", "pp=3,dp=1,tp=2", c, 1, expected);
  }
  const Case c{.stages = 4, .micros = 3, .rows = 9, .beside = true};
  check("interleaved", "dp=2,pp=2", c, 2, on_one_rank(c));
}

// Gradients in parts are reduced at the end, or in buckets for each
// micro-batch.
TEST(Pipeline, GradientsInParts) {
  for (const bool tied : {false, true}) {
    const Case c{
        .stages = 2, .micros = 3, .rows = 9, .tied = tied, .in_parts = true};
    const Values expected = on_one_rank(c);
    for (const char* mesh : {"pp=2,dp=2", "pp=2,dp=3,tp=2"})
      for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
        for (const int64_t bytes : {0, 1, 300, 1 << 20})
          check(name, mesh, c, 1, expected, {.bucket_bytes = bytes});
  }
}

// With buckets, the gradients of every micro-batch are sent; without, their
// sum.
TEST(Pipeline, BucketsSendEachMicroBatch) {
  for (const char* name : {"1f1b", "zb-h1"}) {
    std::vector<int64_t> sent;
    for (const int64_t bucket : {0, 1}) {
      const Case c{.stages = 2, .micros = 4, .rows = 16, .in_parts = true};
      run(8, [&](Runtime& rt) {
        const Model model(c, Mesh::parse("pp=2,dp=4"), 2);
        Pipeline pipe(make_schedule(name, 2, 4), model.stages());
        rt.context().record = true;
        rt.context().events.clear();
        pipe.run(model.inputs, model.shares, {.bucket_bytes = bucket});
        rt.context().record = false;
        int64_t bytes = 0;
        for (const CommEvent& e : rt.context().events)
          if (e.op == "grad") bytes += e.counted;
        if (rt.rank() == 0) sent.push_back(bytes);
      });
    }
    EXPECT_GT(sent[0], 0) << name;
    EXPECT_EQ(sent[1], 4 * sent[0]) << name;
  }
}

// A table that no schedule has: the stages take the micro-batches in other
// orders.
TEST(Pipeline, ATable) {
  const Case c{.stages = 2, .micros = 3};
  const Values expected = on_one_rank(c);
  const Mesh mesh = Mesh::parse("dp=1,pp=2");
  PipelineSchedule s{.name = "mine",
                     .positions = 2,
                     .chunks = 1,
                     .micros = 3,
                     .weight_tasks = true,
                     .tasks = {{}, {}}};
  const auto f = PipelineWork::kForward, b = PipelineWork::kBackward,
             w = PipelineWork::kWeight;
  for (int64_t i : {1, 0, 2}) s.tasks[0].push_back({f, 0, i});
  for (int64_t i : {2, 0, 1}) s.tasks[0].push_back({b, 0, i});
  for (int64_t i : {2, 1, 0}) s.tasks[0].push_back({w, 0, i});
  for (int64_t i : {0, 2, 1}) s.tasks[1].push_back({f, 1, i});
  for (int64_t i : {2, 1, 0}) s.tasks[1].push_back({b, 1, i});
  for (int64_t i : {1, 2, 0}) s.tasks[1].push_back({w, 1, i});
  const PipelineSchedule table = checked(s);
  run(2, [&](Runtime& rt) {
    const Model model(c, mesh, 2);
    Pipeline pipe(table, model.stages());
    const PipelineResult r = pipe.run(model.inputs, model.shares);
    expect_equal(r, model, expected, "a table");
    // The tasks ran in the table's order.
    const auto& mine = table.tasks[static_cast<size_t>(rt.rank())];
    ASSERT_EQ(r.tasks.size(), mine.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(r.tasks[i].task, mine[i]);
      EXPECT_LE(r.tasks[i].start, r.tasks[i].finish);
    }
  });
}

// Stages on meshes of different sizes have to say in which layout they get
// inputs.
TEST(Pipeline, MeshesThatDiffer) {
  const Case c{.stages = 2, .micros = 2};
  const Values expected = on_one_rank(c);
  run(4, [&](Runtime&) {
    const Mesh wide({{"dp", 2}}, {0, 1}), other({{"x", 2}}, {3, 2});
    Model model(c, Mesh::parse("pp=2,dp=1"), 2);
    model.meshes = {wide, other};
    model.layers = {Layer(wide, 0), Layer(other, 1)};
    for (DistTensor& x : model.inputs) x = x.redistribute(wide, "S0");
    for (DistTensor& t : model.targets) t = t.redistribute(other, "R");
    const auto pipe = [&](std::vector<PipelineStage> stages) {
      return Pipeline(make_schedule("1f1b", 2, 2), std::move(stages))
          .run(model.inputs, model.shares);
    };
    std::vector<PipelineStage> stages = model.stages();
    EXPECT_EQ(error_of([&] { pipe(stages); }),
              "[pipeline] a stage on mesh dp=2 is followed by one on x=2 of "
              "ranks 3,2, whose axes have other names, sizes or order; set "
              "PipelineStage::input of the second to the layout in which it "
              "receives x, such as \"R\"");
    stages[1].input = "P";
    EXPECT_EQ(error_of([&] { pipe(stages); }),
              "[pipeline] PipelineStage::input on mesh x=2 of ranks 3,2 is "
              "partial; write R or S<dim> for each axis");
    stages[1].input = "S1";
    expect_equal(pipe(stages), model, expected, "meshes that differ");
  });
}

// Each activation is sent to the next stage once, and its gradient back once.
TEST(Pipeline, BytesAreTheActivations) {
  const Case c{.stages = 3, .micros = 4, .rows = 10};
  const Mesh mesh = Mesh::parse("pp=3,dp=2");
  run(6, [&](Runtime& rt) {
    const Model model(c, mesh, 3);
    Pipeline pipe(make_schedule("1f1b", 3, 4), model.stages());
    rt.context().record = true;
    rt.context().events.clear();
    pipe.run(model.inputs, model.shares);
    const int64_t position = rt.rank() / 2, at = rt.rank() % 2;
    int64_t received = 0, predicted = 0, counted = 0;
    for (const CommEvent& e : rt.context().events) {
      if (e.kind != StepKind::kExchange) continue;
      predicted += e.predicted;
      counted += e.counted;
    }
    for (int64_t i = 0; i < 4; ++i) {
      const auto [lo, hi] = rows_of(c, i);
      const int64_t most = (hi - lo + 1) / 2;
      const int64_t mine = at == 1 ? most : hi - lo - most;
      const int64_t ways = position == 1 ? 2 : 1;  // from both neighbours
      received += ways * mine * kHidden * 8;
      // To and from each neighbour.
      predicted -= 2 * ways * most * kHidden * 8;
    }
    EXPECT_EQ(counted, received);
    EXPECT_EQ(predicted, 0);
    rt.context().record = false;
  });
}

// The most that the first position holds beyond its weights and inputs, in
// bytes.
int64_t peak_activations(const char* name, int64_t micros) {
  int64_t bytes = 0;
  run(3, [&](Runtime& rt) {
    const Case c{.stages = 3, .micros = micros, .rows = 64 * micros};
    const Model model(c, Mesh::parse("pp=3,dp=1"), 3);
    Pipeline pipe(make_schedule(name, 3, micros), model.stages());
    const auto now = [&] {
      return rt.context().allocator->stats().of(MemoryKind::kActivations);
    };
    const int64_t before = now().current_bytes;
    rt.context().allocator->reset_peak();
    pipe.run(model.inputs, model.shares);
    if (rt.rank() == 0) bytes = now().peak_bytes - before;
  });
  return bytes;
}

// GPipe holds all micro-batches, 1F1B as many as there are positions.
TEST(Pipeline, HoldsWhatTheScheduleSays) {
  const auto one = static_cast<double>(peak_activations("gpipe", 1));
  const auto held = [&](const char* name, int64_t micros) {
    return static_cast<double>(peak_activations(name, micros)) / one;
  };
  // `one` also has what a micro-batch needs for a short time; that counts once.
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
    for (const int64_t m : {6, 9}) {
      const auto live =
          static_cast<double>(simulate(make_schedule(name, 3, m)).live[0]);
      EXPECT_GT(held(name, m), 0.6 * live) << name << m;
      EXPECT_LT(held(name, m), 1.2 * live) << name << m;
    }
}

TEST(Pipeline, OneLossAlone) {
  const std::string e = error_of([&] {
    run(2, [&](Runtime&) {
      const Case c{.stages = 2, .micros = 2, .beside = true};
      const Model model(c, Mesh::parse("pp=2,dp=1"), 2);
      auto stages = model.stages();
      stages[1].forward = [](const std::vector<DistTensor>& x, int64_t,
                             std::span<const DistTensor>) { return x; };
      Pipeline(make_schedule("1f1b", 2, 2), stages)
          .run(model.inputs, model.shares);
    });
  });
  EXPECT_EQ(
      e,
      "[pipeline] stage 1 returns 3 tensors; the last stage has to return "
      "its loss alone");
}

// Guards a fix: only ranks of the stage looked at what it returned. The next
// stage's ranks gave its function no inputs, and it read the first.
TEST(Pipeline, EveryRankRefusesAStageWithoutOutputs) {
  run(2, [&](Runtime&) {
    const Case c{.stages = 2, .micros = 2};
    const Model model(c, Mesh::parse("pp=2,dp=1"), 2);
    auto stages = model.stages();
    stages[0].forward = [](const std::vector<DistTensor>&, int64_t,
                           std::span<const DistTensor>) {
      return std::vector<DistTensor>();
    };
    EXPECT_EQ(error_of([&] {
                Pipeline(make_schedule("1f1b", 2, 2), stages)
                    .run(model.inputs, model.shares);
              }),
              "[pipeline] stage 0 returns 0 tensors; return at least one");
  });
}

TEST(Pipeline, Refuses) {
  run(2, [&](Runtime&) {
    const Case c{.stages = 2, .micros = 2, .tied = true};
    const Model model(c, Mesh::parse("pp=2,dp=1"), 2);
    const PipelineSchedule s = make_schedule("1f1b", 2, 2);
    EXPECT_EQ(
        error_of(
            [&] { Pipeline(make_schedule("1f1b", 3, 2), model.stages()); }),
        "[pipeline] the number of stages is 2, but that of the schedule is 3; "
        "pass one PipelineStage for each stage of the schedule");
    auto stages = model.stages();
    stages[1].borrows = {model.layers[1].up};
    EXPECT_EQ(error_of([&] { Pipeline(s, stages); }),
              "[pipeline] stage 1 borrows f64[7, 5](R), which the parameters "
              "of other stages list 0 times; list it exactly once, in one "
              "other stage");
    stages = model.stages();
    stages[0].parameters.push_back(model.layers[1].up);
    EXPECT_EQ(error_of([&] { Pipeline(s, stages); }),
              "[pipeline] a parameter of stage 0 is f64[7, 5](R) on mesh dp=1 "
              "of ranks 1, but the stage is on dp=1; make it there");
    Pipeline pipe(s, model.stages());
    EXPECT_EQ(error_of([&] {
                pipe.run(model.inputs, model.shares, {.bucket_bytes = -1});
              }),
              "[pipeline] bucket_bytes is -1; write 0 or more");
    EXPECT_EQ(error_of([&] { pipe.run(model.inputs, {}); }),
              "[pipeline] the numbers of inputs, shares and micro-batches are "
              "2, 0 and 2; give one input and one share for each micro-batch");
    EXPECT_EQ(error_of([&] { pipe.run(model.targets, model.shares); }),
              "[pipeline] input 0 is f64[5, 7](R) on mesh dp=1 of ranks 1, "
              "but the first stage is on dp=1; redistribute it to that mesh");
  });
}

// Guards a fix: a stage borrowed a tied parameter as one that operators may not
// move, even if its owner lets them. So a program was refused that runs without
// stages.

DistTensor tied_loss(const DistTensor& x, const DistTensor& w) {
  return sum(square(matmul(x, transpose(w, 0, 1))));
}

TEST(Pipeline, BorrowsAParameterAsItsOwnerHasIt) {
  std::vector<double> want;
  run(1, [&](Runtime&) {
    const Mesh one = Mesh::parse("x=1");
    DistTensor w = randn({3, 4}, one, "R", DType::kF64, {1, 0});
    w.set_requires_grad();
    const DistTensor x = randn({5, 3}, one, "R", DType::kF64, {2, 0});
    want = grad(tied_loss(tanh(matmul(x, w)), w), {w})[0].full().to_doubles();
  });
  for (const Keep keep : {Keep::kMove, Keep::kStay, Keep::kGatherOnUse})
    for (const char* layout : {"R", "S0", "S1"}) {
      // (A split parameter that stays may have no layout for these products.)
      if (keep == Keep::kStay && layout[0] == 'S') continue;
      run(4, [&](Runtime& rt) {
        const Mesh meshes[] = {Mesh::parse("x=2 of ranks 0,1"),
                               Mesh::parse("x=2 of ranks 2,3")};
        DistTensor w = randn({3, 4}, meshes[0], layout, DType::kF64, {1, 0});
        w.as_parameter(keep);
        PipelineStage first{
            meshes[0],
            [&](const DistTensor& x, int64_t, std::span<const DistTensor>) {
              return tanh(matmul(x, w));
            },
            {w}};
        PipelineStage last{
            meshes[1],
            [&](const DistTensor& y, int64_t, std::span<const DistTensor> b) {
              EXPECT_EQ(b[0].keep(), keep) << layout;
              return tied_loss(y, b[0]);
            },
            {}};
        last.borrows = {w};
        Pipeline pipeline(make_schedule("gpipe", 2, 1, 1), {first, last});
        const DistTensor x =
            randn({5, 3}, meshes[0], "S0", DType::kF64, {2, 0});
        const std::vector<double> share{1};
        const PipelineResult result = pipeline.run({x}, share, {});
        if (rt.rank() > 1) return;
        const auto got = result.grads[0][0].full().to_doubles();
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_NEAR(got[i], want[i], 1e-12) << layout;
      });
    }
}

}  // namespace
}  // namespace dtensor::nn
