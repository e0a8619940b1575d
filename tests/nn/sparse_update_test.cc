// SPDX-License-Identifier: Apache-2.0
// Sparse updates are those of a plain loop over the used rows, and what they
// send, hold and touch does not depend on the table's size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/autograd.h"
#include "dtensor/comm_event.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/observer.h"
#include "dtensor/ops/by_index.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/data_shapes.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;
using dtensor::testing::error_of;

// The layouts of a table, of its gradient ("": the same) and of the batch, and
// the one in which operators see the table, if it is gathered.
struct Case {
  std::string mesh;
  const char *table, *grad, *batch;
  const char* use = nullptr;

  DistTensor parameter(DistTensor table) const {
    table.as_parameter();
    if (*grad) table.set_grad_layout(grad);
    if (use) table.gather_on_use(use);
    return table;
  }
  std::string text() const {
    return mesh + " " + table + " grad " + grad + " batch " + batch;
  }
};
const Case kCases[] = {
    {"dp=2", "R", "", "S0"},
    {"dp=2", "S0", "", "S0"},
    {"dp=2", "S1", "", "S0"},
    {"dp=2", "R", "S0", "S0"},
    {"dp=2", "R", "S1", "S0"},
    {"tp=3", "S0", "", "R"},
    {"tp=3", "S1", "", "R"},
    {"tp=3", "S0(q=7|k=4:q,k)", "", "R"},
    {"dp=2,tp=2", "R,S0", "", "S0,R"},
    {"dp=2,tp=2", "R,S1", "", "S0,R"},
    {"dp=2,tp=2", "S0,S1", "", "S0,R"},
    {"dp=2,tp=2", "R,S0", "[{tp,dp},{}]", "S0,R"},
    {"dp=2", "S0", "", "S0", "R"},
};
constexpr int64_t kRows = 11, kWidth = 5, kBags = 4, kIds = 3;

// The ids of a step, many of them equal; rows 4 and 5 are never used.
std::vector<int64_t> ids_of(int64_t step) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kBags * kIds; ++i) {
    const int64_t id = (i * i + 3 * step) % 7 % kRows;
    ids.push_back(id < 4 ? id : id + 4);
  }
  return ids;
}

// The loss of a step: the sum of weight * bag^2 over the bags' elements.
double weight(int64_t step, int64_t bag) {
  return std::sin(1.3 * static_cast<double>(bag + 5 * step)) + 1.5;
}

struct Kind {
  bool adamw;
  SGDOptions sgd = {};
};
const Kind kKinds[] = {{true},
                       {false},
                       {false, {.weight_decay = 0.1}},
                       {false, {.momentum = 0.9}},
                       {false, {.momentum = 0.9, .nesterov = true}}};

std::unique_ptr<Optimizer> make(const Kind& kind, const DistTensor& table) {
  const std::vector<NamedParameter> named = {{"table", table}};
  if (kind.adamw)
    return std::make_unique<AdamW>(named, AdamWOptions{.weight_decay = 0.1});
  return std::make_unique<SGD>(named, kind.sgd);
}

// The table and the moments, through plain loops in f64.
struct Reference {
  explicit Reference(Values table)
      : p(std::move(table)), m(p.size()), v(p.size()) {}

  void step(const Kind& kind, int64_t t, double lr) {
    const std::vector<int64_t> ids = ids_of(t);
    const auto at = [](int64_t row, int64_t j) {
      return static_cast<size_t>(row * kWidth + j);
    };
    Values g(p.size());
    for (int64_t b = 0; b < kBags; ++b)
      for (int64_t j = 0; j < kWidth; ++j) {
        double bag = 0;
        for (int64_t i = 0; i < kIds; ++i)
          bag += p[at(ids[static_cast<size_t>(b * kIds + i)], j)];
        for (int64_t i = 0; i < kIds; ++i)
          g[at(ids[static_cast<size_t>(b * kIds + i)], j)] +=
              2 * weight(t, b) * bag;
      }
    const double n = static_cast<double>(t + 1);
    for (int64_t row : std::set<int64_t>(ids.begin(), ids.end()))
      for (size_t i = at(row, 0); i < at(row + 1, 0); ++i)
        kind.adamw ? adamw(i, g[i], n, lr) : sgd(kind.sgd, i, g[i], lr);
  }
  // torch.optim.SparseAdam, with AdamW's decay and eps.
  void adamw(size_t i, double g, double t, double lr) {
    p[i] -= lr * 0.1 * p[i];
    m[i] += (1 - 0.9) * (g - m[i]);
    v[i] += (1 - 0.999) * (g * g - v[i]);
    const double m_hat = m[i] / (1 - std::pow(0.9, t)),
                 v_hat = v[i] / (1 - std::pow(0.999, t));
    p[i] -= lr * m_hat / (std::sqrt(v_hat) + 1e-8);
  }
  void sgd(const SGDOptions& o, size_t i, double grad, double lr) {
    const double g = grad + o.weight_decay * p[i];
    m[i] = o.momentum * m[i] + g;
    p[i] -= lr * (o.nesterov ? g + o.momentum * m[i] : m[i]);
  }

