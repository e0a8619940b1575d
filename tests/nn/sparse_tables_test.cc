// SPDX-License-Identifier: Apache-2.0
// A Trainer updates the used rows of its tables as torch does, on every mesh.
#include "dtensor/nn/sparse_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/nn/layers.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/ops/by_index.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/data_shapes.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/losses.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;
using dtensor::testing::error_of;

constexpr int64_t kRows = 11, kWidth = 5, kBags = 4, kIds = 3;

// Bags of the table's rows, through a head.
class Bags : public Module {
 public:
  explicit Bags(const Scope& at)
      : Module(at),
        table_(add<Embedding>("table", kRows, kWidth)),
        head_(add<Linear>("head", kWidth, 1, false)) {}
  DistTensor forward(const DistTensor& ids) const {
    const UsedRows used = used_rows(table_->table(), ids);
    return head_(
        embedding_bag(used.rows, used.places, {.mode = BagMode::kSum}));
  }
  const DistTensor& table() const { return table_->table(); }

 private:
  Child<Embedding> table_;
  Child<Linear> head_;
};

struct Case {
  std::string mesh;
  int split = -1;  // the table's dimension that tp splits
  int zero_stage = 0;
};
const Case kCases[] = {
    {"dp=1"},
    {"dp=2"},
    {"dp=3"},  // some ranks have no rows of a micro-batch
    {"dp=2", -1, 1},
    {"dp=2", -1, 2},
    {"dp=2", -1, 3},
    {"tp=3", 0},
    {"dp=2,tp=2", 0},
    {"dp=2,tp=2", 1},
    {"dp=2,tp=2", 0, 3},
};

std::unique_ptr<Bags> make_model(const Mesh& mesh, const Case& c) {
  ParallelPlan plan;
  if (c.split >= 0) plan = {{"table.weight", {{"tp", Shard(c.split)}}}};
  plan = zero(plan, c.zero_stage, "dp");
  auto model = std::make_unique<Bags>(
      Scope{.mesh = mesh,
            .plan = std::make_shared<const ParallelPlan>(std::move(plan)),
            .dtype = DType::kF64});
  Values table, head;
  for (int64_t i = 0; i < kRows * kWidth; ++i)
    table.push_back(std::sin(1.1 * static_cast<double>(i)));
  for (int64_t i = 0; i < kWidth; ++i)
    head.push_back(std::cos(0.7 * static_cast<double>(i)));
  const auto given = [&](const Shape& shape, const Values& v) {
    return DistTensor::from_global(Tensor::from(shape, v.data()), mesh, "");
  };
  model->load_state_dict({{"table.weight", given({kRows, kWidth}, table)},
                          {"head.weight", given({1, kWidth}, head)}});
  return model;
}

// Many ids are equal; rows 4 to 7 are never used.
Batch batch_of(int64_t step) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kBags * kIds; ++i) {
    const int64_t id = (i * i + 3 * step) % 7 % kRows;
    ids.push_back(id < 4 ? id : id + 4);
  }
  Values targets;
  for (int64_t b = 0; b < kBags; ++b)
    targets.push_back(std::sin(1.3 * static_cast<double>(b + 5 * step)));
  return {Tensor::from({kBags, kIds}, ids.data()),
          Tensor::from({kBags, 1}, targets.data())};
}

Loss loss_of(const Bags& model) {
  return [&model](const DistTensor& x, const DistTensor& y) {
    return mse_loss(model.forward(x), y);
  };
}

TrainerOptions options_of(bool adam) {
  TrainerOptions o{.steps = 4,
                   .rate = [](int64_t) { return 0.01; },
                   .sparse = {"table.weight"},
                   .clip = 0.5,
                   .check_bytes = false,
                   .progress = false};
  o.optimizer = [adam](const ParameterGroups& g) -> std::unique_ptr<Optimizer> {
    if (!adam) return std::make_unique<SGD>(g);
    return std::make_unique<AdamW>(
        g, AdamWOptions{.eps = 1e-30, .weight_decay = 0});
  };
  return o;
}

void expect_near(const Values& got, const Values& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-11 * (1 + std::abs(want[i]))) << i;
}

// Column 0 of the table, the head, and the norms before clipping to 0.5 after
// four steps in torch 2.15 with F.embedding_bag(sparse=True), SparseAdam and
// AdamW(weight_decay=0), both with eps = 1e-30, or SGD.
struct Want {
  bool adam;
  Values table, head, norms;
};
const Want kWant[] = {
    {true,
     {-0.0271863223273, -0.7134846940096, -0.9828097977352, -0.7079979766449,
      -0.008851309290404, 0.6992400316551, 0.9999118601073, 0.7179745927716,
      0.01826282919073, -0.7003263224694, -0.9856028719506},
     {0.9802547074216, 0.7261789378732, 0.1476077821392, -0.480469383735,
      -0.9044996993159},
     {12.3475429646, 9.230189859548, 19.46001108737, 40.0856530056}},
    {false,
     {-0.001787724740226, -0.7050065233293, -0.9971972074849, -0.7095605884015,
      -0.008851309290404, 0.6992400316551, 0.9999118601073, 0.7179745927716,
      0.01703944818041, -0.6944181480492, -0.9992707878716},
     {0.9958121277054, 0.7587343844088, 0.1686147636794, -0.4999650141331,
      -0.9364423360026},
     {12.3475429646, 9.590826200142, 18.98469455218, 41.35125915077}}};

