// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/two_runs.h"

#include <algorithm>
#include <utility>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

uint64_t version_of(const Tensor& part) {
  return part.defined() ? part.storage()->version() : 0;
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

void FirstRun::decided(const Op& op, const Decision& d, uint64_t id) {
  if (outer_) outer_->decided(op, d, id);
  calls_.list.push_back({&op, d.out[0], id});
}

std::vector<Tensor> FirstRun::take() {
  taken_ = true;
  return outer_->take();
}

void FirstRun::ran(const Op& op, std::span<const DistTensor> inputs,
                   std::span<const DistTensor> outputs) {
  if (outer_) outer_->ran(op, inputs, outputs);
  // Outputs taken from an outer checkpoint() are always kept: it holds their
  // memory anyway.
  if (!std::exchange(taken_, false) &&
      (!save_ || !save_({op.name(), op.facts().work, inputs})))
    return;
  KeptOutputs& kept = calls_.kept[calls_.list.size() - 1];
  for (size_t o = 0; o < outputs.size(); ++o) {
    const bool keep = op.facts().stores_output(o);
    kept.parts.push_back(keep ? outputs[o].impl()->part() : Tensor());
    kept.versions.push_back(version_of(kept.parts.back()));
  }
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

SecondRun::SecondRun(const CallsMade& calls,
                     const std::vector<DistTensor>& captured, uint64_t first)
    : calls_(calls), captured_(captured), first_(first) {
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

void SecondRun::decided(const Op& op, const Decision& d, uint64_t id) {
  DT_CHECK(next_ < calls_.list.size(), "checkpoint",
           "the function calls {} in its second run, where its first run had "
           "ended; run the same operators in both runs",
           op.name());
  const CallMade& first = calls_.list[next_++];
  DT_CHECK(first.op == &op && first.out == d.out[0], "checkpoint",
           "the function calls {}, giving {}, in its second run, but {}, "
           "giving {}, in its first; run the same operators in both runs",
           op.name(), d.out[0]->to_string(), first.op->name(),
           first.out->to_string());
  DT_CHECK(
      first.id == id, "checkpoint",
      "the function calls {} with other arguments, seeds or layouts in its "
      "second run than in its first; compute the same in both runs",
      op.name());
}

std::vector<Tensor> SecondRun::take() {
  const KeptOutputs& kept = calls_.kept.at(next_ - 1);
  for (size_t i = 0; i < kept.parts.size(); ++i)
    DT_CHECK(version_of(kept.parts[i]) == kept.versions[i], "checkpoint",
             "output {} of {} was changed in place after checkpoint() kept it "
             "for its second run; change a copy of it instead",
             i, calls_.list[next_ - 1].op->name());
  return kept.parts;
}

void SecondRun::check_complete() const {
  for (const DistTensor& x : captured_)
    DT_CHECK(met_.at(x.impl().get()), "checkpoint",
             "the function used {} in its first run, but not in its second; "
             "use the same tensors in both runs, and make no tensors inside "
             "that require a gradient",
             x.spec()->to_string());
  DT_CHECK(
      next_ == calls_.list.size(), "checkpoint",
      "the number of the function's calls of operators is {} in its second "
      "run, but was {} in its first; run the same operators in both runs",
      next_, calls_.list.size());
}

}  // namespace dtensor
