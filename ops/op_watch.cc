// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/op_watch.h"

#include "dtensor/op_recorder.h"
#include "dtensor/placement/inline_vec.h"
#include "dtensor/tracer.h"

namespace dtensor {

OpWatch::OpWatch(RankContext& ctx, const Op& op,
                 std::span<const DistTensor> given)
    : ctx_(ctx),
      op_(op),
      given_(given),
      captures_(captures_of(ctx)),
      begin_(ctx.tracer ? ctx.tracer->now() : 0),
      first_event_(ctx.recorder ? ctx.events.size() : 0) {
  if (!captures_) return;
  for (const DistTensor& in : given) captures_->used(in);
  if (captures_->has(op, given)) kept_ = captures_;
}

void OpWatch::ran(const Attrs& attrs, const Decision& d,
                  std::span<const DistTensor> outputs) {
  if (captures_) captures_->ran(op_, attrs, d, given_, outputs);
  const int64_t ordinal = ctx_.ordinal++;
  if (const auto& trace = op_trace(ctx_); trace && !kept_)
    trace({op_, attrs, d, given_, outputs, ctx_.path, ordinal});
  if (ctx_.recorder && !kept_) [[unlikely]]
    record(attrs, d, outputs);
  if (!ctx_.tracer) return;
  InlineVec<SpecRef, Compute::kMostInputs> in;
  for (const DistTensor& t : given_) in.push_back(t.spec());
  ctx_.tracer->op(begin_, op_.name(), in, d.out, d.bytes, ordinal);
}

void OpWatch::record(const Attrs& attrs, const Decision& d,
                     std::span<const DistTensor> outputs) const {
  ctx_.recorder->ran(ctx_, {.op = op_.name(),
                            .args = attrs.empty() ? "" : attrs.to_string(),
                            .choice = d,
                            .rule = d.rule ? &*d.rule : nullptr,
                            .work = op_.facts().work,
                            .moved = d.moved,
                            .moves = d.moves,
                            .given = given_,
                            .out = outputs,
                            .first_event = first_event_});
}

}  // namespace dtensor
