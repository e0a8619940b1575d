// SPDX-License-Identifier: Apache-2.0
// Runs an operator on a mesh in the ways that proof.h describes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/ops/experts.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "tests/ops/proof_run.h"
#include "tests/placement/enumerate.h"

namespace dtensor::proof {
namespace {

struct Job {
  const Reference* ref;
  std::optional<Assignment> assignment;
  std::string text;  // of the assignment
  std::vector<SpecRef> in;
  uint32_t seed;  // of the cotangent's and the probes' layouts
  Level level;
};

// One rank's results of a job.
struct Published {
  std::vector<SpecRef> specs;
  std::vector<Array> parts;
  std::vector<CommEvent> events;
  std::string error;
  void add(const std::vector<DistTensor>& list, bool data) {
    for (const DistTensor& t : list) {
      specs.push_back(t.spec());
      if (data) parts.push_back(testing::array_of(t.local()));
    }
  }
};

// Packs a rank's results to send them to other processes.
std::string pack(const Published& p) {
  std::string bytes;
  const auto put = [&](const auto& x) {
    bytes.append(reinterpret_cast<const char*>(&x), sizeof(x));
  };
  const auto put_all = [&](const auto& list) {
    put(list.size());
    bytes.append(reinterpret_cast<const char*>(list.data()),
                 list.size() * sizeof(list[0]));
  };
  put_all(p.error);
  put(p.specs.size());
  for (const Spec* s : p.specs) put(s->hash());
  put(p.parts.size());
  for (const Array& a : p.parts) {
    put_all(std::vector<int64_t>(a.shape.begin(), a.shape.end()));
    put(a.dtype);
    put_all(a.v);
  }
  put(p.events.size());
  for (const CommEvent& e : p.events) {
    put(e.kind);
    put(e.axes);
    put(e.predicted);
    put(e.counted);
  }
  return bytes;
}

// The inverse of pack(). A spec is that of `mine` if the hashes agree, and null
// otherwise.
Published unpack(std::string_view bytes, const Published& mine) {
  const auto get = [&](auto& x) {
    std::memcpy(&x, bytes.data(), sizeof(x));
    bytes.remove_prefix(sizeof(x));
  };
  const auto get_all = [&](auto& list) {
    size_t n = 0;
    get(n);
    list.resize(n);
    if (n > 0) std::memcpy(list.data(), bytes.data(), n * sizeof(list[0]));
    bytes.remove_prefix(n * sizeof(list[0]));
  };
  Published p;
  size_t n = 0;
  get_all(p.error);
  get(n);
  for (size_t i = 0; i < n; ++i) {
    uint64_t hash = 0;
    get(hash);
    const bool same = i < mine.specs.size() && mine.specs[i]->hash() == hash;
    p.specs.push_back(same ? mine.specs[i] : nullptr);
  }
  get(n);
  p.parts.resize(n);
  for (Array& a : p.parts) {
    std::vector<int64_t> shape;
    get_all(shape);
    a.shape = Shape(shape);
    get(a.dtype);
    get_all(a.v);
  }
  get(n);
  for (size_t i = 0; i < n; ++i) {
    CommEvent& e = p.events.emplace_back();
    get(e.kind);
    get(e.axes);
    get(e.predicted);
    get(e.counted);
  }
  return p;
}

// Splits a dimension of n over these axes as a tree: two segments, of which one
// may be whole, or sub-dimensions. Returns a leaf if that is impossible.
Dim random_tree(int64_t n, const std::vector<int>& axes, std::mt19937& gen) {
  auto below = [&](size_t k) { return static_cast<size_t>(gen() % k); };
  auto cut = [&](int64_t size, const std::vector<int>& over) {
    return Dim(size, Split::over(over));
  };
  if (below(2)) {
    auto first = static_cast<int64_t>(below(static_cast<size_t>(n) + 1));
    bool shared = below(2);
    Dim segments[] = {cut(first, axes),
                      shared ? Dim(n - first) : cut(n - first, axes)};
    if (below(2)) std::swap(segments[0], segments[1]);
    return Dim::concat({segments[0], segments[1]});
  }
  for (int64_t inner : {2, 3}) {
    if (n % inner != 0) continue;
    // The last axis cuts the inner indices, those ahead of it the outer ones.
    std::vector<int> outer(axes.begin(), axes.end() - 1);
    return Dim::product({cut(n / inner, outer), cut(inner, {axes.back()})});
  }
  return cut(n, axes);
}

// Any layout: axes in any order, now and then with unbalanced boundaries or as
// a tree.
Layout random_layout(const Mesh& mesh, const Shape& shape, bool partial,
                     std::mt19937& gen) {
  auto below = [&](size_t n) { return static_cast<size_t>(gen() % n); };
  auto dims = static_cast<size_t>(shape.size());
  std::vector<std::vector<int>> axes(dims);
  std::vector<int> order;
  for (int a = 0; a < mesh.num_axes(); ++a) order.push_back(a);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[below(i)]);
  Layout l;
  for (int axis : order) {
    size_t k = below(dims + 2 + (partial ? 2 : 0));
    if (k < dims) {
      axes[k].push_back(axis);
    } else if (k >= dims + 2) {
      constexpr ReduceOp kOthers[] = {ReduceOp::kAvg, ReduceOp::kMax,
                                      ReduceOp::kMin};
      l.partials.push_back(
          {axis, below(3) ? ReduceOp::kSum : kOthers[below(3)]});
    }
  }
  for (size_t d = 0; d < dims; ++d) {
    int64_t n = shape[static_cast<int>(d)];
    if (!axes[d].empty() && below(4) == 0) {
      l.dims.push_back(random_tree(n, axes[d], gen));
      continue;
    }
    Split s = Split::over(axes[d]);
    if (!s.whole() && below(4) == 0) {
      std::vector<int64_t> points{0, n};
      for (int64_t i = 1; i < s.parts(mesh); ++i)
        points.push_back(static_cast<int64_t>(below(size_t(n) + 1)));
      std::sort(points.begin(), points.end());
      s = Split::at(axes[d], points, mesh);
    }
    l.dims.push_back(Dim(n, s));
  }
  return l.canonical(mesh);
}

// Every layout in which each axis does one thing.
std::vector<Layout> all_layouts(const Mesh& mesh, const Shape& shape) {
  std::vector<std::string> texts{""}, options{"R", "P", "P(avg)", "P(max)"};
  for (int d = 0; d < shape.size(); ++d)
    options.push_back("S" + std::to_string(d));
  for (int a = 0; a < mesh.num_axes(); ++a) {
    std::vector<std::string> longer;
    for (const std::string& t : texts)
      for (const std::string& o : options)
        longer.push_back(t + (a ? "," : "") + o);
    texts = longer;
  }
  std::vector<Layout> all;
  for (const std::string& t : texts)
    all.push_back(parse_layout(t, mesh, shape));
  return all;
}

class OnMesh {
 public:
  OnMesh(const Op& op, const Options& options, Report& report,
         std::string_view mesh)
      : op_(op),
        options_(options),
        may_refuse_(refuses_some(op) || options.reproducible),
        report_(report),
        mesh_(Mesh::parse(mesh)),
        gen_(static_cast<uint32_t>(mesh_.num_ranks())) {}

