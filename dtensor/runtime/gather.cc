#include "dtensor/runtime/gather.h"

#include <algorithm>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "dtensor/runtime/async.h"
#include "dtensor/runtime/autograd.h"
#include "dtensor/runtime/execute.h"
#include "dtensor/runtime/redistribute.h"

namespace dtensor {
namespace {

using Impl = DistTensor::Impl;

// On the rank that has the most: all of them decide alike.
int64_t gathered_bytes(const Impl& p) { return p.use->largest_part_bytes(); }

class Gathered final : public RankContext::Memory {
 public:
  // Each parameter's part under its use_spec().
  std::vector<Tensor> take(RankContext& ctx,
                           const std::vector<std::shared_ptr<Impl>>& wanted) {
    const Scoped<MemoryKind> kind(ctx.memory_kind, MemoryKind::kGathered);
    const Scoped<std::string_view> op(ctx.op, "gather");
    std::vector<Tensor> parts(wanted.size());
    std::vector<size_t> missing;
    int64_t bytes = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (const auto held = find(held_, *wanted[i]); held != held_.end()) {
        parts[i] = held->part;
        held_.splice(held_.end(), held_, held);  // the latest
      } else {
        missing.push_back(i);
        bytes += gathered_bytes(*wanted[i]);
      }
    }
    if (missing.empty()) return parts;
    make_room(std::max<int64_t>(0, ctx.gather_budget / 2 - bytes), parts);
    std::vector<std::shared_ptr<Impl>> now;
    std::vector<size_t> places;
    for (size_t i : missing) {
      expected_ = expected_ && misses_.size() < learned_.size() &&
                  learned_[misses_.size()].lock() == wanted[i];
      // Whoever gathers so often does not train, but generates text, say.
      if (misses_.size() < kMostLearned) misses_.push_back(wanted[i]);
      const auto ahead = find(ahead_, *wanted[i]);
      if (ahead == ahead_.end()) {
        places.push_back(i);
        now.push_back(wanted[i]);
        continue;
      }
      parts[i] = ahead->pending ? ahead->pending->wait() : ahead->part;
      ahead_.erase(ahead);
    }
    std::vector<Tensor> made = gather(ctx, now);
    for (size_t k = 0; k < places.size(); ++k)
      parts[places[k]] = std::move(made[k]);
    for (size_t i : missing)
      held_.push_back({wanted[i], wanted[i]->version(),
                       gathered_bytes(*wanted[i]), parts[i], nullptr});
    run_ahead(ctx);
    return parts;
  }

  void free(const Impl& p) {
    const auto held = find(held_, p);
    if (held != held_.end()) held_.erase(held);
  }

  void end_step() {
    held_.clear();
    ahead_.clear();
    learned_ = std::move(misses_);
    misses_.clear();
    expected_ = true;
  }

 private:
  struct Entry {
    std::weak_ptr<Impl> of;
    uint64_t version;
    int64_t bytes;
    Tensor part;
    std::shared_ptr<Pending> pending;
  };
  using Entries = std::list<Entry>;  // the oldest first

  static Entries::iterator find(Entries& entries, const Impl& p) {
    std::erase_if(entries, [](const Entry& e) {
      const auto of = e.of.lock();
      return !of || of->version() != e.version;
    });
    return std::find_if(entries.begin(), entries.end(), [&](const Entry& e) {
      return e.of.lock().get() == &p;
    });
  }
  static int64_t total(const Entries& entries) {
    int64_t bytes = 0;
    for (const Entry& e : entries) bytes += e.bytes;
    return bytes;
  }

  // Lets go of the oldest until no more than `most` bytes are held, but for
  // those that are being used.
  void make_room(int64_t most, const std::vector<Tensor>& used) {
    int64_t bytes = total(held_);
    for (auto e = held_.begin(); e != held_.end() && bytes > most;) {
      const bool in_use =
          std::any_of(used.begin(), used.end(), [&](const Tensor& t) {
            return t.defined() && e->part.defined() &&
                   t.storage() == e->part.storage();
          });
      if (!in_use) bytes -= e->bytes;
      e = in_use ? std::next(e) : held_.erase(e);
    }
  }

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
    const auto e = execution(ctx, moves_of(list));
    spend_budget(ctx, e->plan().bytes, "gathering its parameters");
    for (const auto& p : list) parts.push_back(p->part());
    execute(ctx, *e, parts);
    return parts;
  }

