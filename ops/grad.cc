// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/grad.h"

#include <utility>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/split_grad.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

bool twice(TensorList inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (inputs[i].same_as(inputs[k])) return true;
  return false;
}

DistTensor as_type(const DistTensor& x, DType t) {
  if (x.dtype() == t) return x;
  if (x.spec()->exact()) return settled(x, t);
  return DistTensor::wrap(converted(x.impl()->part(), t), x.spec()->with(t));
}

void check_options(TensorList inputs, const GradOptions& o,
                   std::string_view op = "grad") {
  DT_CHECK(
      !o.create_graph ||
          (!o.release_graph && o.bucket_bytes == 0 && !o.wire_dtype),
      "grad",
      "create_graph cannot be combined with release_graph, bucket_bytes or "
      "wire_dtype; leave these out");
  DT_CHECK(o.bucket_bytes >= 0, "grad", "bucket_bytes is {}; write 0 or more",
           o.bucket_bytes);
  DT_CHECK(!o.wire_dtype || is_float(*o.wire_dtype), op,
           "wire_dtype is {}; write DType::kF32, kF64, kBF16 or kF16",
           name(*o.wire_dtype));
  DT_CHECK(!o.wire_dtype || !RankContext::current().reproducible, op,
           "a wire_dtype, {}, would round gradients before they are added, "
           "which a reproducible run does not do; leave it out",
           name(*o.wire_dtype));
  DT_CHECK(o.wire_from <= inputs.size(), "grad",
           "wire_from is {}, but the number of inputs is {}; write at most {}",
           o.wire_from, inputs.size(), inputs.size());
  DT_CHECK(o.add_to.empty() || o.add_to.size() == inputs.size(), "grad",
           "add_to has length {}, but the number of inputs is {}; pass one "
           "gradient for each input, or an empty list",
           o.add_to.size(), inputs.size());
  DT_CHECK(o.add_arrived.empty() || o.add_arrived.size() == inputs.size(),
           "grad",
           "add_arrived has length {}, but the number of inputs is {}; pass "
           "one gradient for each input, or an empty list",
           o.add_arrived.size(), inputs.size());
  DT_CHECK(o.add_arrived.empty() || (!o.keep_partial && !o.create_graph),
           "grad",
           "add_arrived cannot be combined with create_graph or keep_partial; "
           "leave these out");
}

// Moves complete gradients to the layouts in which they are wanted.
class Gradients {
 public:
  Gradients(RankContext& ctx, TensorList inputs, GradOptions& options)
      : ctx_(ctx),
        inputs_(inputs),
        options_(options),
        earlier_(std::move(options.add_to)),
        sums_(std::move(options.add_arrived)),
        settled_(inputs.size()) {
    places_.reserve(inputs.size());
  }

  // Takes the complete gradient of input i, which then waits to be sent. Sends
  // the waiting gradients if they fill a bucket.
  void add(size_t i, DistTensor g) {
    if (!earlier_.empty() && earlier_[i].defined())
      g = add_cotangents(std::exchange(earlier_[i], {}), g);
    bytes_ += g.spec()->largest_part_bytes();
    if (const Tensor& part = g.impl()->part(); part.defined())
      part.storage()->set_kind(MemoryKind::kGradients);
    const bool stays = options_.keep_exact && i >= options_.wire_from &&
                       has_exact_sums(inputs_[i].dtype());
    if (stays) g = as_type(g, DType::kExact);
    const bool rounds =
        g.dtype() == DType::kExact && !options_.keep_partial && !stays;
    places_.emplace_back(i, rounds ? inputs_[i].dtype() : g.dtype());
    if (options_.wire_dtype && !options_.keep_partial &&
        i >= options_.wire_from)
      g = as_type(g, *options_.wire_dtype);
    settled_[i] = std::move(g);
    if (options_.bucket_bytes > 0 && !options_.keep_partial &&
        bytes_ >= options_.bucket_bytes)
      send(true);
  }

  // Returns all gradients. `rest` has those for which add() was not called, or
  // is empty. A gradient that is missing in both is zeros.
  std::vector<DistTensor> finish(const std::vector<DistTensor>& rest) {
    for (size_t i = 0; i < settled_.size(); ++i)
      if (!settled_[i].defined())
        add(i,
            i < rest.size() && rest[i].defined() ? rest[i] : none(inputs_[i]));
    send(false);
    // Waits for the gradients that the other thread is receiving.
    for (const DistTensor& g : settled_) g.impl()->part();
    arrived();
    return std::move(settled_);
  }

 private:
  static DistTensor none(const DistTensor& input) {
    const Spec* s = input.grad_spec();
    return zeros(s->shape(), s->mesh(), s->layout(), s->dtype());
  }