  void prepare(const Reference& ref) {
    const size_t every = report_.samples > 3 ? 8 : 2, before = jobs_.size();
    std::vector<Shape> shapes;
    for (const Array& a : ref.in) shapes.push_back(a.shape);
    auto add = [&](std::optional<Assignment> a, std::string text,
                   std::vector<SpecRef> in) {
      // Only some jobs check second derivatives. These consist of operators
      // that have proofs of their own.
      Level level = ref.level;
      if (level == Level::kSecond && jobs_.size() % every)
        level = Level::kGradients;
      jobs_.push_back({&ref, std::move(a), std::move(text), std::move(in),
                       static_cast<uint32_t>(jobs_.size()), level});
    };
    const auto rule = bound(shapes, ref.sample.attrs);
    if (rule && !options_.reproducible) {
      constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg,
                                   ReduceOp::kMax, ReduceOp::kMin};
      std::vector<Assignment> all = enumerate(*rule, mesh_, kOps);
      if (mesh_.num_axes() > 2)
        sample_of(all, options_.sampled / int(report_.samples));
      add_trees(*rule, all);
      for (Assignment& a : all) {
        std::vector<SpecRef> in;
        bool exists = true;  // no parts of an index or a truth value
        for (size_t i = 0; i < shapes.size(); ++i) {
          Layout l = rule->input_layout(a, mesh_, int(i));
          exists &= l.partials.empty() || has_gradient(ref.sample.inputs[i]);
          in.push_back(Spec::get(mesh_, shapes[i], l, ref.in[i].dtype));
        }
        if (!exists) continue;
        std::string text = rule->to_string(a, mesh_);
        add(std::move(a), text, in);
        ++report_.forced;
      }
    } else if (!rule && shapes.size() == 1) {
      for (const Layout& l : all_layouts(mesh_, shapes[0])) {
        if (options_.reproducible && !l.partials.empty()) continue;
        add({}, "", {Spec::get(mesh_, shapes[0], l, ref.in[0].dtype)});
        ++report_.chosen;
      }
    }
    // An operator without assignments gets more random layouts.
    const bool alone = jobs_.size() == before;
    const int chosen = options_.chosen * (alone ? 6 : 1);
    for (int k = 0; k < chosen; ++k) {
      std::vector<SpecRef> in;
      for (size_t i = 0; i < shapes.size(); ++i) {
        // Such an operator may require some inputs in the same layout.
        const auto same = std::find_if(in.begin(), in.end(), [&](auto& s) {
          return s->shape() == shapes[i] && s->dtype() == ref.in[i].dtype;
        });
        if (alone && k % 4 && same != in.end()) {
          in.push_back(*same);
          continue;
        }
        in.push_back(Spec::get(
            mesh_, shapes[i],
            random_layout(
                mesh_, shapes[i],
                has_gradient(ref.sample.inputs[i]) && !options_.reproducible,
                gen_),
            ref.in[i].dtype));
      }
      add({}, "", in);
      ++report_.chosen;
    }
  }

