// SPDX-License-Identifier: Apache-2.0
#include "dtensor/gather.h"

#include <algorithm>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtensor/async.h"
#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/execute.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

using Impl = DistTensor::Impl;

// The bytes to count for a gathered parameter. All ranks count its largest part
// on any rank, so that they keep and free the same copies.
int64_t gathered_bytes(const Impl& p) { return p.use->largest_part_bytes(); }

// A parameter that has been gathered, or is being gathered.
struct Entry {
  std::weak_ptr<Impl> of;
  uint64_t version;  // the parameter's version at the gather
  int64_t bytes;
  Tensor part;
  std::shared_ptr<Pending> pending;  // if set, its wait() makes the part
  const Impl* key = nullptr;         // address of *of, even if `of` has expired
};

class Entries {
 public:
  // Returns null if p has no entry, or was written to since it was gathered.
  Entry* find(const Impl& p) {
    const auto it = places_.find(&p);
    if (it == places_.end()) return nullptr;
    const auto of = it->second->of.lock();
    // If the entry's parameter was destroyed, p may be another one at its
    // address.
    if (of.get() == &p && of->version() == it->second->version)
      return &*it->second;
    erase(p);
    return nullptr;
  }
  // Adds an entry as the most recently used one.
  void add(Entry e) {
    e.key = e.of.lock().get();
    erase(*e.key);
    bytes_ += e.bytes;
    list_.push_back(std::move(e));
    places_[list_.back().key] = std::prev(list_.end());
  }
  // REQUIRES: p has an entry.
  void make_latest(const Impl& p) {
    list_.splice(list_.end(), list_, places_.at(&p));
  }
  void erase(const Impl& p) {
    const auto it = places_.find(&p);
    if (it == places_.end()) return;
    bytes_ -= it->second->bytes;
    list_.erase(it->second);
    places_.erase(it);
  }
  // Drops entries, the least recently used first, until at most `most` bytes
  // are left. Keeps entries with a part in `used`.
  void shrink(int64_t most, const std::vector<Tensor>& used) {
    for (auto e = list_.begin(); e != list_.end() && bytes_ > most;) {
      const bool in_use =
          std::any_of(used.begin(), used.end(), [&](const Tensor& t) {
            return t.defined() && e->part.defined() &&
                   t.storage() == e->part.storage();
          });
      const Impl* key = (e++)->key;
      if (!in_use) erase(*key);
    }
  }
  void clear() { *this = {}; }
  int64_t bytes() const { return bytes_; }
  size_t size() const { return list_.size(); }

 private:
  std::list<Entry> list_;  // the least recently used first
  std::unordered_map<const Impl*, std::list<Entry>::iterator> places_;
  int64_t bytes_ = 0;
};

class Gathered final : public RankServices::Service {
 public:
  // Returns each parameter's part under its use_spec(). A part is undefined on
  // ranks outside its mesh.
  std::vector<Tensor> take(RankContext& ctx,
                           const std::vector<std::shared_ptr<Impl>>& wanted) {
    const Scoped<MemoryKind> kind(ctx.memory_kind, MemoryKind::kGathered);
    const std::string_view caller = ctx.op;
    const Scoped<std::string_view> op(ctx.op, "gather");
    std::vector<Tensor> parts(wanted.size());
    std::vector<size_t> missing;
    int64_t bytes = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      // (A parameter of another pipeline stage has no part here.)
      if (!ctx.coordinate_or_null(wanted[i]->spec->mesh())) continue;
      if (const Entry* held = held_.find(*wanted[i])) {
        parts[i] = held->part;
        held_.make_latest(*wanted[i]);
      } else {
        missing.push_back(i);
        bytes += gathered_bytes(*wanted[i]);
      }
    }
    if (missing.empty()) return parts;
    held_.shrink(std::max<int64_t>(0, ctx.gather_budget / 2 - bytes), parts);
    std::vector<std::shared_ptr<Impl>> now;
    std::vector<size_t> places;
    for (size_t i : missing) {
      expected_ = expected_ && misses_.size() < learned_.size() &&
                  learned_[misses_.size()].lock() == wanted[i];
      // Bound the list, because text generation, for example, never ends a
      // step.
      if (misses_.size() < kMostLearned) misses_.push_back(wanted[i]);
      const Entry* ahead = ahead_.find(*wanted[i]);
      if (!ahead) {
        places.push_back(i);
        now.push_back(wanted[i]);
        continue;
      }
      parts[i] = ahead->pending ? ahead->pending->wait() : ahead->part;
      ahead_.erase(*wanted[i]);
    }
    if (ctx.comm_budget >= 0 && !now.empty()) {
      const Scoped<std::string_view> by(ctx.op, caller);
      spend_budget(ctx, execution(ctx, moves_of(now))->plan().bytes,
                   "gathering its parameters");
    }
    std::vector<Tensor> made = gather(ctx, now);
    for (size_t k = 0; k < places.size(); ++k)
      parts[places[k]] = std::move(made[k]);
    for (size_t i : missing)
      held_.add({wanted[i], wanted[i]->version(), gathered_bytes(*wanted[i]),
                 parts[i], nullptr});
    run_ahead(ctx);
    return parts;
  }

  void free(const Impl& p) { held_.erase(p); }

  void end_step() {
    held_.clear();
    ahead_.clear();
    learned_ = std::move(misses_);
    misses_.clear();
    expected_ = true;
  }

 private:
  static std::vector<Move> moves_of(
      const std::vector<std::shared_ptr<Impl>>& list) {
    std::vector<Move> moves;
    for (const auto& p : list) moves.push_back({p->spec, p->use});
    return moves;
  }

  static std::vector<Tensor> gather(
      RankContext& ctx, const std::vector<std::shared_ptr<Impl>>& list) {
    std::vector<Tensor> parts;
    if (list.empty()) return parts;
    for (const auto& p : list) parts.push_back(p->part());
    execute(ctx, *execution(ctx, moves_of(list)), parts);
    return parts;
  }

  void run_ahead(RankContext& ctx) {
    const int64_t most = ctx.gather_budget - ctx.gather_budget / 2;
    // Under a communication budget, gather a parameter only when it is needed,
    // so that its bytes count in the scope that uses it.
    if (!expected_ || most == 0 || ctx.comm_budget >= 0) return;
    int64_t bytes = ahead_.bytes();
    std::vector<std::shared_ptr<Impl>> list;
    for (size_t next = misses_.size() + ahead_.size(); next < learned_.size();
         ++next) {
      const auto p = learned_[next].lock();
      if (!p || held_.find(*p) || ahead_.find(*p) ||
          std::find(list.begin(), list.end(), p) != list.end())
        break;
      bytes += gathered_bytes(*p);
      if (bytes > most) break;
      list.push_back(p);
    }
    if (list.empty()) return;
    std::vector<Tensor> parts(list.size());
    std::vector<std::shared_ptr<Pending>> pending(list.size());
    if (ctx.dry_run) {
      parts = gather(ctx, list);
    } else {
      std::vector<Tensor> from;
      for (const auto& p : list) from.push_back(p->part());
      pending = begin_moves(ctx, moves_of(list), std::move(from));
    }
    for (size_t i = 0; i < list.size(); ++i)
      ahead_.add({list[i], list[i]->version(), gathered_bytes(*list[i]),
                  std::move(parts[i]), std::move(pending[i])});
  }

  static constexpr size_t kMostLearned = 1 << 16;
  Entries held_, ahead_;
  // The first kMostLearned parameters that were gathered in the previous step
  // (learned_) and in this one (misses_), in order.
  std::vector<std::weak_ptr<Impl>> learned_, misses_;
  bool expected_ = true;  // misses_ has repeated learned_ so far
};