  const Spec* home(const DistTensor& input, const DistTensor& g) const {
    return options_.keep_partial ? cotangent_spec(input.use_spec(), g.spec())
                                 : input.grad_spec()->with(g.dtype());
  }

  // Restores the dtypes of gradients that have arrived, and adds the gradients
  // to those of GradOptions::add_arrived.
  void arrived() {
    const Scoped<MemoryKind> kind(ctx_.memory_kind, MemoryKind::kGradients);
    for (const auto& [i, type] : on_their_way_) {
      DistTensor& g = settled_[i];
      g = options_.create_graph ? cast(g, type) : as_type(g, type);
      if (!sums_.empty() && sums_[i].defined())
        g = add_cotangents(std::exchange(sums_[i], {}), std::exchange(g, {}));
    }
    on_their_way_.clear();
  }

  // Sends the waiting gradients in one exchange, on the rank's other thread if
  // `meanwhile`.
  void send(bool meanwhile) {
    // Wait until the previous bucket has arrived. With one bucket on its way at
    // a time, less memory is held.
    for (DistTensor& g : sending_) g.impl()->part();
    sending_.clear();
    sources_.clear();
    arrived();
    const Scoped<std::string_view> op(ctx_.op, "grad");
    const Scoped<MemoryKind> kind(ctx_.memory_kind, MemoryKind::kGradients);
    InlineMemory<512> memory;
    std::pmr::vector<SpecRef> to(&memory);
    std::pmr::vector<DistTensor> here(&memory);
    to.reserve(places_.size());
    here.reserve(places_.size());
    for (const auto& [i, type] : places_) {
      to.push_back(home(inputs_[i], settled_[i]));
      here.push_back(std::exchange(settled_[i], {}));
    }
    // A dry run moves the bucket at once. It keeps the sources until the next
    // bucket is sent, so that memory counts as in a run.
    if (meanwhile && ctx_.dry_run) sources_.assign(here.begin(), here.end());
    relayout(here, to, {.async = meanwhile});
    for (size_t k = 0; k < places_.size(); ++k)
      settled_[places_[k].first] = here[k];
    on_their_way_.swap(places_);
    if (meanwhile) sending_.assign(here.begin(), here.end());
    bytes_ = 0;
  }

  RankContext& ctx_;
  const TensorList inputs_;
  const GradOptions& options_;
  std::vector<DistTensor> earlier_, sums_;
  // By input: the gradient, which waits to be sent, is on its way or has its
  // final layout.
  std::vector<DistTensor> settled_;
  std::vector<DistTensor> sending_, sources_;
  // The inputs whose gradients wait, and those whose gradients were sent, with
  // the gradients' own dtypes.
  InlineMemory<256> memory_;
  std::pmr::vector<std::pair<size_t, DType>> places_{&memory_},
      on_their_way_{&memory_};
  int64_t bytes_ = 0;
};

// The cotangent that a pass begins with, in the output's dtype.
DistTensor first_cotangent(RankContext& ctx, const DistTensor& output,
                           DistTensor cotangent, bool create_graph) {
  DT_CHECK(
      output.requires_grad(), "grad",
      "{} does not require a gradient; compute it in a float type, outside "
      "of NoGrad and without detach(), from a tensor with "
      "set_requires_grad()",
      output.spec()->to_string());
  if (!cotangent.defined()) {
    DT_CHECK(numel(output.shape()) == 1, "grad",
             "{} is not a scalar; pass a cotangent of its shape, or sum it",
             output.spec()->to_string());
    cotangent = ones(output.shape(), output.mesh(), {}, output.dtype());
  }
  DT_CHECK(cotangent.shape() == output.shape(), "grad",
           "the cotangent has shape {}, but its output is {}; pass a cotangent "
           "of the output's shape",
           to_string(cotangent.shape()), output.spec()->to_string());
  DT_CHECK(cotangent.mesh() == output.mesh(), "grad",
           "the cotangent {} is on mesh {}, and its output {} on {}; write "
           "cotangent.redistribute(output.mesh(), {{}})",
           cotangent.spec()->to_string(), cotangent.mesh().to_string(),
           output.spec()->to_string(), output.mesh().to_string());
  DT_CHECK(is_float(cotangent.dtype()), "grad",
           "the cotangent has type {}; cast() it to {}",
           name(cotangent.dtype()), name(output.dtype()));
  const Scoped<bool> record(ctx.grad_enabled, create_graph);
  const Scoped<std::string> phase(ctx.phase, "backward");
  return cast(cotangent, output.dtype());
}

