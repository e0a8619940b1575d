// SPDX-License-Identifier: Apache-2.0
// A module has named parameters and submodules.
//
//   class MLP : public Module {
//    public:
//     MLP(const Scope& at, int64_t hidden, int64_t ffn)
//         : Module(at),
//           up_(add<Linear>("up", hidden, ffn)),
//           down_(add<Linear>("down", ffn, hidden)) {}
//     DistTensor forward(const DistTensor& x) const {
//       return down_(gelu(up_(x)));
//     }
//
//    private:
//     Child<Linear> up_, down_;
//   };
//
// A forward is ordinary code on DistTensors and does not depend on the mesh;
// the layouts of the parameters (parallel.h) decide which collectives run.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/hooks.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/nn/parameter.h"
#include "dtensor/scopes.h"

namespace dtensor::nn {

// The context in which a module is made: its dotted path, and the mesh, plan,
// type and seed of its parameters.
struct Scope {
  Mesh mesh;
  std::shared_ptr<const ParallelPlan> plan = {};  // null: all replicated
  DType dtype = DType::kF32;
  uint64_t seed = 0;
  std::string path = {};
  // Parameters get memory, but no values: they are loaded next.
  bool empty = false;
  // The weights of Linear are i8 (layers.h). Set it only together with `empty`.
  bool int8_weights = false;
  // If set, returns the mesh of the module at a path, for models whose modules
  // do not all lie on `mesh` (pipeline_model.h).
  std::function<Mesh(std::string_view path)> mesh_of = {};

  Scope operator/(std::string_view child) const;
};

class Module;

// A handle to a submodule, such as "model.layers.0.mlp". Module::replace can
// put another module of the same kind behind it.
//
// child(x) runs the submodule's forward. Its operators are attributed to the
// submodule: RankContext::path is the submodule's path. In a call through ->,
// they are attributed to the calling module. For a function other than forward,
// use call(). Only child(x) runs the submodule's hooks.
template <class M>
class Child {
 public:
  Child() = default;  // empty; to be assigned before use
  // Converts a handle to a module of a derived class.
  template <std::derived_from<M> D>
  Child(const Child<D>& derived) : slot_(derived.slot_) {}
  const M* operator->() const { return static_cast<const M*>(slot_->get()); }
  const M& operator*() const { return *operator->(); }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const;
  // Calls a function other than forward: table_.call(&Embedding::first, n).
  template <class Function, class... Args>
  decltype(auto) call(Function function, Args&&... args) const {
    const PathScope inside((*this)->path());
    return std::invoke(function, **this, std::forward<Args>(args)...);
  }