  Values p, m, v;
};

DistTensor batch_of(int64_t step, const Mesh& mesh, const char* layout) {
  const std::vector<int64_t> ids = ids_of(step);
  return DistTensor::from_global(Tensor::from({kBags, kIds}, ids.data()), mesh,
                                 layout);
}

DistTensor loss_of(const DistTensor& bags, int64_t step, const char* layout) {
  Values w;
  for (int64_t b = 0; b < kBags; ++b) w.push_back(weight(step, b));
  const DistTensor weights = DistTensor::from_global(
      Tensor::from({kBags, 1}, w.data()), bags.mesh(), layout);
  return sum(cast(bags, DType::kF64) * cast(bags, DType::kF64) * weights);
}

// Makes a step of the optimizer, whose only parameter is the table.
void make_step(const Case& c, const DistTensor& table, Optimizer& optimizer,
               int64_t step) {
  const UsedRows used = used_rows(table, batch_of(step, table.mesh(), c.batch));
  const DistTensor bags =
      embedding_bag(used.rows, used.places, {.mode = BagMode::kSum});
  const auto g = grad(loss_of(bags, step, c.batch), {used.rows});
  EXPECT_EQ(g[0].spec(), rows_spec(table, used.ids.size(0)));
  optimizer.step(g, {.lr = 0.01, .rows = {used.ids}});
}

void expect_near(const Values& got, const Values& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << i;
}

void check(const Case& c, const Kind& kind, DType type, double tolerance) {
  SCOPED_TRACE(c.text() + " " + std::string(name(type)));
  on_mesh<int>(c.mesh, [&](const Mesh& mesh) {
    const DistTensor table =
        c.parameter(randn({kRows, kWidth}, mesh, c.table, type, {3, 1}));
    const Values first = values(table);
    Reference want(first);
    const auto optimizer = make(kind, table);
    for (int64_t step = 0; step < 4; ++step) {
      make_step(c, table, *optimizer, step);
      want.step(kind, step, 0.01);
      expect_near(values(table), want.p, tolerance);
    }
    const auto state = optimizer->state();
    if (kind.adamw || kind.sgd.momentum > 0)
      expect_near(values(state[0].value), want.m, tolerance);
    if (kind.adamw) expect_near(values(state[1].value), want.v, tolerance);
    // The master is more exact than the values, from update to update.
    if (is_half_float(type)) {
      EXPECT_NE(values(state[state.size() - 2].value), values(table));
    }
    const Values last = values(table);
    for (size_t i = 4 * kWidth; i < 6 * kWidth; ++i)
      EXPECT_EQ(last[i], first[i]) << "an unused row";
    return 0;
  });
}

TEST(SparseUpdate, IsThatOfAPlainLoop) {
  for (const Case& c : kCases)
    for (const Kind& kind : kKinds) check(c, kind, DType::kF64, 1e-12);
}