// The outputs that a pass starts from, with their cotangents.
struct Start {
  Start(RankContext& ctx, TensorList all, TensorList given, bool create_graph) {
    DT_CHECK(all.size() == given.size(), "grad",
             "the number of cotangents is {}, but that of outputs is {}; pass "
             "one cotangent for each output",
             given.size(), all.size());
    DT_CHECK(!all.empty(), "grad",
             "got an empty list of outputs; pass at least one tensor");
    outputs.reserve(all.size());
    cotangents.reserve(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].requires_grad() && all.size() > 1) continue;
      outputs.push_back(all[i]);
      cotangents.push_back(
          first_cotangent(ctx, all[i], given[i], create_graph));
    }
    DT_CHECK(
        !outputs.empty(), "grad",
        "none of the {} outputs requires a gradient; compute one in a "
        "float type, outside of NoGrad and without detach(), from a tensor "
        "with set_requires_grad()",
        all.size());
  }
  InlineMemory<256> memory;
  std::pmr::vector<DistTensor> outputs{&memory}, cotangents{&memory};
};

// Moves the gradients of a finished pass to their inputs' layouts.
std::vector<DistTensor> finished(RankContext& ctx, TensorList inputs,
                                 const std::vector<DistTensor>& rest,
                                 GradOptions options) {
  const Scoped<bool> record(ctx.grad_enabled, false);
  const Scoped<std::string> phase(ctx.phase, "backward");
  return Gradients(ctx, inputs, options).finish(rest);
}

std::vector<DistTensor> grad_of(TensorList outputs, TensorList cotangents,
                                TensorList inputs, GradOptions options) {
  RankContext& ctx = RankContext::current();
  check_options(inputs, options);
  const Start start(ctx, outputs, cotangents, options.create_graph);
  Gradients gradients(ctx, inputs, options);
  BackwardOptions how{.create_graph = options.create_graph,
                      .release_graph = options.release_graph};
  if (!options.create_graph && !twice(inputs))
    how.complete = [&](size_t i, DistTensor& g) {
      gradients.add(i, std::move(g));
    };
  const std::vector<DistTensor> rest = backward_pass(
      start.outputs, start.cotangents, inputs, how, add_cotangents);
  const Scoped<bool> record(ctx.grad_enabled, options.create_graph);
  const Scoped<std::string> phase(ctx.phase, "backward");
  return gradients.finish(rest);
}

}  // namespace

std::vector<DistTensor> grad(const DistTensor& output, TensorList inputs,
                             GradOptions options) {
  const DistTensor cotangent = options.cotangent;
  return grad_of(output, cotangent, inputs, std::move(options));
}

std::vector<DistTensor> grad(TensorList outputs, TensorList cotangents,
                             TensorList inputs, GradOptions options) {
  return grad_of(outputs, cotangents, inputs, std::move(options));
}

SplitGrad::SplitGrad(const DistTensor& output, const DistTensor& cotangent,
                     std::vector<DistTensor> now, std::vector<DistTensor> later)
    : SplitGrad(TensorList(output), TensorList(cotangent), std::move(now),
                std::move(later)) {}

SplitGrad::SplitGrad(TensorList outputs, TensorList cotangents,
                     std::vector<DistTensor> now, std::vector<DistTensor> later)
    : inputs_(std::move(later)) {
  RankContext& ctx = RankContext::current();
  const Start start(ctx, outputs, cotangents, false);
  pass_ = std::make_unique<SplitBackward>(start.outputs, start.cotangents, now,
                                          inputs_, add_cotangents);
  now_ = finished(ctx, now, pass_->first(), {});
}

std::vector<DistTensor> SplitGrad::later(GradOptions options) {
  RankContext& ctx = RankContext::current();
  DT_CHECK(pass_, "grad",
           "later() was called before; call it once, and keep its result");
  check_options(inputs_, options);
  Gradients gradients(ctx, inputs_, options);
  SplitBackward::Complete complete;
  if (!twice(inputs_))
    complete = [&](size_t i, DistTensor& g) { gradients.add(i, std::move(g)); };
  const std::vector<DistTensor> rest = pass_->rest(complete);
  pass_ = nullptr;
  const Scoped<bool> record(ctx.grad_enabled, false);
  const Scoped<std::string> phase(ctx.phase, "backward");
  return gradients.finish(rest);
}

std::vector<DistTensor> settle(TensorList inputs,
                               std::vector<DistTensor> gradients,
                               std::optional<DType> wire_dtype,
                               bool keep_exact) {
  RankContext& ctx = RankContext::current();
  GradOptions options{.wire_dtype = wire_dtype, .keep_exact = keep_exact};
  check_options(inputs, options, "settle");
  DT_CHECK(gradients.size() == inputs.size(), "settle",
           "the number of gradients is {}, but that of inputs is {}; pass one "
           "gradient for each input",
           gradients.size(), inputs.size());
  const Scoped<bool> record(ctx.grad_enabled, false);
  const Scoped<std::string> phase(ctx.phase, "backward");
  Gradients all(ctx, inputs, options);
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined()) all.add(i, std::exchange(gradients[i], {}));
  return all.finish(gradients);
}

}  // namespace dtensor
