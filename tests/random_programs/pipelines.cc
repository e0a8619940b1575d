// SPDX-License-Identifier: Apache-2.0
// Runs random pipelines on thread ranks: each stage computes tanh(x w) on a
// mesh of its own, and tasks are in a random order. The reference is the same
// chain of operators as a Program.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "dtensor/dtensor.h"
#include "tests/array.h"
#include "tests/conformance/cases.h"
#include "tests/random_programs/program.h"
#include "tests/random_programs/reference.h"
#include "tests/random_programs/subject.h"

namespace dtensor::random_programs {
namespace {

using conformance::difference;
using testing::Array;

struct Stage {
  enum : int { kPlain, kMove, kGatherOnUse, kGathered };
  Lay weight;
  int keep = kPlain;  // kGathered: gather_on_use() is called
  Lay grad = {};      // if defined, set_grad_layout() is called with it
  Lay input = {};     // if defined, it is PipelineStage::input
};

struct Pipe {
  // A name that make_schedule() knows; or "random", with `order` as its seed.
  std::string schedule;
  int64_t positions = 1, chunks = 1, micros = 1;
  bool weight_tasks = false;  // only for "random"
  uint64_t order = 0;
  int64_t ranks = 1;      // the number of ranks of each position's mesh
  bool two_axes = false;  // whether the mesh has two axes, the first of size 1
  int64_t batch = 1;
  std::vector<int64_t> widths;  // of the stages' inputs, then of the output
  bool tied = false;            // the last stage borrows the first weight
  int64_t bucket_bytes = 0;
  uint64_t numbers = 0;  // seed of weights and inputs
  std::vector<Stage> stages;
  std::vector<Lay> inputs;  // by micro-batch

  size_t axes() const { return two_axes ? 2 : 1; }
  Shape weight_shape(size_t stage) const {
    return {widths[stage], widths[stage + 1]};
  }
};

double share(size_t micro) { return 0.25 + static_cast<double>(micro); }

// Draws the next task among all tasks that could run, until none is left.
nn::PipelineSchedule random_order(const Pipe& p) {
  nn::PipelineSchedule s;
  s.name = p.schedule;
  s.positions = p.positions;
  s.chunks = p.chunks;
  s.micros = p.micros;
  s.weight_tasks = p.weight_tasks;
  s.tasks.resize(static_cast<size_t>(p.positions));
  std::vector<nn::PipelineTask> done, left;
  for (auto work : {nn::PipelineWork::kForward, nn::PipelineWork::kBackward,
                    nn::PipelineWork::kWeight})
    for (int64_t stage = 0; stage < s.stages(); ++stage)
      for (int64_t micro = 0; micro < p.micros; ++micro)
        if (work != nn::PipelineWork::kWeight || p.weight_tasks)
          left.push_back({work, stage, micro});
  auto is_done = [&](const nn::PipelineTask& t) {
    return std::find(done.begin(), done.end(), t) != done.end();
  };
  for (Random r(p.order); !left.empty();) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < left.size(); ++i) {
      const auto before = needs(left[i], s);
      if (std::all_of(before.begin(), before.end(), is_done))
        ready.push_back(i);
    }
    const size_t i = ready[static_cast<size_t>(
        r.between(0, static_cast<int64_t>(ready.size()) - 1))];
    s.tasks[static_cast<size_t>(s.position(left[i].stage))].push_back(left[i]);
    done.push_back(left[i]);
    left.erase(left.begin() + static_cast<int64_t>(i));
  }
  return checked(s);
}

nn::PipelineSchedule schedule_of(const Pipe& p) {
  if (p.schedule == "random") return random_order(p);
  return nn::make_schedule(p.schedule, p.positions, p.micros, p.chunks);
}

// The numbers of all weights, then of all inputs.
std::vector<Array> numbers_of(const Pipe& p) {
  Random r(p.numbers);
  std::vector<Array> all;
  auto add = [&](const Shape& shape) {
    Array& a = all.emplace_back(Array{shape, {}});
    for (int64_t i = numel(shape); i > 0; --i)
      a.v.push_back(static_cast<double>(r.between(-1000, 1000)) / 1000);
  };
  for (size_t i = 0; i < p.stages.size(); ++i) add(p.weight_shape(i));
  for (size_t m = 0; m < p.inputs.size(); ++m) add({p.batch, p.widths[0]});
  return all;
}

