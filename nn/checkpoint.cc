// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/all_or_none.h"
#include "dtensor/ops/create.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/rank_context.h"
#include "dtensor/visit.h"

namespace dtensor::nn {
namespace {

constexpr std::string_view kModel = "model/", kOptimizer = "optimizer/",
                           kValue = "value/", kTimes = "random/times/",
                           kMaster = ".master";
constexpr const char *kSeed = "random/seed", *kPosition = "data_position";

std::string joined(std::string_view a, std::string_view b) {
  return std::string(a) + std::string(b);
}

// The tensors of a checkpoint. The optimizer's state is named after the model's
// parameters, because an optimizer that was made from Module::parameters()
// numbers its parameters and does not know their names.
std::vector<NamedTensor> all_of(const Module& model,
                                const std::vector<OptimizerState>& state) {
  std::vector<NamedTensor> all;
  std::map<const DistTensor::Impl*, std::string> names;
  for (const NamedParameter& p : model.named_parameters()) {
    all.push_back({joined(kModel, p.name), p.tensor});
    names.emplace(p.tensor.impl().get(), p.name);
  }
  for (const OptimizerState& s : state) {
    const auto named = names.find(s.parameter.impl().get());
    all.push_back(
        {joined(kOptimizer,
                named == names.end()
                    ? s.name
                    : named->second + s.name.substr(s.name.rfind('.'))),
         s.value});
  }
  return all;
}

// Combines the random states of all ranks: each rank knows only the generators
// that it has drawn from.
RandomState random_state_of_all() {
  const RandomState mine = random_state();
  std::vector<uint64_t> packed = {mine.seed};
  for (const auto& [ranks, times] : mine.times) {
    packed.push_back(ranks);
    packed.push_back(times);
  }
  std::vector<std::vector<uint64_t>> all;
  for (const std::string& bytes : all_gather_bytes(
           "random_state", 0,
           {reinterpret_cast<const char*>(packed.data()), packed.size() * 8})) {
    all.emplace_back(bytes.size() / 8);
    std::memcpy(all.back().data(), bytes.data(), bytes.size());
  }

  RandomState state{.seed = mine.seed, .times = {}};
  for (size_t r = 0; r < all.size(); ++r) {
    const std::vector<uint64_t>& its = all[r];
    DT_CHECK(its[0] == all[0][0], "checkpoint",
             "rank {} has the seed {}, but rank 0 has {}; call manual_seed() "
             "with the same seed on every rank",
             r, its[0], all[0][0]);
    for (size_t i = 1; i < its.size(); i += 2) {
      const auto [known, added] = state.times.emplace(its[i], its[i + 1]);
      DT_CHECK(added || known->second == its[i + 1], "checkpoint",
               "the number of draws from one random generator is {} on rank "
               "{}, but {} on another; draw (randn() and the like) equally "
               "often on all ranks of a mesh",
               its[i + 1], r, known->second);
    }
  }
  return state;
}

// Appends the names that have one kind of problem to the text of an error: "2
// are missing (a, b)". Shows at most 8; appends nothing if `names` is empty.
void list(std::string& text, const std::vector<std::string>& names,
          std::string_view what) {
  if (names.empty()) return;
  constexpr size_t kShown = 8;
  text += fmt::format("{}{} {} {} (", text.empty() ? "" : ", ", names.size(),
                      names.size() == 1 ? "is" : "are", what);
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i)
    text += (i ? ", " : "") + names[i];
  text += names.size() > kShown ? ", ...)" : ")";
}

// Returns the saved name that each tensor of `own` is read from. Throws Error
// if the checkpoint does not fit, and says why.
std::vector<std::string> sources(const std::string& path,
                                 const CheckpointReader& saved,
                                 const std::vector<NamedTensor>& own,
                                 bool cast) {
  std::map<std::string, TensorInfo> infos;
  for (TensorInfo& t : saved.tensors()) infos.emplace(t.name, t);
  std::set<std::string> unread;
  for (const auto& [name, info] : infos) unread.insert(name);

  std::vector<std::string> from, missing, shapes, types;
  for (const NamedTensor& t : own) {
    std::string name = t.name;
    unread.erase(name);
    const bool parameter = name.starts_with(kModel);
    if (cast && parameter) {
      // The master has the same value with less rounding.
      const std::string master =
          joined(kOptimizer, name.substr(kModel.size())) + std::string(kMaster);
      const auto saved_as = infos.find(name);
      if (infos.contains(master) && saved_as != infos.end() &&
          saved_as->second.dtype != t.tensor.dtype())
        name = master;
    } else if (cast && name.ends_with(kMaster) && !infos.contains(name)) {
      name = name.substr(kOptimizer.size());
      name = joined(kModel, name.substr(0, name.size() - kMaster.size()));
    }
    unread.erase(name);
    from.push_back(name);
    const auto found = infos.find(name);
    if (found == infos.end()) {
      missing.push_back(t.name);
      continue;
    }
    const TensorInfo& info = found->second;
    if (info.shape != t.tensor.shape())
      shapes.push_back(fmt::format("{}: saved {}, wanted {}", t.name,
                                   to_string(info.shape),
                                   to_string(t.tensor.shape())));
    const DType type = t.tensor.dtype();
    if (info.dtype != type && !(cast && is_float(info.dtype) && is_float(type)))
      types.push_back(fmt::format("{}: saved {}, wanted {}", t.name,
                                  dtensor::name(info.dtype),
                                  dtensor::name(type)));
  }
  std::string wrong;
  list(wrong, missing, "missing");
  list(wrong, {unread.begin(), unread.end()}, "unknown");
  list(wrong, shapes, "of another shape");
  list(wrong, types,
       cast ? "of another kind"
            : "of another type, which CheckpointLoadOptions::cast converts "
              "between floats");
  DT_CHECK(wrong.empty(), "checkpoint",
           "{} does not fit this model and optimizer: of the tensors, {}; load "
           "it into the model and optimizer with which it was saved (nothing "
           "was loaded)",
           path, wrong);
  return from;
}

template <class T>
T value_of(const CheckpointReader& saved, const std::string& name) {
  const auto found = saved.values().find(name);
  const T* value =
      found == saved.values().end() ? nullptr : std::get_if<T>(&found->second);
  DT_CHECK(value, "checkpoint",
           "{} has no value {} of the type that nn::save_checkpoint() writes; "
           "name a checkpoint of a training, or use a CheckpointReader",
           saved.path(), name);
  return *value;
}

RandomState random_state_of(const CheckpointReader& saved) {
  RandomState random;
  random.seed = value_of<uint64_t>(saved, kSeed);
  for (const auto& [name, value] : saved.values()) {
    if (!name.starts_with(kTimes)) continue;
    uint64_t ranks = 0;
    const char *begin = name.data() + kTimes.size(),
               *end = name.data() + name.size();
    DT_CHECK(std::from_chars(begin, end, ranks).ptr == end, "checkpoint",
             "{} has a value with the name {}, but {} must be followed by a "
             "number; load another checkpoint",
             saved.path(), name, kTimes);
    random.times[ranks] = value_of<uint64_t>(saved, name);
  }
  return random;
}

}  // namespace

