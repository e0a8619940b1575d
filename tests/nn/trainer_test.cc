// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/io/checkpoint.h"
#include "dtensor/nn/checkpoint.h"
#include "dtensor/nn/layers.h"
#include "dtensor/nn/models.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/nn/tiny_gpt.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;

std::string fresh_folder(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

// ---- Trainers of a language model ----

Batch tokens(int64_t step) { return token_batch(step, 4); }

// One rank of three changes one element of its copy.
TEST(Trainer, CopiesThatDifferAreFound) {
  for (const int stage : {0, 1}) {
    std::mutex mutex;
    std::set<std::string> errors;
    run(3, [&](Runtime& rt) {
      const auto model = tiny_gpt(rt.mesh({{"dp", 3}}), stage);
      Trainer trainer(*model, {.steps = 4});
      trainer.step(tokens);
      EXPECT_EQ(error_of([&] { trainer.check_copies(); }), "no error");
      const DistTensor p = model->parameter("transformer.ln_f.weight");
      if (rt.rank() == 1) p.local().mutable_ptr<float>()[5] += 1e-6f;
      const std::string e = error_of([&] { trainer.check_copies(); });
      std::lock_guard lock(mutex);
      errors.insert(e);
    });
    ASSERT_EQ(errors.size(), 1u) << stage;  // the same sentence on every rank
    EXPECT_NE(errors.begin()->find("the copies of transformer.ln_f.weight"),
              std::string::npos)
        << *errors.begin();
    EXPECT_NE(errors.begin()->find("differ: rank 1 "), std::string::npos)
        << *errors.begin();
  }
}

// The losses and norms of a training, on a device that has graphs. It compares
// the copies, saves, and begins again from the checkpoint on its way.
std::vector<double> trained(const Mesh& mesh, int stage, DType dtype,
                            const TrainerOptions& options) {
  std::vector<double> values;
  RunOptions on_device;
  on_device.world = mesh.num_ranks();
  const auto device = RecordingDevice::make();
  on_device.device = [&](int64_t) -> Device& { return *device; };
  run(on_device, [&](Runtime& rt) {
    const auto model = tiny_gpt(mesh, stage, dtype);
    Trainer trainer(*model, options);
    for (int64_t i = 0; i < options.steps; ++i) {
      const StepResult r = trainer.step(tokens);
      EXPECT_EQ(r.replayed, options.cuda_graph && i >= 2);
      if (i == 4) trainer.check_copies();
      if (i == 5) {
        trainer.save();
        finish_saves();
        trainer.step(tokens);
        trainer.load(*latest_checkpoint(options.checkpoints));
        EXPECT_EQ(trainer.next_step(), i + 1);
      }
      if (rt.rank() == 0) {
        values.push_back(r.loss);
        values.push_back(r.grad_norm);
      }
    }
  });
  return values;
}

TEST(Trainer, ReplaysItsSteps) {
  for (const auto& [name, stage] :
       {std::pair{"dp=1", 0}, {"dp=2", 0}, {"dp=2", 2}, {"dp=2,tp=2", 3}})
    for (const int64_t micros : {1, 3}) {
      const auto run_in = [&](bool graphs) {
        return trained(Mesh::parse(name), stage,
                       micros == 3 ? DType::kBF16 : DType::kF32,
                       {.steps = 8,
                        .micro_batches = micros,
                        .cuda_graph = graphs,
                        .checkpoints = fresh_folder("replayed")});
      };
      const std::vector<double> want = run_in(false);
      EXPECT_EQ(want.size(), 16u);
      EXPECT_EQ(run_in(true), want) << name << " " << micros;
    }
}

// Without a schedule, the pipeline runs 1F1B with options.micro_batches.
TEST(Trainer, APipelineTrainsAsOneRankDoes) {
  const auto losses = [](const char* name) {
    std::vector<double> all;
    const Mesh mesh = Mesh::parse(name);
    run(mesh.num_ranks(), [&](Runtime& rt) {
      const auto model = tiny_gpt(mesh, 0, DType::kF64);
      Trainer trainer(*model,
                      {.steps = 3, .micro_batches = 4, .progress = false});
      const TrainingReport report = trainer.train(tokens);
      EXPECT_EQ(report.pipeline.span > 0, mesh.has_axis("pp"));
      for (const StepResult& r : report.steps)
        if (rt.rank() == 0) all.push_back(r.loss);
    });
    return all;
  };
  const std::vector<double> one = losses("dp=1"), two = losses("pp=2");
  ASSERT_EQ(two.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(two[i], one[i], 1e-12);
}

// ---- Trainers of a module of one's own ----

constexpr int64_t kRows = 7, kIn = 3, kWide = 5;

class Net : public Module {
 public:
  explicit Net(const Scope& at)
      : Module(at),
        up_(add<Linear>("up", kIn, kWide)),
        down_(add<Linear>("down", kWide, 1)) {}
  DistTensor forward(const DistTensor& x) const { return down_(tanh(up_(x))); }

 private:
  Child<Linear> up_, down_;
};

std::unique_ptr<Net> make_net(const Mesh& mesh, int stage = 0) {
  ParallelPlan plan;
  if (mesh.has_axis("tp"))
    plan = {{"up.*", {{"tp", Shard(0)}}}, {"down.weight", {{"tp", Shard(1)}}}};
  plan = zero(plan, stage, "dp");
  return std::make_unique<Net>(
      Scope{.mesh = mesh,
            .plan = std::make_shared<const ParallelPlan>(std::move(plan)),
            .dtype = DType::kF64,
            .seed = 3});
}

Loss loss_of(const Net& net) {
  return [&net](const DistTensor& x, const DistTensor& y) {
    return mse_loss(net.forward(x), y);
  };
}

// The rows of a step's batch, as plain numbers.
struct Rows {
  std::vector<double> x, y;
};
Rows rows_of(int64_t step, int64_t rows = kRows) {
  Rows r;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < kIn; ++c)
      r.x.push_back(
          std::sin(1.7 * static_cast<double>(31 * step + kIn * i + c)));
    r.y.push_back(r.x[r.x.size() - 3] * r.x[r.x.size() - 2]);
  }
  return r;
}
Batch as_batch(const Rows& r) {
  const auto n = std::ssize(r.y);
  return {Tensor::from({n, kIn}, r.x.data()), Tensor::from({n, 1}, r.y.data())};
}
Batch examples(int64_t step) { return as_batch(rows_of(step)); }