// The same computation as a Program. `losses` gets the indices of the steps
// that compute the losses.
Program program_of(const Pipe& p, std::vector<size_t>& losses) {
  Program out{{{"x", 1}}, {}};
  auto add = [&](Step step) {
    out.steps.push_back(std::move(step));
    return out.steps.size() - 1;
  };
  for (const Array& a : numbers_of(p)) {
    Step leaf{"leaf"};
    leaf.value = a;
    leaf.wants_grad = out.steps.size() < p.stages.size();
    add(leaf);
  }
  for (size_t m = 0; m < p.inputs.size(); ++m) {
    size_t x = p.stages.size() + m;
    for (size_t i = 0; i < p.stages.size(); ++i)
      x = add({"tanh", {add({"matmul", {x, i}})}});
    if (p.tied) {
      const size_t turned = add({"permute", {0}, {1, 0}});
      const size_t square = add({"matmul", {0, turned}});
      x = add({"add", {x, add({"matmul", {x, square}})}});
    }
    losses.push_back(add({"sum", {add({"square", {x}})}, {0}}));
    Step weight{"leaf"};
    weight.value = {{}, {share(m)}};
    const size_t factor = add(weight);
    add({"mul", {losses.back(), factor}});
  }
  return out;
}

// Returns the losses, then the gradients of the weights; on other ranks than
// rank 0, nothing.
std::vector<Array> run_on_rank(const Pipe& p, Runtime& rt) {
  std::vector<Mesh> meshes;
  for (int64_t i = 0; i < p.positions; ++i) {
    std::vector<int64_t> ranks;
    for (int64_t k = 0; k < p.ranks; ++k) ranks.push_back(i * p.ranks + k);
    std::vector<MeshAxis> axes{{"x", p.two_axes ? 1 : p.ranks}};
    if (p.two_axes) axes.push_back({"y", p.ranks});
    meshes.emplace_back(axes, ranks);
  }
  const nn::PipelineSchedule schedule = schedule_of(p);
  const std::vector<Array> numbers = numbers_of(p);
  auto laid = [&](const Array& a, const Mesh& mesh, const Lay& lay) {
    return DistTensor::from_global(tensor_of(a), mesh, lay.on(mesh, a.shape));
  };
  std::vector<DistTensor> weights, inputs;
  for (size_t i = 0; i < p.stages.size(); ++i) {
    const Stage& s = p.stages[i];
    const Mesh& mesh =
        meshes[static_cast<size_t>(schedule.position(static_cast<int>(i)))];
    DistTensor w = laid(numbers[i], mesh, s.weight);
    w.set_requires_grad();
    if (s.keep == Stage::kMove) w.as_parameter(Keep::kMove);
    if (s.keep == Stage::kGatherOnUse) w.as_parameter(Keep::kGatherOnUse);
    if (s.keep == Stage::kGathered) w.gather_on_use({});
    if (s.grad.defined()) w.set_grad_layout(s.grad.on(mesh, w.shape()));
    weights.push_back(w);
  }
  std::vector<nn::PipelineStage> stages;
  for (size_t i = 0; i < p.stages.size(); ++i) {
    const Mesh& mesh = weights[i].mesh();
    const bool last = i + 1 == p.stages.size();
    auto forward = [&, i, last](const DistTensor& x, int64_t,
                                std::span<const DistTensor> borrowed) {
      DistTensor y = tanh(matmul(x, weights[i]));
      if (!last) return y;
      if (p.tied) {
        const DistTensor& w = p.stages.size() > 1 ? borrowed[0] : weights[0];
        y = add(y, matmul(y, matmul(w, transpose(w, 0, 1))));
      }
      return sum(square(y));
    };
    nn::PipelineStage stage{mesh, forward, {weights[i]}};
    if (last && p.tied && p.stages.size() > 1) stage.borrows = {weights[0]};
    if (i > 0 && p.stages[i].input.defined())
      stage.input = p.stages[i].input.on(mesh, {p.batch, p.widths[i]});
    stages.push_back(std::move(stage));
  }
  std::vector<double> shares;
  for (size_t m = 0; m < p.inputs.size(); ++m) {
    inputs.push_back(
        laid(numbers[p.stages.size() + m], meshes[0], p.inputs[m]));
    shares.push_back(share(m));
  }
  nn::PipelineOptions options;
  options.bucket_bytes = p.bucket_bytes;
  const nn::PipelineResult result =
      nn::Pipeline(schedule, stages).run(inputs, shares, options);

  const Mesh first({{"x", 1}});
  std::vector<Array> all;
  auto take = [&](const DistTensor& x) {
    const DistTensor whole = x.redistribute(first, {});
    if (rt.rank() == 0) all.push_back(testing::array_of(whole.local()));
  };
  for (const DistTensor& loss : result.losses) take(loss);
  for (const auto& grads : result.grads) take(grads[0]);
  return all;
}

