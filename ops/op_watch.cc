// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/op_watch.h"

#include "dtensor/placement/hash.h"

namespace dtensor {

OpWatch::OpWatch(RankContext& ctx, const Op& op,
                 std::span<const DistTensor> given)
    : ctx_(ctx),
      op_(op),
      given_(given),
      captures_(captures_of(ctx)),
      begin_(ctx.observers.now()),
      first_event_(ctx.events.size()) {
  if (!captures_) return;
  for (const DistTensor& in : given) captures_->used(in);
  if (captures_->has()) kept_ = captures_;
}

void OpWatch::decided(const Attrs& attrs, const Decision& d) {
  if (!captures_) return;
  uint64_t id = attrs.fold_into(hash_mix(d.lineage, attrs.seed[0]), false);
  id = hash_mix(hash_mix(id, attrs.seed[1]),
                reinterpret_cast<uint64_t>(attrs.seed_at));
  for (const SpecRef& s : d.out) id = hash_mix(id, s->hash());
  captures_->decided(op_, d, id);
}

void OpWatch::ran(const Attrs& attrs, const Decision& d,
                  std::span<const DistTensor> outputs) {
  if (captures_) captures_->ran(op_, given_, outputs);
  const int64_t ordinal = ctx_.ordinal++;
  if (!ctx_.observers.empty()) [[unlikely]]
    tell(attrs, d, outputs, ordinal);
}

void OpWatch::tell(const Attrs& attrs, const Decision& d,
                   std::span<const DistTensor> outputs, int64_t ordinal) const {
  const OpRan call{
      .op = op_.name(),
      .args = [&] { return attrs.empty() ? "" : attrs.to_string(); },
      .choice = d,
      .rule = d.rule ? &*d.rule : nullptr,
      .work = op_.facts().work,
      .moved = d.moved,
      .moves = d.moves,
      .bytes = d.bytes,
      .given = given_,
      .out = outputs,
      .ordinal = ordinal,
      .begin = begin_,
      .first_event = first_event_,
      .kept = kept_ != nullptr};
  for (Observer* o : ctx_.observers) o->ran(ctx_, call);
}

}  // namespace dtensor