// The same training in plain loops: the formulas of the network's gradient, of
// clip_grad_norm_, of AdamW and of the schedule, on vectors of doubles.
struct Plain {
  // up.weight, up.bias, down.weight, down.bias
  std::vector<std::vector<double>> p, m, v;

  explicit Plain(const Net& net) {
    for (const DistTensor& t : net.parameters())
      p.push_back(t.full().to_doubles());
    for (const auto& x : p) m.emplace_back(x.size(), 0.0);
    v = m;
  }
  // The mean squared error, and its gradient if g is given.
  double loss(const Rows& rows, std::vector<std::vector<double>>* g) const {
    double sum = 0;
    const size_t n = rows.y.size();
    for (size_t r = 0; r < n; ++r) {
      double h[kWide], out = p[3][0];
      for (size_t k = 0; k < kWide; ++k) {
        double z = p[1][k];
        for (size_t c = 0; c < kIn; ++c)
          z += p[0][k * kIn + c] * rows.x[r * kIn + c];
        h[k] = std::tanh(z);
        out += p[2][k] * h[k];
      }
      const double e = out - rows.y[r], d = 2 * e / static_cast<double>(n);
      sum += e * e / static_cast<double>(n);
      if (!g) continue;
      (*g)[3][0] += d;
      for (size_t k = 0; k < kWide; ++k) {
        const double dz = d * p[2][k] * (1 - h[k] * h[k]);
        (*g)[2][k] += d * h[k];
        (*g)[1][k] += dz;
        for (size_t c = 0; c < kIn; ++c)
          (*g)[0][k * kIn + c] += dz * rows.x[r * kIn + c];
      }
    }
    return sum;
  }
  // Makes step i, from 0. Returns {loss, norm}.
  std::pair<double, double> step(int64_t i, double lr, double decay,
                                 double clip) {
    std::vector<std::vector<double>> g;
    for (const auto& x : p) g.emplace_back(x.size(), 0.0);
    const double before = loss(rows_of(i), &g);
    double norm = 0;
    for (const auto& x : g)
      for (const double a : x) norm += a * a;
    norm = std::sqrt(norm);
    const double factor = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;
    const auto t = static_cast<double>(i + 1);
    for (size_t j = 0; j < p.size(); ++j)
      for (size_t k = 0; k < p[j].size(); ++k) {
        const double a = factor * g[j][k];
        m[j][k] = 0.9 * m[j][k] + 0.1 * a;
        v[j][k] = 0.999 * v[j][k] + 0.001 * a * a;
        if (j % 2 == 0) p[j][k] *= 1 - lr * decay;  // matrices only
        p[j][k] -= lr * m[j][k] / (1 - std::pow(0.9, t)) /
                   (std::sqrt(v[j][k] / (1 - std::pow(0.999, t))) + 1e-8);
      }
    return {before, norm};
  }
};

