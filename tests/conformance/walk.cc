// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/walk.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <optional>

#include "dtensor/dtensor.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/scoped.h"

namespace dtensor::conformance {
namespace {

// The result of an attempt on one rank.
struct Seen {
  std::string error, wrong, not_here;
  double worst = 0;
  bool native = true, communicated = false, refused = false;
};

class OneRank {
 public:
  OneRank(const Cases& cases, Attempt& attempt, const WalkOptions& options)
      : cases_(cases),
        case_(*attempt.of),
        attempt_(attempt),
        options_(options),
        context_(RankContext::current()) {}

  Seen run() {
    try {
      go();
    } catch (const NotHere& e) {
      seen_.not_here = e.what();
    } catch (const Error& e) {
      seen_.error = e.what();
    }
    return seen_;
  }

 private:
  DistTensor place(const std::string& name, size_t which) const {
    Value whole = cases_.tensor(name);
    if (options_.of_one_rank && whole.dtype == DType::kF64)
      whole.dtype = DType::kF32;
    const Mesh& mesh = attempt_.mesh;
    const Placements placements(attempt_.layouts[which]);
    const Spec* spec = Spec::get(
        mesh, whole.shape, placements.resolve(mesh, whole.shape), whole.dtype);
    return DistTensor::from_local(
        tensor_of(part_of(whole, spec, context_.coordinate(mesh),
                          static_cast<int>(which))),
        mesh, placements, whole.shape);
  }

  void go() {
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      DistTensor x = place(case_.inputs[i], i);
      split_axes_ |= x.spec()->split_axes();
      if (options_.gradients && case_.gradients.contains(case_.inputs[i]))
        x.set_requires_grad();
      tensors_[case_.inputs[i]] = x;
    }
    const Arguments arguments(case_, tensors_, attempt_.mesh);
    const std::vector<DistTensor> outputs = call(arguments);
    if (const auto dropped = arguments.unread(); !dropped.empty())
      throw NotHere(fmt::format("{}", fmt::join(dropped, ", ")));
    if (case_.throws) {
      for (const DistTensor& y : outputs) y.full();
      // A device that computes later reports wrong data here.
      ones({}, attempt_.mesh).item();
      seen_.wrong = "did not throw";
      return;
    }
    if (outputs.size() != case_.outputs.size()) {
      seen_.wrong = fmt::format("{} outputs, not {}", outputs.size(),
                                case_.outputs.size());
      return;
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      check(outputs[i], case_.outputs[i], fmt::format("output {}", i));
    if (options_.gradients) check_gradients(outputs);
  }

  std::vector<DistTensor> call(const Arguments& arguments) {
    context_.events.clear();
    const Scoped<bool> record(context_.record, true);
    if (options_.strict) try {
        const ExplicitOnly strict;
        return (*attempt_.call)(arguments);
      } catch (const Error&) {
        // It may refuse only if the next call communicates (judge()).
        seen_.refused = true;
        context_.events.clear();
      }
    auto outputs = (*attempt_.call)(arguments);
    for (const CommEvent& e : context_.events) {
      seen_.communicated |= sends(e.kind);
      if (e.kind == StepKind::kAllGather && (e.axes & split_axes_))
        seen_.native = false;
    }
    return outputs;
  }

  void check(const DistTensor& got, const std::string& want,
             std::string_view what) {
    const Value whole = value_of(got.full());
    // A case of bools and integers has tolerance 0, which is only right for an
    // output of such a type. A float gets a tolerance.
    double rtol = case_.rtol, atol = case_.atol;
    if (is_float(whole.dtype) && rtol == 0) {
      rtol = whole.dtype == DType::kF64 ? 1e-9 : 1e-5;
      atol = whole.dtype == DType::kF64 ? 1e-11 : 1e-6;
    }
    std::string text =
        difference(whole, cases_.tensor(want), rtol, atol, seen_.worst);
    // The known results are those of other inputs.
    if (options_.of_one_rank) text = other_bits(whole, what);
    if (!text.empty() && seen_.wrong.empty())
      seen_.wrong =
          fmt::format("{} ({}): {}", what, got.spec()->to_string(), text);
  }

  // How a result differs from that of one rank; "" if it does not.
  std::string other_bits(const Value& got, std::string_view what) {
    const std::string key = fmt::format("{} {}", case_.id, what);
    if (attempt_.mesh.num_ranks() == 1)
      options_.of_one_rank->insert({key, got.v});
    const auto known = options_.of_one_rank->find(key);
    if (known == options_.of_one_rank->end()) return "";  // that one failed
    const std::vector<double>& want = known->second;
    for (size_t i = 0; i < want.size(); ++i)
      if (std::bit_cast<uint64_t>(got.v[i]) !=
              std::bit_cast<uint64_t>(want[i]) &&
          !(std::isnan(got.v[i]) && std::isnan(want[i])))
        return fmt::format("element {} is {:.17g}, and {:.17g} on one rank", i,
                           got.v[i], want[i]);
    return "";
  }