  void run_ahead(RankContext& ctx) {
    const int64_t most = ctx.gather_budget - ctx.gather_budget / 2;
    // A limit on what is sent has to know what is sent now.
    if (!expected_ || most == 0 || ctx.comm_budget >= 0) return;
    int64_t bytes = total(ahead_);
    std::vector<std::shared_ptr<Impl>> list;
    for (size_t next = misses_.size() + ahead_.size(); next < learned_.size();
         ++next) {
      const auto p = learned_[next].lock();
      if (!p || find(held_, *p) != held_.end() ||
          find(ahead_, *p) != ahead_.end() ||
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
      ahead_.push_back({list[i], list[i]->version(), gathered_bytes(*list[i]),
                        std::move(parts[i]), std::move(pending[i])});
  }

  static constexpr size_t kMostLearned = 1 << 16;
  Entries held_, ahead_;
  // What had to be gathered in the step before, and in this one, in order.
  std::vector<std::weak_ptr<Impl>> learned_, misses_;
  bool expected_ = true;  // this step has gone as the one before
};

Gathered& memory(RankContext& ctx) {
  if (!ctx.gathered) ctx.gathered = std::make_unique<Gathered>();
  return static_cast<Gathered&>(*ctx.gathered);
}

// One that is gathered when its part is asked for.
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
  const Spec* const to_;
  Tensor made_;
  uint64_t version_ = 0;
};

DistTensor seen_as(const DistTensor& parameter, const Spec* spec) {
  auto impl = std::make_shared<Impl>();
  impl->spec = spec;
  impl->run = parameter.impl()->run;
  impl->keep = Keep::kStay;
  return DistTensor(std::move(impl));
}

}  // namespace

void gather_inputs(RankContext& ctx, std::span<const DistTensor> x,
                   std::span<DistTensor> seen) {
  std::vector<std::shared_ptr<Impl>> wanted;
  for (const DistTensor& t : x)
    if (gathers(t) &&
        std::find(wanted.begin(), wanted.end(), t.impl()) == wanted.end())
      wanted.push_back(t.impl());
  const std::vector<Tensor> parts = memory(ctx).take(ctx, wanted);
  for (size_t i = 0; i < x.size(); ++i) {
    seen[i] = x[i];
    const auto at = std::find(wanted.begin(), wanted.end(), x[i].impl());
    if (at == wanted.end()) continue;
    DistTensor whole = seen_as(x[i], x[i].use_spec());
    whole.impl()->local = parts[static_cast<size_t>(at - wanted.begin())];
    whole.impl()->note_version();
    seen[i] = passes_as_it_comes(x[i], std::move(whole));
  }
}

DistTensor gathered_when_read(const DistTensor& parameter, const Spec* to) {
  DistTensor whole = seen_as(parameter, to);
  whole.impl()->pending = std::make_shared<WhenRead>(parameter, to);
  return passes_as_it_comes(parameter, std::move(whole));
}

void await_gather(const DistTensor& parameter) { ++parameter.impl()->awaited; }

void forget_gather(RankContext* ctx, const DistTensor& parameter) {
  --parameter.impl()->awaited;
  if (ctx) free_gathered(*ctx, parameter);
}

void free_gathered(RankContext& ctx, const DistTensor& parameter) {
  if (ctx.gathered && parameter.impl()->awaited == 0)
    static_cast<Gathered&>(*ctx.gathered).free(*parameter.impl());
}

void end_gather_step(RankContext& ctx) {
  if (ctx.gathered) static_cast<Gathered&>(*ctx.gathered).end_step();
}

}  // namespace dtensor