// The rate of step i of 6: two steps warm up, and the rate falls to a tenth.
double rate(int64_t i) {
  if (i < 2) return 0.05 * static_cast<double>(i + 1) / 2;
  return 0.05 * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi *
                                            static_cast<double>(i - 2) / 4)));
}

TEST(Trainer, TrainsAsPlainLoopsDo) {
  for (const int stage : {0, 1, 3})
    for (const int64_t micros : {1, 3})
      for (const double clip : {0.0, 0.2})
        run(4, [&](Runtime& rt) {
          const auto net = make_net(rt.mesh({{"dp", 2}, {"tp", 2}}), stage);
          Plain plain(*net);
          Trainer trainer(*net, loss_of(*net),
                          {.steps = 6,
                           .lr = 0.05,
                           .warmup = 2,
                           .weight_decay = 0.3,
                           .clip = clip,
                           .micro_batches = micros,
                           .check_copies_every = 2,
                           .progress = false});
          const TrainingReport report = trainer.train(examples);
          ASSERT_EQ(report.steps.size(), 6u);
          bool clipped = false;
          for (int64_t i = 0; i < 6; ++i) {
            const auto [loss, norm] = plain.step(i, rate(i), 0.3, clip);
            const StepResult& r = report.steps[static_cast<size_t>(i)];
            EXPECT_NEAR(r.loss, loss, 1e-12) << i;
            EXPECT_NEAR(r.grad_norm, norm, 1e-12) << i;
            clipped = clipped || norm > 0.2;
          }
          EXPECT_TRUE(clipped);
          const std::vector<DistTensor> parameters = net->parameters();
          for (size_t j = 0; j < parameters.size(); ++j) {
            const std::vector<double> now = parameters[j].full().to_doubles();
            for (size_t k = 0; k < now.size(); ++k)
              EXPECT_NEAR(now[k], plain.p[j][k], 1e-11) << j << " " << k;
          }
          // A batch of seven rows and one of one row: the mean is over rows,
          // not over batches.
          double want = 0;
          for (const int64_t i : {0, 1})
            want += plain.loss(rows_of(i, i ? 1 : 7), nullptr) * (i ? 1 : 7);
          EXPECT_NEAR(
              trainer.evaluate(
                  2, [](int64_t i) { return as_batch(rows_of(i, i ? 1 : 7)); }),
              want / 8, 1e-12);
          EXPECT_EQ(error_of([&] { (void)trainer.evaluate(0, examples); }),
                    "[evaluate] 0 batches are to be evaluated; write 1 or "
                    "more");
        });
}

// The losses of a training that may resume and that saves, from the first step
// of this call on.
std::vector<double> saved_losses(const std::string& mesh, int stage,
                                 const TrainerOptions& options, bool resumes) {
  std::vector<double> losses;
  const Mesh on = Mesh::parse(mesh);
  run(on.num_ranks(), [&](Runtime& rt) {
    const auto net = make_net(on, stage);
    Trainer trainer(*net, loss_of(*net), options);
    if (resumes) trainer.resume();
    const TrainingReport report = trainer.train(examples);
    if (rt.rank() != 0) return;
    EXPECT_EQ(report.first_step + std::ssize(report.steps), options.steps);
    for (const StepResult& r : report.steps) losses.push_back(r.loss);
  });
  return losses;
}

