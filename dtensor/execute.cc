// SPDX-License-Identifier: Apache-2.0
#include "dtensor/execute.h"

#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/exposed.h"
#include "dtensor/local_part.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

using Action = Execution::Action;

// Divides the sums of reduced (sum, count) pairs by the counts.
void divide_pairs(const Tensor& pairs, const Tensor& out) {
  const Tensor sum = pairs.slice(0, 0, 1), count = pairs.slice(0, 1, 2);
  out.device().divide(out.stream(), out.dtype(), out.numel(),
                      out.mutable_data(), sum.data(), count.data());
}

// Returns component i of a tensor of (sum, count) pairs (0: the sums, 1: the
// counts), or the tensor itself if it has no pairs.
Tensor component(const Tensor& t, int64_t i, bool pairs) {
  if (!pairs) return t;
  Shape shape = t.shape();
  shape.erase(0);
  return t.slice(0, i, i + 1).reshape(shape);
}

// One tensor while it moves. `now` is its current part. `source` and `end`, the
// destination, are set only if the tensor moves panel by panel.
struct Moving {
  Tensor source, now, end;
};

// Whether an all-reduce can read its input `now` in place. If not, make()
// copies the input first.
bool reduced_where_it_lies(const Action& a, const Tensor& now) {
  return now.contiguous() && now.shape() == a.shape;
}

// Lists that a thread reuses, to save allocations.
struct Lists {
  std::vector<Moving> moving;
  std::vector<Tensor> outs;      // one per action of the round
  std::vector<int64_t> counted;  // bytes received, by index in sent()
  std::vector<Transfer> transfers;
  std::vector<Buffer> buffers;
};
thread_local Lists kept;