  void run() {
    RunOptions ranks;
    ranks.world = mesh_.num_ranks();
    ranks.backend = options_.backend;
    ranks.reproducible = options_.reproducible;
    if (options_.device)
      ranks.device = [&](int64_t) -> Device& { return *options_.device; };
    results_.assign(jobs_.size(), std::vector<Published>(
                                      static_cast<size_t>(mesh_.num_ranks())));
    for (size_t next = 0; next < jobs_.size();) {
      size_t from = next;
      next = jobs_.size();
      try {
        dtensor::run(ranks, [&](Runtime& rt) {
          for (size_t j = from; j < jobs_.size(); ++j) {
            one(jobs_[j], results_[j][static_cast<size_t>(rt.rank())]);
            if (options_.processes) share(results_[j], rt.rank());
          }
        });
      } catch (const std::exception& e) {
        // Continue after the last job that a rank failed in, on fresh ranks.
        bool found = false;
        for (size_t j = jobs_.size(); j-- > from && !found;)
          for (Published& p : results_[j]) {
            if (p.error.empty()) continue;
            next = j + 1;
            if (!std::exchange(found, true)) results_[j][0].error = e.what();
          }
        if (!found) failure(nullptr, e.what());
      }
    }
    // The same on tensors without data.
    dry_.resize(jobs_.size());
    RunOptions dry;
    dry.world = mesh_.num_ranks();
    dry.dry_run = true;
    dry.reproducible = options_.reproducible;
    try {
      dtensor::run(dry, [&](Runtime&) {
        for (size_t j = 0; j < jobs_.size(); ++j) one(jobs_[j], dry_[j]);
      });
    } catch (const std::exception& e) {
      failure(nullptr, std::string("in a dry run: ") + e.what());
    }
    for (size_t j = 0; j < jobs_.size(); ++j)
      examine(jobs_[j], results_[j], dry_[j]);
  }

 private:
  std::optional<BoundRule> bound(const std::vector<Shape>& shapes,
                                 const Attrs& attrs) {
    try {
      return op_.bind(shapes, attrs);
    } catch (const Error&) {
      return std::nullopt;  // decides its layouts itself
    }
  }