TEST(SparseTables, TrainAsInTorch) {
  for (const Case& c : kCases)
    for (const Want& want : kWant)
      for (const int64_t micros : {1, 2, 4}) {
        SCOPED_TRACE(c.mesh + " stage " + std::to_string(c.zero_stage) + ", " +
                     std::to_string(micros) + " micro-batches");
        on_mesh<int>(c.mesh, [&](const Mesh& mesh) {
          const auto model = make_model(mesh, c);
          TrainerOptions options = options_of(want.adam);
          options.micro_batches = micros;
          Trainer trainer(*model, loss_of(*model), options);
          const TrainingReport report = trainer.train(batch_of);
          Values norms, column;
          for (const StepResult& s : report.steps) norms.push_back(s.grad_norm);
          expect_near(norms, want.norms);
          const Values table = values(model->table());
          for (size_t i = 0; i < table.size(); i += kWidth)
            column.push_back(table[i]);
          expect_near(column, want.table);
          expect_near(values(model->parameter("head.weight")), want.head);
          return 0;
        });
      }
}

// A model with nothing but a table, whose last row is padding: the gradient of
// the padding does not count.
class Padded : public Module {
 public:
  explicit Padded(const Scope& at)
      : Module(at), table_(add<Embedding>("table", 4, 1)) {}
  DistTensor loss(const DistTensor& ids) const {
    const UsedRows used = used_rows(table_->table(), ids, 3);
    return sum(embedding(used.rows, used.places));
  }

 private:
  Child<Embedding> table_;
};

TEST(SparseTables, PaddingHasNoGradient) {
  for (const int64_t micros : {1, 2})
    on_mesh<int>("dp=2", [&](const Mesh& mesh) {
      Padded model(Scope{.mesh = mesh, .dtype = DType::kF64});
      TrainerOptions options = options_of(false);
      options.steps = 1;
      options.micro_batches = micros;
      Trainer trainer(
          model,
          [&](const DistTensor& ids, const DistTensor&) {
            return model.loss(ids);
          },
          options);
      const std::vector<int64_t> ids{1, 3, 0, 1};
      const Values no_targets(4);
      const StepResult step = trainer.step([&](int64_t) {
        return Batch{Tensor::from({4}, ids.data()),
                     Tensor::from({4}, no_targets.data())};
      });
      // A micro-batch of half of the rows counts one half.
      EXPECT_NEAR(step.grad_norm, std::sqrt(5.0) / static_cast<double>(micros),
                  1e-12);
      return 0;
    });
}

TEST(SparseTables, Errors) {
  on_mesh<int>("dp=2", [](const Mesh& mesh) {
    const auto model = make_model(mesh, {});
    const auto made = [&](auto change) {
      TrainerOptions options = options_of(true);
      change(options);
      return error_of([&] { Trainer(*model, loss_of(*model), options); });
    };
    EXPECT_EQ(made([](TrainerOptions&) {}), "no error");
    EXPECT_EQ(made([](TrainerOptions& o) { o.check_bytes = true; }),
              "[trainer] sparse lists table.weight, but the bytes of a step "
              "then depend on its ids; set check_bytes to false");
    EXPECT_EQ(made([](TrainerOptions& o) { o.cuda_graph = true; }),
              "[trainer] sparse lists table.weight, but a graph cannot replay "
              "steps whose numbers of rows differ; leave cuda_graph out");
    EXPECT_EQ(made([](TrainerOptions& o) {
                o.sparse = {"table.weight", "table.weight"};
              }),
              "[trainer] sparse lists table.weight twice; list it once");
    EXPECT_EQ(made([](TrainerOptions& o) {
                o.optimizer = [](const ParameterGroups& g) {
                  return std::make_unique<Adam>(g);
                };
              }),
              "[trainer] sparse lists table.weight, but an update by operators "
              "is one of all rows; leave sparse out, or use SGD or AdamW");
    EXPECT_NE(made([](TrainerOptions& o) {
                o.sparse = {"table"};
              }).find("table.weight"),
              std::string::npos);
    const auto trained = [&](std::vector<std::string> sparse,
                             const Loss& loss) {
      TrainerOptions options = options_of(true);
      options.sparse = std::move(sparse);
      return error_of([&] { Trainer(*model, loss, options).step(batch_of); });
    };
    EXPECT_EQ(
        trained({}, loss_of(*model)),
        "[trainer] the loss passes f64[11, 5](R) to used_rows(), but "
        "TrainerOptions::sparse does not list it, so that it would get no "
        "gradient; list the names of such parameters");
    EXPECT_EQ(
        trained({"table.weight", "head.weight"}, loss_of(*model)),
        "[trainer] sparse lists head.weight, but the loss does not pass "
        "it to used_rows(); look up the rows that used_rows() returns, or "
        "leave it out");
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