// Step 0 was taken for an earlier training's, even after resume().
TEST(Trainer, TrainsOnFromItsOwnStep0) {
  const TrainerOptions options{.steps = 2,
                               .lr = 0.05,
                               .checkpoints = fresh_folder("step_0"),
                               .save_every = 2,
                               .progress = false};
  for (const bool resumes : {false, true}) {
    std::filesystem::remove_all(options.checkpoints + "/step-00000002");
    run(2, [&](Runtime&) {
      const Mesh on = Mesh::parse("dp=2");
      const auto net = make_net(on, 0);
      Trainer trainer(*net, loss_of(*net), options);
      if (resumes)
        EXPECT_TRUE(trainer.resume());
      else
        trainer.save();
      EXPECT_EQ(trainer.next_step(), 0);
      EXPECT_EQ(trainer.train(examples).steps.size(), 2u);
      finish_saves();
    });
    const auto position = [&](const std::string& step) {
      return training_state(CheckpointReader(options.checkpoints + step))
          .data_position;
    };
    EXPECT_EQ(position("/step-00000000"), 0);
    EXPECT_EQ(position("/step-00000002"),
              examples(0).inputs.shape()[0] + examples(1).inputs.shape()[0]);
  }
}

TEST(Trainer, ResumesAsIfItHadNotStopped) {
  const std::string folder = fresh_folder("resumed");
  TrainerOptions options{.steps = 12,
                         .lr = 0.05,
                         .checkpoints = folder,
                         .save_every = 4,
                         .keep = 2,
                         .data = {{"seed", int64_t{7}}},
                         .progress = false};
  const std::vector<double> whole =
      saved_losses("dp=2,tp=2", 1, options, false);
  ASSERT_EQ(whole.size(), 12u);
  EXPECT_EQ(list_checkpoints(folder).size(), 2u);
  const auto forget_the_last = [&] {
    std::filesystem::remove_all(folder + "/step-00000012");
  };
  forget_the_last();
  const std::vector<double> end(whole.begin() + 8, whole.end());
  EXPECT_EQ(saved_losses("dp=2,tp=2", 1, options, true), end);
  forget_the_last();
  const std::vector<double> elsewhere = saved_losses("dp=3", 3, options, true);
  ASSERT_EQ(elsewhere.size(), end.size());
  for (size_t i = 0; i < end.size(); ++i)
    EXPECT_NEAR(elsewhere[i], end[i], 1e-12) << i;
  forget_the_last();
  // The rate goes on falling as in the training that was saved.
  TrainerOptions longer = options;
  longer.steps = 14;
  const std::vector<double> more = saved_losses("dp=2,tp=2", 1, longer, true);
  ASSERT_EQ(more.size(), 6u);
  EXPECT_EQ(std::vector<double>(more.begin(), more.begin() + 4), end);

  options.steps = 16;
  EXPECT_NE(error_of([&] {
              saved_losses("dp=2", 0, options, false);
            }).find("exists from an earlier training; call resume()"),
            std::string::npos);
  const std::string last = *latest_checkpoint(folder);
  TrainerOptions asks{.data = options.data};
  check_resume("here", last, asks);
  EXPECT_EQ(asks.lr_steps, 12);
  asks.data["shuffle"] = "yes";
  EXPECT_EQ(error_of([&] { check_resume("here", last, asks); }),
            "[here] " + last +
                " was saved with shuffle (none), but this training has "
                "\"yes\"; pass what it was saved with, so that training goes "
                "on with the same data");
  options.data = {{"seed", int64_t{8}}};
  EXPECT_NE(error_of([&] {
              saved_losses("dp=2", 0, options, true);
            }).find("was saved with seed 7, but this training has 8"),
            std::string::npos);
  options.checkpoints = "";
  EXPECT_NE(error_of([&] {
              saved_losses("dp=2", 0, options, true);
            }).find("there is no folder to resume from"),
            std::string::npos);
}

