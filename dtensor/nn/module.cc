#include "dtensor/nn/module.h"

#include <algorithm>

#include "dtensor/placement/error.h"

namespace dtensor::nn {

Scope Scope::operator/(std::string_view child) const {
  Scope s = *this;
  if (!s.path.empty()) s.path += '.';
  s.path += child;
  return s;
}

DistTensor Module::add_parameter(std::string_view name, const Shape& shape,
                                 const Init& init) {
  const std::string full = (scope_ / name).path;
  for (const NamedParameter& p : own_)
    DT_CHECK(p.name != full, "module", "parameter {} exists already", full);
  const Layout layout = scope_.plan
                            ? layout_of(*scope_.plan, full, scope_.mesh, shape)
                            : Layout::replicated(shape);
  own_.push_back({full, make_parameter(full, shape, scope_.mesh, layout,
                                       scope_.dtype, init, scope_.seed)});
  return own_.back().tensor;
}

void Module::collect(std::vector<NamedParameter>& out) const {
  for (const NamedParameter& p : own_) out.push_back(p);
  for (const auto& child : children_) child->collect(out);
}

std::vector<NamedParameter> Module::named_parameters() const {
  std::vector<NamedParameter> out;
  collect(out);
  return out;
}

std::vector<DistTensor> Module::parameters() const {
  std::vector<DistTensor> out;
  for (NamedParameter& p : named_parameters())
    out.push_back(std::move(p.tensor));
  return out;
}

DistTensor Module::parameter(std::string_view name) const {
  std::string known;
  for (const NamedParameter& p : named_parameters()) {
    if (p.name == name) return p.tensor;
    known += (known.empty() ? "" : ", ") + p.name;
  }
  fail("module", "there is no parameter \"{}\"; there are {}", name, known);
}

}  // namespace dtensor::nn
