// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/dtensor/io/checkpoint_testing.h"
#include "tests/dtensor/message_passing.h"

namespace dtensor::nn {
namespace {

using namespace dtensor::testing;

ModelConfig config(const std::string& name, DType dtype, int64_t hidden = 24) {
  ModelConfig c{.name = name,
                .layers = 1,
                .hidden = hidden,
                .heads = 6,
                .seq = 5,
                .vocab = 17,
                .dtype = dtype};
  if (name == "llama") c.kv_heads = 2;
  return c;
}

// A model and its optimizer. They learn from numbers that the run's own
// generator draws, so a run also has to continue with the state of that
// generator.
struct Training {
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<Optimizer> optimizer;
  TrainingState at;

  Training(const ModelConfig& c, const Mesh& mesh, uint64_t seed,
           bool sgd = false)
      : model(make_model(c, mesh, seed)) {
    const ParameterGroups groups = decay_matrices(model->named_parameters());
    if (sgd)
      optimizer = std::make_unique<SGD>(groups, SGDOptions{.momentum = 0.9});
    else
      optimizer = std::make_unique<AdamW>(groups);
  }
  void step() {
    const Mesh& mesh = model->mesh();
    const auto draw = [&] {
      return randint(0, 17, {4, 5}, mesh, batch_placements(mesh));
    };
    const DistTensor tokens = draw();
    const DistTensor loss = model->loss(tokens, draw());
    optimizer->step(grad(loss, optimizer->parameters()), {.lr = 1e-2});
    ++at.step;
    at.data_position += 20;
  }
  // Parameters and optimizer state by name: this rank's parts, or the whole
  // tensors.
  std::map<std::string, std::vector<char>> bits(bool whole = false) const {
    std::map<std::string, std::vector<char>> all;
    const auto add = [&](const std::string& name, const DistTensor& x) {
      all[name] = dtensor::testing::bits(whole ? x.full() : x.local());
    };
    for (const NamedParameter& p : model->named_parameters())
      add(p.name, p.tensor);
    for (const OptimizerState& s : optimizer->state()) add(s.name, s.value);
    return all;
  }
};

RunOptions kind_of_run(const std::string& kind, int64_t world) {
  static const auto device = RecordingDevice::make();
  RunOptions options = of_ranks(world);
  if (kind == "messages") options.backend = message_passing_backend;
  if (kind == "device")
    options.device = [](int64_t) -> Device& { return *device; };
  return options;
}

TEST(TrainingCheckpoint, AResumedRunContinuesBitForBit) {
  struct {
    const char *kind, *model, *mesh;
    DType dtype;
    bool background, sgd;
  } cases[] = {{"threads", "gpt", "dp=2,tp=2", DType::kF32, false, false},
               {"threads", "llama", "dp=2,tp=3", DType::kBF16, true, false},
               {"threads", "gpt", "fsdp=2", DType::kBF16, false, true},
               {"threads", "llama", "tp=2", DType::kF16, false, false},
               {"messages", "gpt", "tp=3", DType::kF64, true, false},
               {"device", "llama", "dp=2,tp=2", DType::kBF16, true, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.kind) + " " + c.mesh);
    const Folder dir("resumed");
    const Mesh mesh = Mesh::parse(c.mesh);
    std::vector<std::map<std::string, std::vector<char>>> want(
        static_cast<size_t>(mesh.num_ranks()));
    const RunOptions options = kind_of_run(c.kind, mesh.num_ranks());
    run(options, [&](Runtime& rt) {
      manual_seed(5);
      Training t(config(c.model, c.dtype), mesh, 1, c.sgd);
      t.at.values["name"] = "first";
      t.step();
      t.step();
      save_checkpoint(dir.path(), *t.model, *t.optimizer, t.at,
                      {.background = c.background});
      t.step();
      t.step();
      want[size_t(rt.rank())] = t.bits();
    });
    run(options, [&](Runtime& rt) {
      Training t(config(c.model, c.dtype), mesh, 2, c.sgd);
      EXPECT_NE(t.bits(), want[size_t(rt.rank())]);
      t.at = load_checkpoint(*latest_checkpoint(dir.path()), *t.model,
                             *t.optimizer);
      EXPECT_EQ(t.at.step, 2);
      const TrainingState before =
          training_state(CheckpointReader(*latest_checkpoint(dir.path())));
      EXPECT_EQ(before.step, 2);
      EXPECT_EQ(before.values, t.at.values);
      EXPECT_EQ(t.at.data_position, 40);
      EXPECT_EQ(t.at.values, (CheckpointValues{{"name", "first"}}));
      EXPECT_EQ(t.optimizer->steps(), 2);
      t.step();
      t.step();
      EXPECT_EQ(t.bits(), want[size_t(rt.rank())]);
    });
  }
}

// A checkpoint names moments, f32 masters and steps after the model's
// parameters. The optimizer's own names may be positions in parameters(), which
// differ in the next program's list.
TEST(TrainingCheckpoint, NamesAreThoseOfTheModel) {
  const Folder dir("names"), before("names_before");
  run(of_ranks(2), [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"tp", 2}});
    Training saved(config("gpt", DType::kBF16), mesh, 1);
    saved.optimizer = std::make_unique<AdamW>(saved.model->parameters());
    saved.step();
    save_checkpoint(dir.path(), *saved.model, *saved.optimizer, saved.at);
    Training loaded(config("gpt", DType::kBF16), mesh, 2);
    const std::string path = *latest_checkpoint(dir.path());
    load_checkpoint(path, *loaded.model, *loaded.optimizer);
    const auto of = [](const Optimizer& o) {
      std::map<std::pair<const void*, std::string>, std::vector<char>> all;
      for (const OptimizerState& s : o.state())
        all[{s.parameter.impl().get(), s.name.substr(s.name.rfind('.'))}] =
            dtensor::testing::bits(s.value.local());
      return all;
    };
    const auto want = of(*saved.optimizer), got = of(*loaded.optimizer);
    ASSERT_EQ(got.size(), want.size());
    for (const NamedParameter& p : saved.model->named_parameters())
      for (const char* state :
           {".exp_avg", ".exp_avg_sq", ".master", ".step"}) {
        const DistTensor other = loaded.model->parameter(p.name);
        EXPECT_EQ((got.at({other.impl().get(), state})),
                  (want.at({p.tensor.impl().get(), state})))
            << p.name << state;
      }
    // An optimizer without names can load it as well.
    Training third(config("gpt", DType::kBF16), mesh, 3);
    third.optimizer = std::make_unique<AdamW>(third.model->parameters());
    load_checkpoint(path, *third.model, *third.optimizer);
    EXPECT_EQ(third.optimizer->steps(), 1);
    // Earlier versions wrote the optimizer's names to the file.
    std::vector<NamedTensor> all;
    for (const NamedParameter& p : saved.model->named_parameters())
      all.push_back({"model/" + p.name, p.tensor});
    for (const OptimizerState& s : saved.optimizer->state())
      all.push_back({"optimizer/" + s.name, s.value});
    dtensor::save_checkpoint(before.path(), saved.at.step, all,
                             CheckpointReader(path).values());
    load_checkpoint(*latest_checkpoint(before.path()), *third.model,
                    *third.optimizer);
    EXPECT_EQ(third.bits(), saved.bits());
  });
}