  void check_gradients(const std::vector<DistTensor>& outputs) {
    std::vector<DistTensor> wanted;
    std::vector<std::string> names;
    for (const std::string& name : case_.inputs)
      if (case_.gradients.contains(name)) {
        wanted.push_back(tensors_.at(name));
        names.push_back(name);
      }
    if (wanted.empty()) return;
    std::vector<DistTensor> from, cotangents;
    size_t next = case_.inputs.size();
    for (size_t i = 0; i < outputs.size(); ++i)
      if (auto it = case_.cotangents.find(case_.outputs[i]);
          it != case_.cotangents.end()) {
        from.push_back(outputs[i]);
        cotangents.push_back(place(it->second, next++));
      }
    std::vector<DistTensor> gradients;
    if (from.size() == 1) {
      gradients = grad(from[0], wanted, {.cotangent = cotangents[0]});
    } else {
      DistTensor loss;
      for (size_t i = 0; i < from.size(); ++i) {
        const DistTensor term = sum(mul(from[i], cotangents[i]));
        loss = loss.defined() ? add(loss, term) : term;
      }
      gradients = grad(loss, wanted);
    }
    for (size_t i = 0; i < wanted.size(); ++i)
      check(gradients[i], case_.gradients.at(names[i]),
            fmt::format("gradient of {}", names[i]));
  }

  const Cases& cases_;
  const Case& case_;
  const Attempt& attempt_;
  const WalkOptions& options_;
  RankContext& context_;
  Tensors tensors_;
  AxisMask split_axes_ = 0;
  Seen seen_;
};

bool is_sentence(std::string_view text) {
  return text.size() > 10 && text[0] == '[' &&
         text.find("] ") != std::string_view::npos;
}

void judge(Attempt& a, const std::vector<Seen>& ranks, bool strict,
           bool reproducible) {
  for (size_t r = 0; r < ranks.size() && a.failure.empty(); ++r) {
    const Seen& s = ranks[r];
    a.native &= s.native;
    a.worst = std::max(a.worst, s.worst);
    a.not_here = s.not_here;
    if (s.error != ranks[0].error)
      a.failure = fmt::format("rank {} says \"{}\", rank 0 \"{}\"", r, s.error,
                              ranks[0].error);
    else if (!s.wrong.empty())
      a.failure = fmt::format("rank {}: {}", r, s.wrong);
    else if (a.of->throws && s.not_here.empty() && !is_sentence(s.error))
      a.failure = fmt::format("its error is no sentence: \"{}\"", s.error);
    else if (reproducible &&
             s.error.find("leave --reproducible out") != s.error.npos)
      a.refused = true;
    else if (!a.of->throws && !s.error.empty())
      a.failure = s.error;
  }
  if (!strict || !a.failure.empty()) return;
  bool communicated = false;
  for (const Seen& s : ranks) {
    communicated |= s.communicated;
    a.refused |= s.refused;
  }
  if (a.refused && !a.of->throws && !communicated)
    a.failure = "refused to communicate, and then did without";
}

// Makes ranks meet after each attempt. If a rank still waits inside the
// attempt, it and the ranks that came here get an Error.
void meet(const Mesh& mesh) {
  Layout sum = Layout::replicated({});
  for (int a = 0; a < mesh.num_axes(); ++a)
    sum.partials.push_back({a, ReduceOp::kSum});
  DistTensor::from_local(Tensor::full({}, DType::kI64, 1), mesh, sum, {})
      .full();
}

}  // namespace

void walk(const Cases& cases, std::vector<Attempt>& attempts,
          const WalkOptions& options,
          const std::function<void(size_t)>& progress) {
  if (attempts.empty()) return;
  const Mesh mesh = attempts[0].mesh;
  const auto world = static_cast<size_t>(mesh.num_ranks());
  std::atomic<size_t> at = 0;
  while (at < attempts.size()) {
    // Even and odd attempts have results of their own, since a rank may be one
    // attempt ahead of rank 0, which judges.
    std::vector<Seen> seen[2] = {std::vector<Seen>(world),
                                 std::vector<Seen>(world)};
    const size_t first = at;
    std::string broken;
    try {
      RunOptions ranks;
      ranks.world = mesh.num_ranks();
      ranks.reproducible = options.of_one_rank != nullptr;
      if (options.device)
        ranks.device = [&](int64_t) -> Device& { return *options.device; };
      run(ranks, [&](Runtime& rt) {
        const auto me = static_cast<size_t>(rt.rank());
        for (size_t i = first; i < attempts.size(); ++i) {
          seen[i % 2][me] = OneRank(cases, attempts[i], options).run();
          meet(mesh);
          if (me != 0) continue;
          judge(attempts[i], seen[i % 2], options.strict, options.of_one_rank);
          at = i + 1;
          progress(i + 1);
        }
      });
    } catch (const std::exception& e) {
      broken = e.what();
    }
    if (at < attempts.size()) {
      std::string texts;
      for (size_t r = 0; r < world; ++r)
        if (const auto& e = seen[at % 2][r].error; !e.empty())
          texts += fmt::format(" Rank {}: {}", r, e);
      attempts[at].failure =
          fmt::format("the ranks went separate ways: {}{}", broken, texts);
      at = at + 1;
    }
  }
}

}  // namespace dtensor::conformance