Gathered& memory(RankContext& ctx) { return ctx.services.get<Gathered>(); }

// Gathers a parameter when its part is first read.
class WhenRead final : public Pending {
 public:
  WhenRead(DistTensor parameter, const Spec* to)
      : parameter_(std::move(parameter)), to_(to) {}
  const Tensor& wait() override {
    RankContext& ctx = RankContext::current();
    const NoGrad no_grad;
    const Spec* from = parameter_.spec();
    Tensor part = parameter_.impl()->part();
    if (gathers(parameter_)) {
      from = parameter_.use_spec();
      part = memory(ctx).take(ctx, {parameter_.impl()})[0];
    }
    const Scoped<MemoryKind> kind(ctx.memory_kind, MemoryKind::kGathered);
    made_ = redistribute_local(part, from, to_);
    version_ = made_.defined() ? made_.storage()->version() : 0;
    return made_;
  }
  uint64_t version() const override { return version_; }

 private:
  const DistTensor parameter_;
  const SpecRef to_;
  Tensor made_;
  uint64_t version_ = 0;
};

DistTensor seen_as(const DistTensor& parameter, const Spec* spec) {
  auto impl = std::make_shared<Impl>();
  impl->spec = spec;
  impl->run = parameter.impl()->run;
  impl->keep = Keep::kStay;
  impl->lineage = parameter.impl()->lineage;
  return DistTensor(std::move(impl));
}

}  // namespace

void gather_inputs(RankContext& ctx, std::span<DistTensor> x) {
  std::vector<std::shared_ptr<Impl>> wanted;
  for (const DistTensor& t : x)
    if (gathers(t) &&
        std::find(wanted.begin(), wanted.end(), t.impl()) == wanted.end())
      wanted.push_back(t.impl());
  const std::vector<Tensor> parts = memory(ctx).take(ctx, wanted);
  for (DistTensor& t : x) {
    const auto at = std::find(wanted.begin(), wanted.end(), t.impl());
    if (at == wanted.end()) continue;
    DistTensor whole = seen_as(t, t.use_spec());
    whole.impl()->local = parts[static_cast<size_t>(at - wanted.begin())];
    whole.impl()->note_version();
    t = passes_as_it_comes(t, std::move(whole));
  }
}

DistTensor gathered_when_read(const DistTensor& parameter, const Spec* to) {
  DistTensor whole = seen_as(parameter, to);
  whole.impl()->pending = std::make_shared<WhenRead>(parameter, to);
  return passes_as_it_comes(parameter, std::move(whole));
}

SavedInput::SavedInput(const DistTensor& given, const DistTensor& used,
                       const Spec* in)
    : x_(given.keep() == Keep::kGatherOnUse ? given : used),
      in_(in),
      version_(x_.impl()->version()) {
  if (awaits()) ++x_.impl()->awaited;
}

SavedInput::~SavedInput() {
  if (!awaits()) return;
  --x_.impl()->awaited;
  if (RankContext* ctx = RankContext::current_or_null())
    free_gathered(*ctx, x_);
}

DistTensor SavedInput::read() const {
  return awaits() ? gathered_when_read(x_, in_) : x_;
}

void free_gathered(RankContext& ctx, const DistTensor& parameter) {
  if (parameter.impl()->awaited > 0) return;
  if (auto* gathered = ctx.services.find<Gathered>())
    gathered->free(*parameter.impl());
}

void end_gather_step(RankContext& ctx) {
  if (auto* gathered = ctx.services.find<Gathered>()) gathered->end_step();
}

}  // namespace dtensor