TEST(TrainingCheckpoint, AnyMeshTakesItOnBitForBit) {
  const std::vector<std::string> meshes = {"dp=2,tp=4", "tp=3", "dp=1,tp=6",
                                           "dp=1", "fsdp=2"};
  for (const std::string& from : meshes) {
    const Folder dir("any_mesh");
    std::map<std::string, std::vector<char>> want;
    RandomState drawn;
    const Mesh mesh = Mesh::parse(from);
    run(mesh.num_ranks(), [&](Runtime& rt) {
      Training t(config("gpt", DType::kBF16), mesh, 1);
      t.step();
      save_checkpoint(dir.path(), *t.model, *t.optimizer, t.at);
      const auto all = t.bits(true);
      if (rt.rank() == 0) want = all, drawn = random_state();
    });
    EXPECT_TRUE(want.contains("transformer.wte.weight.master"));
    for (const std::string& to : meshes) {
      const Mesh other = Mesh::parse(to);
      run(other.num_ranks(), [&](Runtime&) {
        Training t(config("gpt", DType::kBF16), other, 2);
        load_checkpoint(dir / "step-00000001", *t.model, *t.optimizer);
        EXPECT_EQ(t.bits(true), want) << from << " to " << to;
        EXPECT_EQ(random_state(), drawn);
      });
    }
  }
}