  // Adds, for some of the assignments, one that splits the factors over the
  // same axes, but as trees.
  void add_trees(const BoundRule& rule, std::vector<Assignment>& all) {
    for (size_t i = 0, n = all.size(); i < n; ++i) {
      if (gen_() % 3) continue;
      Assignment a = all[i];
      for (Dim& d : a.dims) {
        if (d.whole()) continue;
        Dim tree =
            random_tree(d.size(), d.split().axes(), gen_).canonical(mesh_);
        // A linked factor may only be split over axes that split its partner.
        if (tree.axes() == d.axes()) d = std::move(tree);
      }
      a = rule.legal(std::move(a), mesh_);
      if (a.dims != all[i].dims) all.push_back(std::move(a));
    }
  }

  // Keeps at most `most` of the assignments, chosen at random.
  void sample_of(std::vector<Assignment>& all, int most) {
    for (size_t i = all.size(); i > 1; --i)
      std::swap(all[i - 1], all[gen_() % i]);
    if (all.size() > size_t(most)) all.resize(size_t(most));
  }

  void one(const Job& job, Published& out) {
    RankContext& ctx = RankContext::current();
    ctx.record = true;
    ctx.events.clear();
    try {
      const Reference& r = *job.ref;
      std::mt19937 gen(job.seed);
      std::vector<DistTensor> in, probes;
      for (size_t i = 0; i < r.in.size(); ++i)
        in.push_back(place(r.in[i], job.in[i], int(i)));
      int which = 10;
      auto anyhow = [&](const Array& a) {
        return place(a,
                     Spec::get(mesh_, a.shape,
                               random_layout(mesh_, a.shape,
                                             !options_.reproducible, gen),
                               a.dtype),
                     which++);
      };
      for (const Array& a : r.probes) probes.push_back(anyhow(a));
      auto cotangent = [&](const Spec* out) {
        if (job.seed % 3 == 0) return anyhow(r.cotangent);
        Layout l = out->layout();
        l.partials.clear();
        return place(r.cotangent,
                     job.seed % 3 == 1
                         ? out->with(l)
                         : Spec::replicated(mesh_, out->shape(), out->dtype()));
      };
      Evaluated e =
          evaluate(op_, r.sample, job.assignment ? &*job.assignment : nullptr,
                   in, cotangent, probes, job.level);
      for (const auto* list : {&e.out, &e.grads, &e.second})
        out.add(*list, !ctx.dry_run);
      out.events = ctx.events;
    } catch (const std::exception& e) {
      out = {};
      out.error = e.what();
      if (!may_refuse_ && !ctx.dry_run) throw;
    }
  }

  // Sends this rank's results to the ranks of all processes.
  void share(std::vector<Published>& ranks, int64_t rank) {
    const Published& mine = ranks[static_cast<size_t>(rank)];
    const std::vector<std::string> all =
        all_gather_bytes("published", 0, pack(mine));
    std::lock_guard lock(mutex_);  // ranks of one process do it for each other
    for (size_t r = 0; r < ranks.size(); ++r)
      if (static_cast<int64_t>(r) / ranks_here() != rank / ranks_here())
        ranks[r] = unpack(all[r], mine);
  }
  int64_t ranks_here() const { return options_.processes; }

  void failure(const Job* job, const std::string& what) {
    if (++report_.failed > options_.reported) return;
    std::string where =
        fmt::format("{} on mesh {}", op_.name(), mesh_.to_string());
    if (job) {
      where += fmt::format(", sample {}, ", job->ref->text);
      where += job->assignment ? "assignment " + job->text : "chosen";
      for (const Spec* s : job->in) where += ", " + s->to_string();
    }
    report_.failures.push_back(where + ": " + what);
  }

