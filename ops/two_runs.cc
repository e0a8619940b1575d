// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/two_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

uint64_t version_of(const Tensor& part) {
  return part.defined() ? part.storage()->version() : 0;
}

// `seeds`: also names the seed and stream of random numbers.
std::string text_of(const Op& op, const Attrs& attrs, bool seeds) {
  return fmt::format(
      "{}({}{})", op.name(), attrs.to_string(),
      seeds ? fmt::format("; seed {}, stream {}", attrs.seed[0], attrs.seed[1])
            : "");
}

}  // namespace

Uses::~Uses() {
  for (Use& u : list_)
    if (const auto impl = u.tensor.lock()) impl->copies = std::move(u.copies);
}

bool Uses::add(const DistTensor& x) {
  // list_ has a weak pointer to x's Impl, so no other Impl gets its address.
  if (!known_.insert(x.impl().get()).second) return false;
  DistTensor::Impl& impl = *x.impl();
  list_.push_back({x.impl(), {}, impl.copies});
  if (!impl.pending) list_.back().version = impl.version();
  return true;
}

std::vector<Uses::Left> Uses::left(const std::vector<DistTensor>& results,
                                   const std::vector<size_t>& made) const {
  std::vector<Left> list;
  for (const Use& u : list_) {
    const auto impl = u.tensor.lock();
    const auto is_it = [&](size_t i) { return results[i].impl() == impl; };
    if (impl && std::none_of(made.begin(), made.end(), is_it))
      list.push_back({impl, u.version ? *u.version : impl->version()});
  }
  return list;
}

void FirstRun::used(const DistTensor& x) {
  if (!x.defined()) return;
  if (outer_) outer_->used(x);
  if (uses_.add(x) && x.requires_grad()) captured_.push_back(x);
}

std::vector<Tensor> FirstRun::take(const Op& op, const Attrs& attrs,
                                   const Decision& d) {
  taken_ = true;
  return outer_->take(op, attrs, d);
}

void FirstRun::ran(const Op& op, const Attrs& attrs, const Decision& d,
                   std::span<const DistTensor> inputs,
                   std::span<const DistTensor> outputs) {
  if (outer_) outer_->ran(op, attrs, d, inputs, outputs);
  // Outputs taken from an outer checkpoint() are always kept: it holds their
  // memory anyway.
  if (!std::exchange(taken_, false) &&
      (!save_ || !save_({op.name(), op.facts().work, inputs})))
    return;
  KeptCall call{&op, attrs, {d.out.begin(), d.out.end()}, {}, {}};
  for (size_t o = 0; o < outputs.size(); ++o) {
    const bool keep = op.facts().stores_output(o);
    call.parts.push_back(keep ? outputs[o].impl()->part() : Tensor());
    call.versions.push_back(version_of(call.parts.back()));
  }
  kept_.push_back(std::move(call));
}

SavedCalls FirstRun::selected() const {
  if (!kept_calls || !save_) return kept_calls ? kept_calls : save_;
  return [a = kept_calls, b = save_](const CheckpointedCall& call) {
    return a(call) || b(call);
  };
}

std::vector<DistTensor> FirstRun::captured() {
  std::vector<DistTensor> result;
  // Goes back from the latest tensor. A tensor that the run made may own those
  // that it was made from, so it must be released before their owners are
  // counted.
  while (!captured_.empty()) {
    if (captured_.back().impl().use_count() > 1)
      result.push_back(std::move(captured_.back()));
    captured_.pop_back();
  }
  std::reverse(result.begin(), result.end());
  return result;
}

SecondRun::SecondRun(SavedCalls selected, const std::vector<KeptCall>& kept,
                     const std::vector<DistTensor>& captured, uint64_t first)
    : OpCaptures(std::move(selected)),
      kept_(kept),
      captured_(captured),
      first_(first) {
  for (const DistTensor& x : captured) met_.emplace(x.impl().get(), false);
}

void SecondRun::used(const DistTensor& x) {
  if (!x.defined() || !uses_.add(x) || !x.requires_grad()) return;
  const auto it = met_.find(x.impl().get());
  if (it != met_.end()) {
    it->second = true;
    return;
  }
  DT_CHECK(!x.impl()->node || x.impl()->node->sequence >= first_, "checkpoint",
           "the function uses {} in its second run, but not in its first; use "
           "the same tensors in both runs",
           x.spec()->to_string());
}

std::vector<Tensor> SecondRun::take(const Op& op, const Attrs& attrs,
                                    const Decision& d) {
  DT_CHECK(next_ < kept_.size(), "checkpoint",
           "the function calls {}, an operator with kept outputs, more often "
           "in its second run than in its first; run the same operators in "
           "both runs",
           op.name());
  const KeptCall& k = kept_[next_++];
  const bool reseeded =
      k.op == &op && !std::equal(k.attrs.seed, k.attrs.seed + 2, attrs.seed);
  DT_CHECK(
      k.op == &op && k.attrs.decide_as(attrs) && !reseeded &&
          k.attrs.seed_at == attrs.seed_at &&
          std::equal(k.specs.begin(), k.specs.end(), d.out.begin(),
                     d.out.end()),
      "checkpoint",
      "the function calls {}, giving {}, in its second run, but {}, giving "
      "{}, in its first; run the same operators in both runs",
      text_of(op, attrs, reseeded), d.out[0]->to_string(),
      text_of(*k.op, k.attrs, reseeded), k.specs[0]->to_string());
  for (size_t i = 0; i < k.parts.size(); ++i)
    DT_CHECK(version_of(k.parts[i]) == k.versions[i], "checkpoint",
             "output {} of {}, {}, was changed in place after checkpoint() "
             "kept it for its second run; change a copy of it instead",
             i, op.name(), k.specs[i]->to_string());
  return k.parts;
}

void SecondRun::check_complete() const {
  for (const DistTensor& x : captured_)
    DT_CHECK(met_.at(x.impl().get()), "checkpoint",
             "the function used {} in its first run, but not in its second; "
             "use the same tensors in both runs, and make no tensors inside "
             "that require a gradient",
             x.spec()->to_string());
  DT_CHECK(next_ == kept_.size(), "checkpoint",
           "the number of the function's calls of operators with kept outputs "
           "is {} in its second run, but was {} in its first; run the same "
           "operators in both runs",
           next_, kept_.size());
}

}  // namespace dtensor