class RandomPipeline : public Subject {
 public:
  explicit RandomPipeline(Pipe p) : pipe_(std::move(p)) {}

  std::string failure(const Running& running) const override {
    try {
      schedule_of(pipe_);
    } catch (const Error&) {
      throw Unfit();
    }
    std::vector<size_t> losses;
    const Program program = program_of(pipe_, losses);
    const Expected expected = reference(program, running.wrong);
    std::vector<Array> wants;
    for (size_t i : losses) wants.push_back(expected.values[i]);
    for (Array g : expected.gradients) {
      // A Program's loss is the sum of its results times cos(1).
      for (double& x : g.v) x /= std::cos(1.0);
      wants.push_back(g);
    }
    RunOptions options;
    options.world = pipe_.positions * pipe_.ranks;
    options.timeout = running.timeout;
    std::vector<Array> before;
    for (int times = 0; times < 2; ++times) {
      std::vector<Array> got;
      try {
        run(options, [&](Runtime& rt) {
          auto mine = run_on_rank(pipe_, rt);
          if (rt.rank() == 0) got = std::move(mine);
        });
      } catch (const std::exception& e) {
        return fmt::format("it throws: {}", e.what());
      }
      for (size_t i = 0; i < wants.size(); ++i) {
        double scale = 1, worst = 0;
        for (double w : wants[i].v) scale = std::max(scale, std::abs(w));
        const std::string text =
            difference(got[i], wants[i], 1e-10, 1e-10 * scale, worst);
        const std::string name =
            i < losses.size()
                ? fmt::format("the loss of micro-batch {}", i)
                : fmt::format("the gradient of weight {}", i - losses.size());
        if (!text.empty()) return name + ": " + text;
        if (times && before[i].v != got[i].v)
          return name + ": other bits when it runs again";
      }
      before = std::move(got);
    }
    return "";
  }

  int64_t operators() const override {
    return pipe_.positions * pipe_.chunks * pipe_.micros;
  }

  std::string text() const override {
    const Pipe& p = pipe_;
    std::string text = fmt::format(
        "{} of {} positions, {} chunks, {} micro-batches{}; {} ranks each, "
        "mesh {}; batch {}; {}bucket {}; seeds {} and {}\n",
        p.schedule, p.positions, p.chunks, p.micros,
        p.weight_tasks ? ", weight tasks" : "", p.ranks,
        p.two_axes ? "x=1,y" : "x", p.batch, p.tied ? "tied; " : "",
        p.bucket_bytes, p.order, p.numbers);
    const Mesh mesh(p.two_axes ? std::vector<MeshAxis>{{"x", 1}, {"y", p.ranks}}
                               : std::vector<MeshAxis>{{"x", p.ranks}});
    auto layout = [&](const Lay& lay, const Shape& shape) {
      return lay.on(mesh, shape).to_string(mesh);
    };
    static const char* kKeeps[] = {"", ", may move", ", as_parameter",
                                   ", gather_on_use"};
    for (size_t i = 0; i < p.stages.size(); ++i) {
      const Stage& s = p.stages[i];
      const Shape shape = p.weight_shape(i);
      text += fmt::format("stage {}: weight {} {}{}", i, to_string(shape),
                          layout(s.weight, shape), kKeeps[s.keep]);
      if (s.grad.defined())
        text += ", set_grad_layout " + layout(s.grad, shape);
      if (s.input.defined() && i > 0)
        text += ", input " + layout(s.input, {p.batch, p.widths[i]});
      text += "\n";
    }
    for (const Lay& lay : p.inputs)
      text += "input " + layout(lay, {p.batch, p.widths[0]}) + "\n";
    return text;
  }