// If the model is another one, the Error lists the names, and nothing has
// changed.
TEST(TrainingCheckpoint, OfAnotherModel) {
  const Folder dir("another");
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime&) {
    Training t(config("gpt", DType::kF32), mesh, 1);
    t.step();
    save_checkpoint(dir.path(), *t.model, *t.optimizer, t.at);
  });
  const std::string path = dir / "step-00000001";
  const auto expect_error = [&](const ModelConfig& c, bool sgd, bool cast,
                                const std::vector<std::string>& parts) {
    const auto errors = errors_on(of_ranks(2), [&](Runtime&) {
      Training t(c, mesh, 2, sgd);
      t.step();
      const auto before = t.bits();
      const RandomState random = random_state();
      const std::string e = error_of([&] {
        load_checkpoint(path, *t.model, *t.optimizer, {.cast = cast});
      });
      EXPECT_EQ(t.bits(), before);
      EXPECT_EQ(random_state(), random);
      throw Error(e);
    });
    EXPECT_EQ(errors[0], errors[1]);
    for (const std::string& part : parts)
      EXPECT_NE(errors[0].find(part), std::string::npos)
          << part << " is not in: " << errors[0];
  };
  expect_error(
      config("gpt", DType::kF32, 36), false, false,
      {path, "of another shape (",
       "model/transformer.wte.weight: saved [17, 24], wanted [17, 36]"});
  expect_error(config("llama", DType::kF32), false, false,
               {"are missing (model/model.embed_tokens.weight",
                "are unknown (model/transformer.h.0.attn"});
  expect_error(config("gpt", DType::kF32), true, false,
               {"are missing (optimizer/", ".momentum_buffer",
                "are unknown (optimizer/"});
  expect_error(
      config("gpt", DType::kF64), false, false,
      {"of another type, which CheckpointLoadOptions::cast converts between "
       "floats (model/",
       "saved f32, wanted f64"});
  expect_error(config("gpt", DType::kBF16), false, false,
               {"missing (", "weight.master", "saved f32, wanted bf16"});

  // A checkpoint without a model.
  run(2, [&](Runtime&) { dtensor::save_checkpoint(dir.path(), 2, {}, {}); });
  fs::rename(dir / "step-00000002/index.json", path + "/index.json");
  expect_error(config("gpt", DType::kF32), false, false, {"are missing"});
}