 private:
  friend class Module;
  template <class>
  friend class Child;
  explicit Child(const std::unique_ptr<Module>* slot) : slot_(slot) {}
  const std::unique_ptr<Module>* slot_ = nullptr;
};

class Module {
 public:
  explicit Module(Scope at) : scope_(std::move(at)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // This module's parameters, then those of its submodules, in the order in
  // which they were made. Each module lists the parameters that it made or
  // adopted (adopt_parameter), but not those that it only uses, such as a tied
  // table.
  std::vector<NamedParameter> named_parameters() const;
  std::vector<DistTensor> parameters() const;
  // torch's names for named_parameters(), not copied, and for assign() to them
  // (parameter.h).
  std::vector<NamedParameter> state_dict() const { return named_parameters(); }
  void load_state_dict(const std::vector<NamedTensor>& values) {
    assign(named_parameters(), values);
  }
  // Converts all parameters of float types, which all their handles then see.
  // As in torch, call it before an optimizer is made, and not between a forward
  // and its gradient. Throws Error unless the type is a float type.
  void to(DType);
  // The parameter of this full name, as in named_parameters(). Throws Error,
  // which lists the names, if there is none.
  DistTensor parameter(std::string_view name) const;
  // The submodule at a path relative to this module ("mlp.up"). Throws Error,
  // which lists the paths, if there is none.
  const Module& module(std::string_view path) const;
  // Replaces the submodule at a path with the result of `make`. `make` gets the
  // scope of the old module and the module itself, whose parameters it may keep
  // (adopt_parameter). Throws Error if the result is null, or not of the class
  // that the enclosing module expects: an MLP in place of a Linear, for
  // example. Every rank has to make the same replacement.
  void replace(std::string_view path,
               const std::function<std::unique_ptr<Module>(
                   const Scope&, const Module& old)>& make);
  // This module, under its own path, and all modules inside, in the order in
  // which they were made.
  std::vector<std::pair<std::string, const Module*>> named_modules() const;
  // Calls fn(module) for all modules inside, and then for this one, as in
  // torch.
  void apply(const std::function<void(Module&)>& fn);
  // Sets training() of this module and all inside, on every rank alike. Dropout
  // (sequential.h) asks for it.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  // Calls hook(module, input, output) after each child(x) of this module, which
  // throws Error unless its forward() returns one tensor. `input` is the first
  // argument, or undefined if that is no tensor. A defined tensor that the hook
  // returns takes the output's place. Every rank has to add the same hooks.
  template <class Hook>
  HookHandle register_forward_hook(Hook hook) const {
    using Result = std::invoke_result_t<Hook&, const Module&, const DistTensor&,
                                        const DistTensor&>;
    if constexpr (std::is_void_v<Result>)
      return hooks_.add([hook = std::move(hook)](const auto&... all) mutable {
        hook(all...);
        return DistTensor();
      });
    else
      return hooks_.add(std::move(hook));
  }
  const Mesh& mesh() const { return scope_.mesh; }
  // Null: all parameters are replicated.
  const ParallelPlan* plan() const { return scope_.plan.get(); }
  DType dtype() const { return scope_.dtype; }
  const std::string& path() const { return scope_.path; }

 protected:
  // Makes a submodule with (scope, args...); this module owns it.
  template <class M, class... Args>
  Child<M> add(std::string_view name, Args&&... args) {
    children_.push_back(std::make_unique<Slot>(
        std::make_unique<M>(scope_ / name, std::forward<Args>(args)...),
        [](const Module& m) { return dynamic_cast<const M*>(&m) != nullptr; }));
    return Child<M>(&children_.back()->module);
  }
  // Makes a parameter of this module, in the layouts that the plan gives to its
  // full name (layouts_of()) and of the type dtype() unless another is given.
  // Throws Error if the name is taken.
  DistTensor add_parameter(std::string_view name, const Shape&, const Init&,
                           std::optional<DType> = {});
  // Registers an existing tensor, such as another module's parameter.
  DistTensor adopt_parameter(std::string_view name, const DistTensor&);

 private:
  template <class>
  friend class Child;
  struct Slot {
    Slot(std::unique_ptr<Module> m, bool (*f)(const Module&))
        : module(std::move(m)), fits(f) {}
    std::unique_ptr<Module> module;
    bool (*fits)(const Module&);  // whether a module may replace this one
  };
  void collect(std::vector<NamedParameter>&) const;
  // The slot of the module at a full path; null if there is none.
  Slot* find(std::string_view path) const;
  Slot& slot(std::string_view path) const;
  void list(std::vector<std::pair<std::string, const Module*>>&) const;
  DistTensor run_hooks(DistTensor input, DistTensor output) const;
  [[noreturn]] void refuse_hooks() const;
  template <class First, class... Rest>
  static DistTensor first_tensor(const First& first, const Rest&...) {
    if constexpr (std::is_same_v<First, DistTensor>) return first;
    return {};
  }
  static DistTensor first_tensor() { return {}; }
  Scope scope_;
  bool training_ = true;
  mutable Hooks<std::function<DistTensor(const Module&, const DistTensor&,
                                         const DistTensor&)>>
      hooks_;
  std::vector<NamedParameter> own_;
  std::vector<std::unique_ptr<Slot>> children_;  // Child points into Slots
};

template <class M>
template <class... Args>
decltype(auto) Child<M>::operator()(Args&&... args) const {
  const M& m = **this;
  const Module& module = m;
  const PathScope inside(m.path());
  if (!module.hooks_.empty()) [[unlikely]] {
    if constexpr (std::is_same_v<decltype(m.forward(args...)), DistTensor>) {
      const DistTensor input = Module::first_tensor(args...);  // may move
      return module.run_hooks(input, m.forward(std::forward<Args>(args)...));
    } else {
      module.refuse_hooks();
    }
  }
  return m.forward(std::forward<Args>(args)...);
}

// Throws Error, which lists the parameters, if a pattern of the plan matches
// none of them: a typing error would otherwise leave weights replicated.
void check_plan(const ParallelPlan&, const Module&);

}  // namespace dtensor::nn