// Column 0 after these steps in torch 2.15, with F.embedding_bag(sparse=True),
// SparseAdam(eps=1e-30) and SGD. (Without an eps, AdamW without decay has
// SparseAdam's formula.)
TEST(SparseUpdate, IsTorchs) {
  const Values adam = {0.0299150691211,  -0.6872118920695,   -0.9823825661586,
                       -0.6883593935097, -0.008851309290404, 0.6992400316551,
                       0.9999118601073,  0.7179745927716,    0.04554710070197,
                       -0.685443585998,  -0.9857245993235};
  const Values mean = {-2.885244232754,
                       -3.772397289081,
                       -4.129571444682,
                       -4.571268434789,
                       0,
                       0,
                       0,
                       0,
                       -2.93906850628,
                       -1.744870746667,
                       -2.529514459708};
  const Values sgd = {0.2758759922254,  -0.3480052909728,   -0.5995572555169,
                      -0.322930632029,  -0.008851309290404, 0.6992400316551,
                      0.9999118601073,  0.7179745927716,    0.2701252823178,
                      -0.5269608255928, -0.8002790680057};
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.text());
    on_mesh<int>(c.mesh, [&](const Mesh& mesh) {
      for (const bool is_adam : {true, false}) {
        Values first;
        for (int64_t i = 0; i < kRows * kWidth; ++i)
          first.push_back(std::sin(1.1 * static_cast<double>(i)));
        const DistTensor table = c.parameter(DistTensor::from_global(
            Tensor::from({kRows, kWidth}, first.data()), mesh, c.table));
        std::unique_ptr<Optimizer> o;
        if (is_adam)
          o = std::make_unique<AdamW>(
              ParameterGroups(std::vector<DistTensor>{table}),
              AdamWOptions{.eps = 1e-30, .weight_decay = 0});
        else
          o = std::make_unique<SGD>(
              ParameterGroups(std::vector<DistTensor>{table}));
        for (int64_t step = 0; step < 4; ++step) make_step(c, table, *o, step);
        expect_near(values(select(table, 1, 0)), is_adam ? adam : sgd, 1e-12);
        if (is_adam)
          expect_near(values(select(o->state()[0].value, 1, 0)), mean, 1e-12);
      }
      return 0;
    });
  }
}

TEST(SparseUpdate, OfOtherTypes) {
  const Case c{"dp=2,tp=2", "R,S0", "", "S0,R"};
  check(c, kKinds[0], DType::kF32, 1e-4);
  check(c, kKinds[3], DType::kF32, 1e-4);
  // The state of halves is f32; the values of the table are rounded.
  check(c, kKinds[3], DType::kF16, 1e-2);
  check({"dp=2", "R", "S0", "S0"}, kKinds[3], DType::kF16, 1e-2);
}

// As if the gradient of the whole table had been passed, if all rows are used.
TEST(SparseUpdate, OfAllRowsIsTheUsualOne) {
  on_mesh<int>("dp=2,tp=2", [](const Mesh& mesh) {
    for (const Kind& kind : kKinds) {
      DistTensor one = randn({7, 3}, mesh, "R,S0", DType::kBF16, {3, 1}),
                 two = randn({7, 3}, mesh, "R,S0", DType::kBF16, {3, 1});
      const auto a = make(kind, one.as_parameter()),
                 b = make(kind, two.as_parameter());
      const DistTensor ids = arange(7, mesh);
      for (uint64_t step = 0; step < 3; ++step) {
        const DistTensor g = randn({7, 3}, mesh, "R,R", DType::kF32, {4, step});
        a->step({g.redistribute("R,S0")}, {.lr = 0.1});
        b->step({g}, {.lr = 0.1, .rows = {ids}});
      }
      EXPECT_EQ(values(one), values(two));
      for (size_t i = 0; i < a->state().size(); ++i)
        EXPECT_EQ(values(a->state()[i].value), values(b->state()[i].value));
    }
    return 0;
  });
}

// The rows of a batch are gathered for several micro-batches at once.
TEST(SparseUpdate, OfMicroBatches) {
  on_mesh<int>("dp=2", [](const Mesh& mesh) {
    DistTensor table =
        randn({kRows, kWidth}, mesh, "S0", DType::kF64, {3, 1}).as_parameter();
    Reference want(values(table));
    const auto optimizer = make(kKinds[0], table);
    const UsedRows used = used_rows(table, batch_of(0, mesh, "R"));
    std::vector<DistTensor> sums;
    for (int64_t b = 0; b < kBags; ++b) {
      const DistTensor places = used.places.redistribute("R");
      const DistTensor bag = embedding_bag(used.rows, narrow(places, 0, b, 1),
                                           {.mode = BagMode::kSum});
      sums = grad(sum(bag * bag * weight(0, b)), {used.rows},
                  {.keep_partial = true, .add_to = sums});
    }
    optimizer->step({sums[0].redistribute(rows_spec(table, used.ids.size(0)))},
                    {.lr = 0.01, .rows = {used.ids}});
    want.step(kKinds[0], 0, 0.01);
    expect_near(values(table), want.p, 1e-12);
    return 0;
  });
}

// The costs of a step on rank 0.
struct Cost {
  int64_t sent = 0;     // bytes
  int64_t memory = 0;   // the peak, beyond what the table and its state take
  int64_t touched = 0;  // bytes that the update reads or writes
  bool operator==(const Cost&) const = default;
};

class Touched : public Observer {
 public:
  using Observer::ran;
  void ran(RankContext&, const KernelRan& kernel) override {
    for (int64_t bytes : kernel.touches) all += bytes;
  }
  int64_t all = 0;
};

