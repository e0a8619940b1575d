// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/nn/optimizer.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"
#include "dtensor/visit.h"

namespace dtensor::nn {
namespace {

// "2 are missing (a, b)", with at most 8 of the names.
std::string counted(const std::set<std::string>& names, std::string_view what) {
  constexpr int kShown = 8;
  std::string list;
  int n = 0;
  for (const std::string& name : names) {
    if (n++ == kShown) {
      list += ", ...";
      break;
    }
    list += (list.empty() ? "" : ", ") + name;
  }
  return fmt::format("{} {} {}{}", names.size(),
                     names.size() == 1 ? "is" : "are", what,
                     list.empty() ? "" : " (" + list + ")");
}

}  // namespace

void Optimizer::load_state(const std::vector<OptimizerState>& values) {
  std::map<std::string, const DistTensor*> given;
  for (const OptimizerState& s : values)
    DT_CHECK(given.emplace(s.name, &s.value).second, "optimizer",
             "the state {} is given twice; pass it once", s.name);
  const std::vector<OptimizerState> own = state();
  std::set<std::string> missing, unknown;
  for (const auto& [name, value] : given) unknown.insert(name);
  for (const OptimizerState& s : own)
    if (!unknown.erase(s.name)) missing.insert(s.name);
  DT_CHECK(
      missing.empty() && unknown.empty(), "optimizer",
      "the state does not fit this optimizer: {} and {}; load the state of an "
      "optimizer of the same class, with the same options and parameters",
      counted(missing, "missing"), counted(unknown, "unknown"));
  std::vector<DistTensor> here;
  std::vector<SpecRef> to;
  for (const OptimizerState& s : own) {
    const DistTensor& v = *given[s.name];
    DT_CHECK(v.shape() == s.value.shape() &&
                 is_float(v.dtype()) == is_float(s.value.dtype()) &&
                 v.dtype() != DType::kBool,
             "optimizer",
             "the state {} is {}, but this optimizer has {}; load the state of "
             "an optimizer with the same parameters",
             s.name, v.spec()->to_string(), s.value.spec()->to_string());
    here.push_back(v);
    to.push_back(s.value.spec()->with(v.dtype()));
  }
  const NoGrad no_grad;
  relayout(here, to);
  if (RankContext::current().dry_run) return;
  size_t at = 0;
  const auto take = [&](const DistTensor& target) {
    visit_part(here[at++], [&](const Tensor& part) {
      if (part.defined())
        target.impl()->local.copy_from(converted(part, target.dtype()));
      return 0;
    });
  };
  steps_ = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    for (const NamedTensor& s : slot.states) take(s.tensor);
    if (slot.master.defined()) take(slot.master);
    slot.version = parameters_[i].impl()->version();
    put_away(slot);
    const Tensor& step = here[at++].impl()->part();
    if (step.defined()) slot.step = step.integer_at(0);
    steps_ = std::max(steps_, slot.step);
  }
}

}  // namespace dtensor::nn
