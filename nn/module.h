// A module: named parameters, and modules inside it.
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
// A forward is ordinary code on DistTensors and knows of no mesh; the layouts
// of the parameters (parallel.h) decide what is sent.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/nn/init.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/nn/parameter.h"
#include "dtensor/scopes.h"

namespace dtensor::nn {

// Where a module is made: its dotted path, and what its parameters need.
struct Scope {
  Mesh mesh;
  std::shared_ptr<const ParallelPlan> plan;  // null: all replicated
  DType dtype = DType::kF32;
  uint64_t seed = 0;
  std::string path = {};
  // Where a module of that path lies, if they do not all lie on `mesh`: see
  // pipeline_model.h.
  std::function<Mesh(std::string_view path)> mesh_of = {};

  Scope operator/(std::string_view child) const;
};

class Module;

// Where a module has one of those inside it: "model.layers.0.mlp" of a model,
// say. Another of the same kind may take its place (Module::replace).
//
// Called, child_(x), it runs the module's forward, and operators in there are
// told apart by its path (OpCall::path). What is called by -> counts as the
// caller's: nothing says when all arguments are there and the call begins.
template <class M>
class Child {
 public:
  Child() = default;  // of nothing yet
  const M* operator->() const { return static_cast<const M*>(slot_->get()); }
  const M& operator*() const { return *operator->(); }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    const PathScope inside((*this)->path());
    return (*this)->forward(std::forward<Args>(args)...);
  }
  // Another function than forward: table_.call(&Embedding::first, n).
  template <class Function, class... Args>
  decltype(auto) call(Function function, Args&&... args) const {
    const PathScope inside((*this)->path());
    return std::invoke(function, **this, std::forward<Args>(args)...);
  }

 private:
  friend class Module;
  explicit Child(const std::unique_ptr<Module>* slot) : slot_(slot) {}
  const std::unique_ptr<Module>* slot_ = nullptr;
};

class Module {
 public:
  explicit Module(Scope at) : scope_(std::move(at)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // This module's, then those of the modules inside, in the order in which
  // they were made. A parameter that is used twice is listed once.
  std::vector<NamedParameter> named_parameters() const;
  std::vector<DistTensor> parameters() const;
  // Throws Error that lists the names there are.
  DistTensor parameter(std::string_view name) const;
  // The module at that path inside this one ("mlp.up"). Throws Error that
  // lists the paths there are.
  const Module& module(std::string_view path) const;
  // Puts another module in its place, which `make` makes from its scope and the
  // old one, whose parameters it may keep (adopt_parameter). Throws Error when
  // the module around it wants another kind: an Mlp where a Linear was.
  void replace(std::string_view path,
               const std::function<std::unique_ptr<Module>(
                   const Scope&, const Module& old)>& make);
  const Mesh& mesh() const { return scope_.mesh; }
  DType dtype() const { return scope_.dtype; }
  const std::string& path() const { return scope_.path; }

 protected:
  // A module inside this one, made with (scope, args...) and owned by this.
  template <class M, class... Args>
  Child<M> add(std::string_view name, Args&&... args) {
    children_.push_back(std::make_unique<Slot>(
        std::make_unique<M>(scope_ / name, std::forward<Args>(args)...),
        [](const Module& m) { return dynamic_cast<const M*>(&m) != nullptr; }));
    return Child<M>(&children_.back()->module);
  }
  // A parameter of this module: stationary, in the layouts that the plan gives
  // its full name. Throws Error when the name is taken.
  DistTensor add_parameter(std::string_view name, const Shape&, const Init&);
  // The same, of a tensor that is there: another module's parameter.
  DistTensor adopt_parameter(std::string_view name, const DistTensor&);

 private:
  struct Slot {
    Slot(std::unique_ptr<Module> m, bool (*f)(const Module&))
        : module(std::move(m)), fits(f) {}
    std::unique_ptr<Module> module;
    bool (*fits)(const Module&);  // may it take the place?
  };
  void collect(std::vector<NamedParameter>&) const;
  // Of the module at that full path; null when it is not there.
  Slot* find(std::string_view path) const;
  Slot& slot(std::string_view path) const;
  void list_paths(std::vector<std::string>&) const;
  Scope scope_;
  std::vector<NamedParameter> own_;
  std::vector<std::unique_ptr<Slot>> children_;  // they stay where they are
};

// Throws Error, which lists the parameters, for a pattern of the plan that
// matches none of them: a typing error would else leave weights whole.
void check_plan(const ParallelPlan&, const Module&);

}  // namespace dtensor::nn