constexpr int64_t kCostIds = 512, kCostWidth = 16;

// The step uses `used` rows of a table with `rows` rows.
Cost cost(const Case& c, int64_t rows, int64_t used) {
  return on_mesh<Cost>(c.mesh, [&](const Mesh& mesh) {
    const DistTensor table =
        c.parameter(zeros({rows, kCostWidth}, mesh, c.table));
    AdamW optimizer({table});
    std::vector<int64_t> list;
    for (int64_t i = 0; i < kCostIds; ++i)
      list.push_back(i * 7 % used * (rows / used));
    const DistTensor ids = DistTensor::from_global(
        Tensor::from({kCostIds / 4, 4}, list.data()), mesh, c.batch);
    RankContext& context = RankContext::current();
    Allocator& allocator = *context.allocator;
    Touched touched;
    context.observers.add(touched);
    allocator.reset_peak();
    const int64_t before = allocator.stats().current_bytes;
    const CommRecord record;
    const UsedRows u = used_rows(table, ids);
    EXPECT_GT(u.ids.size(0), used);
    EXPECT_LE(u.ids.size(0), (used + 1) * 9 / 8);
    const DistTensor y = embedding_bag(u.rows, u.places);
    optimizer.step(grad(sum(y), {u.rows}), {.lr = 0.1, .rows = {u.ids}});
    context.observers.remove(touched);
    Cost all{.memory = allocator.stats().peak_bytes - before,
             .touched = touched.all};
    for (const CommEvent& e : record.events()) all.sent += e.counted;
    return all;
  });
}

TEST(SparseUpdate, CostsWhatItsRowsCost) {
  for (const Case& c : kCases) {
    if (std::string(c.table).find('|') != std::string::npos) continue;
    SCOPED_TRACE(c.text());
    const Cost few = cost(c, 2'000, 32), large = cost(c, 200'000, 32),
               many = cost(c, 200'000, 256);
    EXPECT_EQ(few.sent, large.sent);
    EXPECT_EQ(few.memory, large.memory);
    EXPECT_EQ(few.touched, large.touched);
    // Per row: its parts of the values, the gradient and the update.
    EXPECT_LE(many.sent - few.sent,
              9 * (256 - 32) / 8 * (3 * 2 * 4 * kCostWidth + 16));
    EXPECT_LE(many.touched, 9 * 257 / 8 * kCostWidth * 4 * 4);
  }
}

TEST(SparseUpdate, Errors) {
  on_mesh<int>("dp=2", [](const Mesh& mesh) {
    DistTensor table = ones({5, 3}, mesh, "S0").as_parameter(),
               bias = ones({3}, mesh).as_parameter();
    const std::vector<NamedParameter> named = {{"table", table},
                                               {"bias", bias}};
    SGD sgd(named);
    const DistTensor g = ones({2, 3}, mesh), ids = arange(2, mesh);
    const auto error = [&](const std::vector<DistTensor>& grads,
                           const std::vector<DistTensor>& rows) {
      return error_of([&] { sgd.step(grads, {.rows = rows}); });
    };
    EXPECT_EQ(
        error({g, bias}, {ids.redistribute("S0")}),
        "[optimizer] the rows of table are i64[2](S0) on dp=2, but must be "
        "i64[2](R) on dp=2; pass used_rows(parameter, ids).ids");
    EXPECT_EQ(error({ones({3, 3}, mesh), bias}, {ids}),
              "[optimizer] the gradient of table is f32[3, 3](R) on dp=2, but "
              "it must be "
              "f32[2, 3](R) on dp=2, or that in f32; pass the gradients in the "
              "order of "
              "parameters(), and redistribute() or cast() this one to "
              "rows_spec(parameter, number of rows)");
    EXPECT_EQ(error({ones({5, 3}, mesh, "S0"), g}, {{}, ids}),
              "[optimizer] rows of bias are given, but it is f32[3](R); pass "
              "rows only "
              "for a matrix");
    EXPECT_EQ(
        error({g, bias}, {ids, {}, ids}),
        "[optimizer] rows of 3 parameters are given, but there are 2; pass "
        "undefined rows, or none, for an update of all rows");
    EXPECT_EQ(error({g, bias}, {ids}), "no error");
    // No rows at all.
    const Values before = values(table);
    EXPECT_EQ(error({zeros({0, 3}, mesh), zeros({3}, mesh)},
                    {zeros({0}, mesh, {}, DType::kI64)}),
              "no error");
    EXPECT_EQ(values(table), before);
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