void save_checkpoint(const std::string& dir, const Module& model,
                     const Optimizer& optimizer, const TrainingState& state,
                     const CheckpointOptions& options) {
  if (RankContext::current().dry_run) return;
  const RandomState random = random_state_of_all();
  CheckpointValues values = {{kPosition, state.data_position},
                             {kSeed, random.seed}};
  for (const auto& [ranks, times] : random.times)
    values[joined(kTimes, std::to_string(ranks))] = times;
  for (const auto& [name, value] : state.values)
    values[joined(kValue, name)] = value;
  dtensor::save_checkpoint(dir, state.step, all_of(model, optimizer.state()),
                           values, options);
}

TrainingState training_state(const CheckpointReader& saved) {
  TrainingState state;
  state.step = saved.step();
  state.data_position = value_of<int64_t>(saved, kPosition);
  for (const auto& [name, value] : saved.values())
    if (name.starts_with(kValue))
      state.values[name.substr(kValue.size())] = value;
  return state;
}

TrainingState load_checkpoint(const std::string& path, Module& model,
                              Optimizer& optimizer,
                              const CheckpointLoadOptions& options) {
  if (RankContext::current().dry_run) return {};
  std::vector<OptimizerState> states = optimizer.state();
  std::vector<NamedTensor> own = all_of(model, states);
  const size_t parameters = own.size() - states.size();
  std::unique_ptr<CheckpointReader> saved;
  std::vector<std::string> from;
  TrainingState state;
  RandomState random;
  all_or_none("checkpoint", hash_text(path), [&] {
    saved = std::make_unique<CheckpointReader>(path);
    // Earlier versions saved state under the optimizer's own names.
    for (size_t i = 0; i < states.size(); ++i) {
      std::string& name = own[parameters + i].name;
      const std::string before = joined(kOptimizer, states[i].name);
      if (!saved->contains(name) && saved->contains(before)) name = before;
    }
    from = sources(path, *saved, own, options.cast);
    state = training_state(*saved);
    random = random_state_of(*saved);
  });
  // Pieces, so that state which belongs on the host can go there in between.
  constexpr int64_t kPiece = 64 << 20;
  std::vector<DistTensor> read;
  for (size_t n = 0; n < own.size();) {
    std::vector<CheckpointRequest> piece;
    for (int64_t bytes = 0; n < own.size() && bytes < kPiece; ++n) {
      piece.push_back({from[n], own[n].tensor.mesh(), own[n].tensor.layout()});
      bytes += own[n].tensor.spec()->largest_part_bytes();
    }
    for (DistTensor& x : saved->read(piece)) {
      if (is_away(own[read.size()].tensor)) x.local().storage()->offload();
      read.push_back(std::move(x));
    }
  }

  // Every rank has read all of its data, so no file can fail from here on.
  for (size_t i = 0; i < parameters; ++i) assign(own[i].tensor, read[i]);
  for (size_t i = 0; i < states.size(); ++i)
    states[i].value = read[parameters + i];
  optimizer.load_state(states);
  set_random_state(std::move(random));
  return state;
}

}  // namespace dtensor::nn