// The error of three steps of training on dp=2,tp=2, with batches(context,
// step).
std::string error_of_training(
    const std::function<Batch(RankContext&, int64_t)>& batches,
    const TrainerOptions& options) {
  return error_of([&] {
    run(4, [&](Runtime& rt) {
      const auto net = make_net(rt.mesh({{"dp", 2}, {"tp", 2}}));
      Trainer(*net, loss_of(*net), options).train([&](int64_t i) {
        return batches(rt.context(), i);
      });
    });
  });
}

// Sends one number from each rank to all.
void send_more() {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  ones({4}, mesh, {{"dp", Shard(0)}}).redistribute("R,R");
}

// If the loss scale has fallen, it is still low when a training resumes.
TEST(Trainer, TheLossScaleIsSaved) {
  const std::string folder = fresh_folder("scaled");
  for (const bool resumes : {false, true})
    run(2, [&](Runtime& rt) {
      const auto net = make_net(rt.mesh({{"dp", 2}}));
      Trainer trainer(*net, loss_of(*net),
                      {.loss_scale = 1024, .checkpoints = folder});
      if (resumes) {
        ASSERT_TRUE(trainer.resume());
        EXPECT_EQ(trainer.step(examples).loss_scale, 512);
        return;
      }
      const StepResult r = trainer.step([](int64_t i) {
        Rows rows = rows_of(i);
        rows.x[0] = std::numeric_limits<double>::infinity();
        return as_batch(rows);
      });
      EXPECT_TRUE(r.skipped);
      EXPECT_EQ(r.loss_scale, 512);
      trainer.save();
      finish_saves();
    });
}

TEST(Trainer, BytesThatWereNotPlannedAreAnError) {
  TrainerOptions options{.steps = 3, .progress = false};
  const auto at_step = [](int64_t which, bool miscounts) {
    return [=](RankContext& context, int64_t i) {
      if (i == which) send_more();
      if (i == which && miscounts && context.world_rank == 1)
        context.events.back().counted += 8;
      return examples(i);
    };
  };
  EXPECT_EQ(error_of_training(at_step(-1, false), options), "no error");
  EXPECT_EQ(error_of_training(at_step(0, false), {.steps = 1}), "no error");
  // The plan has 8 bytes.
  EXPECT_NE(error_of_training(at_step(0, true), {.steps = 1})
                .find("with 8 bytes planned and 16 counted"),
            std::string::npos)
      << error_of_training(at_step(0, true), {.steps = 1});
  EXPECT_NE(
      error_of_training(at_step(2, false), options).find(", step 2 received "),
      std::string::npos);
  options.check_bytes = false;
  EXPECT_EQ(error_of_training(at_step(2, false), options), "no error");
}

TEST(Trainer, ARecordHasTheCollectivesOfAllSteps) {
  for (const bool checks : {false, true})
    run(2, [&](Runtime& rt) {
      const auto net = make_net(rt.mesh({{"dp", 2}}));
      Trainer trainer(*net, loss_of(*net),
                      {.steps = 3, .check_bytes = checks, .progress = false});
      const CommRecord record;
      trainer.step(examples);
      const size_t of_a_step = record.events().size();
      EXPECT_GT(of_a_step, 0u);
      trainer.train(examples);
      // More than the steps' collectives: ranks also compare their reports.
      EXPECT_GE(record.events().size(), 3 * of_a_step);
    });
}

class Layers : public Module {
 public:
  explicit Layers(const Scope& at)
      : Module(at),
        first_(add<Linear>("0", 4, 4)),
        second_(add<Linear>("1", 4, 4)) {}

 private:
  Child<Linear> first_, second_;
};
class Net2 : public Module {
 public:
  explicit Net2(const Scope& at)
      : Module(at),
        layers_(add<Layers>("net2")),
        head_(add<Linear>("head", 4, 9)) {}

 private:
  Child<Layers> layers_;
  Child<Linear> head_;
};

// The budget for gathered parameters is a block's bytes: the largest element of
// a list or, without lists, the largest module. "net2" was taken for a block.
TEST(Trainer, FindsABlockByTheList) {
  run(2, [](Runtime& rt) {
    const Scope at{
        .mesh = rt.mesh({{"dp", 2}}), .plan = {}, .dtype = DType::kF64};
    Net2 net2(at);
    Net net(at);
    const Loss none = [](const DistTensor& x, const DistTensor&) { return x; };
    const Trainer of_list(net2, none, {});
    EXPECT_EQ(rt.context().gather_budget, (4 * 4 + 4) * 8);
    const Trainer of_modules(net, none, {});
    EXPECT_EQ(rt.context().gather_budget, (kIn * kWide + kWide) * 8);
  });
}

