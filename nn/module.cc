// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/module.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor::nn {

Scope Scope::operator/(std::string_view child) const {
  Scope s = *this;
  if (!s.path.empty()) s.path += '.';
  s.path += child;
  if (s.mesh_of) s.mesh = s.mesh_of(s.path);
  return s;
}

DistTensor Module::add_parameter(std::string_view name, const Shape& shape,
                                 const Init& init, std::optional<DType> type) {
  Scope own = scope_;
  own.mesh_of = {};  // a parameter lies on its module's mesh
  const std::string full = (own / name).path;
  const ParameterLayouts layouts = layouts_of(
      scope_.plan ? *scope_.plan : ParallelPlan(), full, scope_.mesh, shape);
  DistTensor p = make_parameter(
      full, shape, scope_.mesh, layouts.rest, type.value_or(scope_.dtype),
      scope_.empty ? Init::none() : init, scope_.seed);
  if (layouts.rest != layouts.use)
    p.gather_on_use(layouts.use);
  else if (layouts.update != layouts.rest)
    p.set_grad_layout(layouts.update);
  return adopt_parameter(name, p);
}

DistTensor Module::adopt_parameter(std::string_view name, const DistTensor& p) {
  const std::string full = (scope_ / name).path;
  for (const NamedParameter& other : own_)
    DT_CHECK(other.name != full, "module",
             "parameter {} exists already; give the new one another name",
             full);
  own_.push_back({full, p});
  return p;
}

void Module::collect(std::vector<NamedParameter>& out) const {
  for (const NamedParameter& p : own_) out.push_back(p);
  for (const auto& child : children_) child->module->collect(out);
}

Module::Slot* Module::find(std::string_view path) const {
  for (const auto& child : children_) {
    if (child->module->path() == path) return child.get();
    if (Slot* inside = child->module->find(path)) return inside;
  }
  return nullptr;
}

void Module::list(
    std::vector<std::pair<std::string, const Module*>>& out) const {
  out.emplace_back(path(), this);
  for (const auto& child : children_) child->module->list(out);
}

std::vector<std::pair<std::string, const Module*>> Module::named_modules()
    const {
  std::vector<std::pair<std::string, const Module*>> out;
  list(out);
  return out;
}

void Module::apply(const std::function<void(Module&)>& fn) {
  for (const auto& child : children_) child->module->apply(fn);
  fn(*this);
}

void Module::train(bool on) {
  apply([on](Module& m) { m.training_ = on; });
}

void Module::to(DType dtype) {
  DT_CHECK(is_float(dtype), "module",
           "parameters cannot become {}; write a float type, such as "
           "DType::kBF16",
           name(dtype));
  apply([dtype](Module& m) {
    m.scope_.dtype = dtype;
    for (const NamedParameter& p : m.own_) {
      if (!is_float(p.tensor.dtype())) continue;
      DistTensor::Impl& i = *p.tensor.impl();
      const uint64_t before = i.version();
      // Converted on the local parts: cast() could choose another layout.
      i.local = converted(i.part(), dtype);
      if (i.local.defined()) {
        i.local.storage()->set_kind(MemoryKind::kParameters);
        // A graph or a gathered copy of the old value must not pass for new.
        while (i.local.storage()->version() <= before)
          i.local.storage()->bump_version();
      }
      for (SpecRef* spec : {&i.spec, &i.use, &i.grad})
        if (*spec) *spec = (*spec)->with(dtype);
      i.node = nullptr;  // the next use makes one of the new type
      i.copies.clear();
      i.note_version();
    }
  });
}

DistTensor Module::run_hooks(DistTensor input, DistTensor output) const {
  for (const auto& hook : hooks_.all())
    if (DistTensor y = (*hook)(*this, input, output); y.defined())
      output = std::move(y);
  return output;
}

void Module::refuse_hooks() const {
  fail("module",
       "{} has a hook, but its forward() does not return one tensor; add the "
       "hook to a module whose forward() does",
       path());
}

Module::Slot& Module::slot(std::string_view path) const {
  const std::string full = (scope_ / path).path;
  if (Slot* s = find(full)) return *s;
  std::vector<std::string> paths;
  for (const auto& [inside, module] : named_modules())
    if (module != this)  // a path begins at this module
      paths.push_back(inside.substr(full.size() - path.size()));
  fail("module", "there is no module \"{}\"; {}", path,
       paths.empty() ? "this one has none inside, so ask another one"
                     : fmt::format("write one of {}", fmt::join(paths, ", ")));
}

const Module& Module::module(std::string_view path) const {
  return *slot(path).module;
}

void Module::replace(std::string_view path,
                     const std::function<std::unique_ptr<Module>(
                         const Scope&, const Module& old)>& make) {
  Slot& s = slot(path);
  std::unique_ptr<Module> fresh = make(s.module->scope_, *s.module);
  DT_CHECK(
      fresh && s.fits(*fresh), "module",
      "the replacement for {} is {}; return the class that it replaces, or "
      "one derived from that",
      s.module->path(), fresh ? "of another class" : "null");
  fresh->train(s.module->training());
  s.module = std::move(fresh);
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
  fail("module", "there is no parameter \"{}\"; {}", name,
       known.empty() ? "this module has none, so ask another one"
                     : "write one of " + known);
}

void check_plan(const ParallelPlan& plan, const Module& module) {
  const std::vector<NamedParameter> parameters = module.named_parameters();
  for (const auto& [pattern, placements] : plan) {
    if (std::any_of(parameters.begin(), parameters.end(),
                    [&pattern = pattern](const NamedParameter& p) {
                      return matches(pattern, p.name);
                    }))
      continue;
    // The names of layers 0, 1, ... are shown as one, with "*" for the number.
    std::vector<std::string> names;
    for (const NamedParameter& p : parameters) {
      std::string name;
      for (char c : p.name) {
        const char shown = c >= '0' && c <= '9' ? '*' : c;
        if (shown != '*' || name.empty() || name.back() != '*') name += shown;
      }
      if (std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
    }
    fail("plan", "\"{}\" matches no parameter; {}", pattern,
         names.empty() ? "leave it out, because the module has none"
                       : fmt::format("write a pattern for one of {}",
                                     fmt::join(names, ", ")));
  }
}

}  // namespace dtensor::nn