  std::vector<std::shared_ptr<const Subject>> smaller() const override {
    std::vector<std::shared_ptr<const Subject>> list;
    auto with = [&](auto&& change) {
      Pipe p = pipe_;
      change(p);
      p.stages.resize(static_cast<size_t>(p.positions * p.chunks));
      p.widths.resize(p.stages.size() + 1);
      if (p.tied) p.widths.back() = p.widths[0];
      p.inputs.resize(static_cast<size_t>(p.micros));
      list.push_back(std::make_shared<RandomPipeline>(std::move(p)));
    };
    for (auto field : {&Pipe::positions, &Pipe::chunks, &Pipe::micros,
                       &Pipe::ranks, &Pipe::batch})
      if (pipe_.*field > 1) with([&](Pipe& p) { --(p.*field); });
    if (pipe_.tied) with([](Pipe& p) { p.tied = false; });
    if (pipe_.schedule != "gpipe")
      with([](Pipe& p) {
        p.schedule = "gpipe";
        p.weight_tasks = false;
      });
    if (pipe_.bucket_bytes) with([](Pipe& p) { p.bucket_bytes = 0; });
    for (size_t i = 0; i < pipe_.widths.size(); ++i)
      if (pipe_.widths[i] > 1) with([&](Pipe& p) { p.widths[i] = 1; });
    auto whole = [&](auto&& lay_of, const Lay& lay) {
      for (size_t a = 0; a < lay.axes.size(); ++a)
        if (lay.axes[a] != Lay::kWhole)
          with([&](Pipe& p) { lay_of(p).axes[a] = Lay::kWhole; });
      if (lay.uneven) with([&](Pipe& p) { lay_of(p).uneven = 0; });
      if (lay.tree) with([&](Pipe& p) { lay_of(p).tree = 0; });
    };
    for (size_t i = 0; i < pipe_.stages.size(); ++i) {
      const Stage& s = pipe_.stages[i];
      if (s.keep) with([&](Pipe& p) { p.stages[i].keep = Stage::kPlain; });
      if (s.grad.defined()) with([&](Pipe& p) { p.stages[i].grad = {}; });
      if (s.input.defined()) with([&](Pipe& p) { p.stages[i].input = {}; });
      whole([&](Pipe& p) -> Lay& { return p.stages[i].weight; }, s.weight);
    }
    for (size_t m = 0; m < pipe_.inputs.size(); ++m)
      whole([&](Pipe& p) -> Lay& { return p.inputs[m]; }, pipe_.inputs[m]);
    return list;
  }

 private:
  Pipe pipe_;
};

std::optional<Pipe> draw(Random& r) {
  Pipe p;
  std::vector<std::string> names = nn::schedule_names();
  names.push_back("random");
  p.schedule = names[static_cast<size_t>(
      r.between(0, static_cast<int64_t>(names.size()) - 1))];
  p.positions = r.between(1, 4);
  p.chunks = p.schedule == "interleaved" ? r.between(1, 3)
             : p.schedule == "random"    ? r.between(1, 2)
                                         : 1;
  p.micros = r.between(1, 5);
  p.weight_tasks = p.schedule == "random" && r.chance(50);
  p.order = static_cast<uint64_t>(r.between(1, 1'000'000));
  p.ranks = r.between(1, 3);
  p.two_axes = r.chance(30);
  p.batch = r.between(1, 4);
  const int64_t stages = p.positions * p.chunks;
  for (int64_t i = 0; i <= stages; ++i) p.widths.push_back(r.between(1, 5));
  p.tied = r.chance(40);
  if (p.tied) p.widths.back() = p.widths[0];
  p.bucket_bytes = r.chance(50) ? r.between(1, 200) : 0;
  p.numbers = static_cast<uint64_t>(r.between(1, 1'000'000));
  for (int64_t i = 0; i < stages; ++i) {
    const Shape shape = p.weight_shape(static_cast<size_t>(i));
    Stage s;
    s.weight = random_lay(r, p.axes(), shape, Partials::kNone);
    s.keep = static_cast<int>(r.between(Stage::kPlain, Stage::kGathered));
    if (r.chance(35)) s.grad = random_lay(r, p.axes(), shape, Partials::kNone);
    if (r.chance(50))
      s.input =
          random_lay(r, p.axes(), {p.batch, p.widths[static_cast<size_t>(i)]},
                     Partials::kNone);
    p.stages.push_back(s);
  }
  for (int64_t m = 0; m < p.micros; ++m)
    p.inputs.push_back(
        random_lay(r, p.axes(), {p.batch, p.widths[0]}, Partials::kNone));
  try {
    schedule_of(p);
  } catch (const Error&) {  // too few micro-batches for it
    return {};
  }
  return p;
}

}  // namespace

std::shared_ptr<const Subject> random_pipeline_of(uint64_t seed) {
  for (Random r(seed);;)
    if (auto p = draw(r)) return std::make_shared<RandomPipeline>(*p);
}

}  // namespace dtensor::random_programs