  // Checks that all ranks and the dry run have the same steps, that the bytes
  // counted are those predicted, and that the dry run predicts the same bytes,
  // unless data decide them.
  void examine_events(const Job& job, const std::vector<Published>& ranks,
                      const Published& dry) {
    for (const Published& p : ranks)
      if (p.events.size() != dry.events.size())
        return failure(&job,
                       fmt::format("{} collectives on a rank, {} in a dry run",
                                   p.events.size(), dry.events.size()));
    for (size_t i = 0; i < dry.events.size(); ++i) {
      const CommEvent& e = dry.events[i];
      int64_t predicted = 0, counted = 0;
      bool same = true;
      for (const Published& p : ranks) {
        same &= p.events[i].kind == e.kind && p.events[i].axes == e.axes;
        predicted = std::max(predicted, p.events[i].predicted);
        counted = std::max(counted, p.events[i].counted);
      }
      if (!same || predicted != counted ||
          (job.assignment && e.predicted != predicted &&
           !data_decide_bytes(e.op)))
        failure(&job, fmt::format("collective {}, {} for {}: {} bytes in a dry "
                                  "run, {} predicted, {} counted",
                                  i, name(e.kind), e.op, e.predicted, predicted,
                                  counted));
    }
  }

  void examine(const Job& job, const std::vector<Published>& ranks,
               const Published& dry) {
    const Published& first = ranks[0];
    for (const Published& p : ranks)
      if (p.error != first.error && may_refuse_)
        return failure(&job, "ranks end with different errors: " + first.error +
                                 " and " + p.error);
    for (const Published& p : ranks)
      if (!p.error.empty()) {
        if (may_refuse_) {
          if (report_.refused++ == 0) report_.refusal = p.error;
        } else
          failure(&job, p.error);
        return;
      }
    for (const Published& p : ranks)
      if (p.specs != first.specs)
        return failure(&job,
                       "ranks disagree on the specs of the results, or "
                       "did not come to this call");
    if (dry.specs != first.specs)
      return failure(&job, "another result in a dry run: " + dry.error);
    examine_events(job, ranks, dry);
    const Reference& r = *job.ref;
    size_t at = 0;
    auto group = [&](const char* what, const std::vector<Array>& want,
                     double tolerance, double& largest) {
      for (size_t i = 0; i < want.size(); ++i, ++at) {
        std::vector<Array> parts;
        for (const Published& p : ranks) parts.push_back(p.parts[at]);
        std::string why;
        double error = distance(first.specs[at], parts, want[i], why);
        if (error < 1) largest = std::max(largest, error);
        if (error > tolerance)
          failure(&job, fmt::format("{} {} as {}: {} (error {:.2g})", what, i,
                                    first.specs[at]->to_string(), why, error));
      }
    };
    if (first.specs.size() < r.out.size())
      return failure(&job, "has fewer outputs than on one rank");
    if (job.assignment) check_outputs(job, first);
    const double tolerance = options_.reproducible           ? 0
                             : options_.dtype == DType::kF64 ? kTolerance
                             : options_.dtype == DType::kF32 ? kF32Tolerance
                                                             : kHalfTolerance;
    group("output", r.out, tolerance, report_.values);
    if (job.level == Level::kValues) return;
    group("gradient", r.grads, tolerance, report_.gradients);
    if (job.level == Level::kSecond)
      group("second derivative", r.second, kSecondTolerance, report_.second);
  }

  // Checks that the outputs have the layouts that the rule promises.
  void check_outputs(const Job& job, const Published& first) {
    std::vector<Shape> shapes;
    for (const Array& a : job.ref->in) shapes.push_back(a.shape);
    BoundRule rule = op_.bind(shapes, job.ref->sample.attrs);
    for (size_t o = 0; o < job.ref->out.size(); ++o) {
      const Spec* want =
          Spec::get(mesh_, rule.output_shape(int(o)),
                    rule.output_layout(*job.assignment, mesh_, int(o)),
                    first.specs[o]->dtype());
      if (want != first.specs[o])
        failure(&job,
                fmt::format("output {} is {}, by the rule {}", o,
                            first.specs[o]->to_string(), want->to_string()));
    }
  }

  const Op& op_;
  const Options& options_;
  const bool may_refuse_;
  Report& report_;
  Mesh mesh_;
  std::mt19937 gen_;
  std::vector<Job> jobs_;
  std::vector<std::vector<Published>> results_;
  std::vector<Published> dry_;
  std::mutex mutex_;
};

}  // namespace

void prove_on_mesh(const Op& op, const Options& options,
                   const std::string& mesh,
                   const std::vector<Reference>& references, Report& report) {
  OnMesh on(op, options, report, mesh);
  for (const Reference& ref : references) on.prepare(ref);
  on.run();
}

}  // namespace dtensor::proof