// The state of a running execution.
class Run {
 public:
  Run(RankContext& context, const Execution& e)
      : ctx(context), e_(e), lists_(std::move(kept)) {
    lists_.moving.resize(e.moves().size());
    lists_.counted.assign(e.sent().size(), 0);
  }
  ~Run() {
    // Keep the lists for the next run, but release their tensors, even after an
    // error.
    lists_.moving.clear();
    lists_.outs.clear();
    kept = std::move(lists_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  void run(std::span<Tensor> parts, bool consume);

 private:
  Tensor make(const Action&, Moving&, bool consume);
  void fill(const Action&, const Tensor& out, bool fresh, const Tensor& now);
  void communicate(const Execution::Round&);
  void conclude(const Action&, Moving&, Tensor out);
  void record();

  RankContext& ctx;
  const Execution& e_;
  Lists lists_;
};

// Carries out an action that is local; for an action of a collective, only
// prepares the memory. Returns the memory that the action writes to.
Tensor Run::make(const Action& a, Moving& m, bool consume) {
  using Do = Action::Do;
  if (a.what == Do::kView) return window(m.now, a.has, a.wants);
  if (a.in_place) return m.now;
  const bool fresh = !a.into_end || !m.end.defined();
  Tensor out;
  if (a.into_end) {
    if (fresh) m.end = Tensor::empty(e_.end_shape(a.tensor), a.dtype);
    out = m.end;
  } else if (a.what == Do::kAllReduce && consume && m.now.contiguous() &&
             m.now.shape() == a.shape && m.now.storage().use_count() == 1 &&
             m.now.storage()->bytes() == m.now.bytes()) {
    return m.now;
  } else if (a.receives) {
    out = Tensor::empty(a.shape, a.dtype);
  }
  if (a.what == Do::kCopy) copy_indices(a.which, out, a.wants, m.now, a.has);
  if (a.what == Do::kAllReduce && !reduced_where_it_lies(a, m.now)) {
    if (m.now.shape() == a.shape)
      out.copy_from(m.now);
    else
      copy_indices(a.which, out, a.wants, m.now, a.has);
  }
  if (a.what == Do::kFill) fill(a, out, fresh, m.now);
  return out;
}

void Run::fill(const Action& a, const Tensor& out, bool fresh,
               const Tensor& now) {
  const bool had_pairs =
      now.defined() && now.shape().size() > static_cast<int>(a.wants.size());
  Tensor values = component(out, 0, a.pairs);
  Tensor counts = a.pairs ? component(out, 1, true) : Tensor();
  if (a.pairs && fresh) counts.fill(1);
  for (size_t i = 0; i < a.fill.identities.size(); ++i) {
    const Fill::Identity& f = a.fill.identities[i];
    if (i == 0 && !fresh) continue;
    const auto set = [&](Tensor& t, double value) {
      if (i == 0)
        t.fill(value);
      else
        fill_indices(f.where, t, a.wants, value);
    };
    set(values, identity_value(f.op));
    if (a.pairs) set(counts, f.count);
  }
  if (!a.fill.keeps) return;
  copy_indices(a.which, values, a.wants, component(now, 0, had_pairs), a.has);
  if (!a.pairs) return;
  if (had_pairs)
    copy_indices(a.which, counts, a.wants, component(now, 1, true), a.has);
  else
    fill_indices(a.which, counts, a.wants, 1);
}

void Run::communicate(const Execution::Round& r) {
  const Exposed sending(ctx);
  struct Subject {
    const Execution::Round& round;
    const RankContext& context;
    static const Subject& of(const void* subject) {
      return *static_cast<const Subject*>(subject);
    }
    static std::string describe(const void* subject) {
      return of(subject).round.to_string();
    }
    static std::string made(const void* subject) {
      return of(subject).context.about_text();
    }
  };
  const Subject subject{r, ctx};
  Call call{r.kind, ctx.op, r.fingerprint, Subject::describe, &subject};
  if (!r.between) {
    call.lineage = ctx.lineage();
    call.made = Subject::made;
  }
  if (r.kind == StepKind::kAllReduce) {
    lists_.buffers.clear();
    for (size_t i = 0; i < r.actions.size(); ++i) {
      const Action& a = r.actions[i];
      const Tensor &now = lists_.moving[a.tensor].now, &out = lists_.outs[i];
      void* to = out.mutable_data();
      const void* from = reduced_where_it_lies(a, now) ? now.data() : to;
      lists_.buffers.push_back({a.op, a.dtype, to, out.numel(), a.one_shot,
                                from == to ? nullptr : from});
    }
    r.communicator->all_reduce(call, ctx.stream, lists_.buffers);
    for (size_t i = 0; i < r.actions.size(); ++i)
      lists_.counted[r.actions[i].event] += lists_.buffers[i].counted;
    return;
  }
  lists_.transfers.clear();
  for (size_t i = 0; i < r.actions.size(); ++i) {
    const Action& a = r.actions[i];
    const Tensor &src = lists_.moving[a.tensor].now, &dst = lists_.outs[i];
    const int ndim = static_cast<int>(a.schedule.wants.ascending().size());
    const Shape none = Shape::filled(ndim, 1);
    lists_.transfers.push_back(
        {&a.schedule, a.dtype,
         src.defined() && src.numel() ? src.data() : nullptr,
         src.defined() ? src.strides() : none,
         dst.defined() && dst.numel() ? dst.mutable_data() : nullptr,
         dst.defined() ? dst.strides() : none, a.op});
  }
  if (reduces(r.kind))
    r.communicator->reduce(call, ctx.stream, lists_.transfers);
  else
    r.communicator->exchange(call, ctx.stream, lists_.transfers);
  for (size_t i = 0; i < r.actions.size(); ++i)
    lists_.counted[r.actions[i].event] += lists_.transfers[i].counted;
}

void Run::conclude(const Action& a, Moving& m, Tensor out) {
  if (a.into_end) {
    m.now = Tensor();
  } else if (a.divides) {
    m.now = Tensor();
    m.now = Tensor::empty(a.divided, a.dtype);
    divide_pairs(out, m.now);
  } else {
    m.now = std::move(out);
  }
}

void Run::run(std::span<Tensor> parts, bool consume) {
  for (size_t t = 0; t < parts.size(); ++t) {
    const DType type = e_.moves()[t].from->dtype();
    if (parts[t].defined() && parts[t].dtype() != type) {
      lists_.moving[t].now = converted(parts[t], type);
      parts[t] = Tensor();
    } else {
      lists_.moving[t].now = std::move(parts[t]);
    }
    if (e_.in_panels(t)) lists_.moving[t].source = lists_.moving[t].now;
  }
  size_t pass = 0;
  for (const Execution::Round& r : e_.rounds()) {
    if (r.pass != pass) {
      pass = r.pass;
      for (Moving& m : lists_.moving)
        if (m.source.defined()) m.now = m.source;
    }
    lists_.outs.clear();
    for (const Action& a : r.actions)
      lists_.outs.push_back(make(a, lists_.moving[a.tensor], consume));
    if (r.communicator && !ctx.dry_run) communicate(r);
    for (size_t i = 0; i < r.actions.size(); ++i)
      conclude(r.actions[i], lists_.moving[r.actions[i].tensor],
               std::move(lists_.outs[i]));
  }
  for (size_t t = 0; t < parts.size(); ++t) {
    Moving& m = lists_.moving[t];
    parts[t] = std::move(m.end.defined() ? m.end : m.now);
    parts[t] = converted(parts[t], e_.end_type(t));
  }
  record();
}

void Run::record() {
  if (ctx.record)
    for (size_t i = 0; i < e_.sent().size(); ++i) {
      const Execution::Sent& s = e_.sent()[i];
      if (!s.here) continue;
      ctx.events.push_back(
          {s.mesh, s.axes, s.kind, std::string(ctx.op), ctx.phase, s.predicted,
           lists_.counted[i], ctx.collectives + s.collective,
           static_cast<int64_t>(e_.passes()), e_.shared_from_this(), i});
      for (Observer* o : ctx.observers) o->sent(ctx);
    }
  bound_record(ctx);
  ctx.collectives += e_.collectives();
}

}  // namespace

void execute(RankContext& ctx, const Execution& e, std::span<Tensor> parts,
             bool consume) {
  Run(ctx, e).run(parts, consume);
}

}  // namespace dtensor