// Damage is found before anything has changed.
TEST(TrainingCheckpoint, DamageChangesNothing) {
  const Folder dir("damaged");
  const Mesh mesh = Mesh::parse("tp=2");
  const std::string file = dir / "step-00000001/rank-00001.safetensors";
  run(2, [&](Runtime&) {
    Training t(config("gpt", DType::kF32), mesh, 1);
    save_checkpoint(dir.path(), *t.model, *t.optimizer, {.step = 1});
  });
  const std::string good = text_of(file);
  for (const bool missing : {false, true}) {
    if (missing) {
      fs::remove(file);
    } else {
      std::string bad = good;
      bad.back() ^= 4;
      write_text(file, bad);
    }
    const auto errors = errors_on(of_ranks(2), [&](Runtime&) {
      Training t(config("gpt", DType::kF32), mesh, 2);
      t.step();
      const auto before = t.bits();
      const std::string e = error_of([&] {
        load_checkpoint(dir / "step-00000001", *t.model, *t.optimizer);
      });
      EXPECT_EQ(t.bits(), before);
      throw Error(e);
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_NE(errors[0].find("rank-00001.safetensors"), std::string::npos)
        << errors[0];
  }
}

TEST(TrainingCheckpoint, CastsWhenAsked) {
  const Folder dir("cast");
  const Mesh mesh = Mesh::parse("tp=2");
  const DType types[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};
  for (const DType from : types) {
    const int64_t step = static_cast<int64_t>(from);
    run(2, [&](Runtime&) {
      Training t(config("gpt", from), mesh, 1);
      t.step();
      t.at.step = step;
      save_checkpoint(dir.path(), *t.model, *t.optimizer, t.at);
    });
    const std::string path = dir / fmt::format("step-{:08}", step);
    for (const DType to : types)
      run(2, [&](Runtime&) {
        Training t(config("gpt", to), mesh, 2);
        load_checkpoint(path, *t.model, *t.optimizer, {.cast = true});
        const CheckpointReader saved(path);
        const std::string name = "transformer.h.0.mlp.c_fc.weight";
        // Both copies are made from the most exact copy that was saved.
        const bool master = is_half_float(from) && to != from;
        const DistTensor w = t.model->parameter(name);
        const Tensor was = saved
                               .read(master ? "optimizer/" + name + ".master"
                                            : "model/" + name,
                                     mesh, w.layout())
                               .local();
        const auto expect_near = [&](const Tensor& is, double tolerance,
                                     double least = 0) {
          const auto a = is.to_doubles(), b = was.to_doubles();
          ASSERT_EQ(a.size(), b.size());
          for (size_t i = 0; i < a.size(); ++i)
            ASSERT_NEAR(a[i], b[i], tolerance * std::abs(b[i]) + least)
                << name << " " << dtensor::name(from) << dtensor::name(to);
        };
        const double exact = to == DType::kBF16  ? 1. / 256
                             : to == DType::kF16 ? 1. / 2048
                             : to == DType::kF32 ? 1e-7
                                                 : 0;
        // Small f16 numbers are multiples of 2^-24.
        expect_near(w.local(), from == to ? 0 : exact,
                    from != to && to == DType::kF16 ? 0x1p-25 : 0);
        if (is_half_float(to) && from != to)
          for (const OptimizerState& s : t.optimizer->state())
            if (s.name == name + ".master") expect_near(s.value.local(), 1e-7);
        t.step();
      });
  }
}

TEST(TrainingCheckpoint, ADryRunDoesNothing) {
  const Folder dir("dry");
  const Mesh mesh = Mesh::parse("tp=2");
  RunOptions dry = of_ranks(2);
  dry.dry_run = true;
  run(dry, [&](Runtime&) {
    Training t(config("gpt", DType::kF32), mesh, 1);
    save_checkpoint(dir.path(), *t.model, *t.optimizer, {.step = 1});
    EXPECT_EQ(load_checkpoint(dir / "none", *t.model, *t.optimizer).step, 0);
  });
  EXPECT_TRUE(names_in(dir.path()).empty());
}

// Ranks whose generators differ cannot save.
TEST(TrainingCheckpoint, RanksThatDrewOtherwise) {
  const Folder dir("drew");
  const Mesh mesh = Mesh::parse("tp=2");
  const auto fails = [&](const std::function<void(int64_t)>& differ) {
    const auto errors = errors_on(of_ranks(2), [&](Runtime& rt) {
      Training t(config("gpt", DType::kF32), mesh, 1);
      differ(rt.rank());
      save_checkpoint(dir.path(), *t.model, *t.optimizer, {});
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_TRUE(names_in(dir.path()).empty());
    return errors[0];
  };
  EXPECT_NE(fails([](int64_t rank) {
              manual_seed(static_cast<uint64_t>(rank));
            }).find("rank 1 has the seed 1, but rank 0 has 0"),
            std::string::npos);
  EXPECT_NE(fails([](int64_t rank) {
              set_random_state(
                  {.seed = 1, .times = {{0, static_cast<uint64_t>(rank)}}});
            }).find("random generator is 1 on rank 1, but 0 on another"),
            std::string::npos);
}

}  // namespace
}  // namespace dtensor::nn