TEST(Trainer, ADryRunPredictsTheStep) {
  for (const int stage : {0, 3}) {
    RunOptions options;
    options.world = 4;
    options.mesh = "dp=2,tp=2";
    const auto predicted = [&](int64_t micros) {
      return predict(options, {kRows, kIn}, [&](Runtime& rt) {
        const auto net = make_net(rt.mesh(), stage);
        return Trainer(*net, loss_of(*net), {.micro_batches = micros})
            .predict(examples);
      });
    };
    const std::string folder = fresh_folder("dry");
    const Prediction right = predicted(1), wrong = predicted(2);
    EXPECT_EQ(right.parameters, kIn * kWide + kWide + kWide + 1);
    run(options, [&](Runtime& rt) {
      const auto net = make_net(rt.mesh(), stage);
      Trainer trainer(*net, loss_of(*net),
                      {.steps = 3, .checkpoints = folder, .progress = false});
      const TrainingReport report = trainer.train(examples);
      EXPECT_FALSE(report.events.empty());
      EXPECT_EQ(error_of([&] { check_agreement(right, report); }), "no error");
      EXPECT_NE(error_of([&] { check_agreement(wrong, report); }), "no error");
      EXPECT_GT(report.memory.peak, 0);
      for (const MemoryKind k : {MemoryKind::kParameters, MemoryKind::kState})
        EXPECT_EQ(report.memory.kinds[static_cast<size_t>(k)],
                  right.memory.kinds[static_cast<size_t>(k)]);
      EXPECT_NE(error_of([&] { trainer.predict(examples); }).find("dry run"),
                std::string::npos);
    });
    // A program that trains can run dry without changes. It loads and saves
    // nothing then.
    options.dry_run = true;
    run(options, [&](Runtime& rt) {
      const auto net = make_net(rt.mesh(), stage);
      Trainer trainer(*net, loss_of(*net), {.steps = 3, .checkpoints = folder});
      EXPECT_EQ(trainer.resume(), std::nullopt);
      EXPECT_EQ(trainer.train(examples).steps.size(), 3u);
    });
    EXPECT_EQ(list_checkpoints(folder).size(), 1u);
  }
}

TEST(Trainer, OptionsAndBatchesThatDoNotFit) {
  const auto error = [](const TrainerOptions& options, int64_t rows) {
    return error_of([&] {
      run(2, [&](Runtime& rt) {
        const auto net = make_net(rt.mesh({{"dp", 2}}));
        Trainer(*net, loss_of(*net), options).step([&](int64_t i) {
          return as_batch(rows_of(i, rows));
        });
      });
    });
  };
  const std::string scalars = error_of([&] {
    run(1, [&](Runtime& rt) {
      const auto net = make_net(rt.mesh({{"dp", 1}}));
      const Tensor one = Tensor::full({}, DType::kF64, 1);
      Trainer(*net, loss_of(*net), {}).step([&](int64_t) {
        return Batch{one, one};
      });
    });
  });
  EXPECT_EQ(scalars,
            "[trainer] inputs have shape [], and targets []; give both a "
            "dimension of rows");
  EXPECT_EQ(error({.micro_batches = 3}, 3), "no error");
  EXPECT_EQ(error({.micro_batches = 4}, 3),
            "[trainer] in the batch of step 0, the numbers of inputs, targets "
            "and micro-batches are 3, 3 and 4; give each input a target, and "
            "each micro-batch an input");
  EXPECT_EQ(error({.save_every = 0}, 3),
            "[trainer] steps is 1000, micro_batches 1 and save_every 0; write "
            "1 or more for each");
  EXPECT_EQ(error({.loss_scale = 64, .cuda_graph = true}, 3),
            "[trainer] loss_scale is 64, but a graph cannot skip a step whose "
            "gradients overflow; set loss_scale to 0, or cuda_graph to false");
}

}  // namespace
}  // namespace dtensor::nn
