// SPDX-License-Identifier: Apache-2.0
#include "dtensor/autograd.h"

#include <algorithm>
#include <set>
#include <utility>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/split_backward.h"
#include "dtensor/trace.h"

namespace dtensor {
namespace {

// The node of a tensor that no operator made.
class LeafNode : public Node {
 public:
  LeafNode() : Node(true) {}
  void backward(std::span<const DistTensor>, std::span<const bool>,
                std::span<DistTensor>) override {}
  std::string_view name() const override { return "leaf"; }
};

// One backward pass. It has two parts if the cotangents of some inputs may be
// computed later (SplitBackward).
class Backward {
 public:
  using Add = SplitBackward::Add;
  // Does the first part. rest() completes the cotangents of the inputs from
  // index `later` on.
  Backward(std::span<const DistTensor> outputs,
           std::span<const DistTensor> cotangents,
           std::span<const DistTensor> inputs, const BackwardOptions& options,
           const Add& add, size_t later)
      : options_(options),
        add_(add),
        awaited_(inputs.size(), &arena_),
        later_(later),
        splits_(later < inputs.size()) {
    wanted_.reserve(inputs.size());
    for (const DistTensor& in : inputs) {
      const size_t i = wanted_.size();
      DT_CHECK(
          in.requires_grad(), "grad",
          "{} {}, counted from 0, is {} and does not require a gradient; {}",
          i < later_ ? "input" : "later input", i < later_ ? i : i - later_,
          in.spec()->to_string(),
          is_float(in.dtype())
              ? "call set_requires_grad() on it before using it"
              : "leave it out, because only floats have gradients");
      wanted_.push_back(edge_to(in));
      wanted_sequences_.push_back(wanted_.back().node->sequence);
    }
    std::sort(wanted_sequences_.begin(), wanted_sequences_.end());
    explore(outputs);
    find_leads();
    for (size_t i = 0; i < outputs.size(); ++i)
      if (const Node::Edge e = edge_to(outputs[i]); e.node)
        deliver(e, cotangents[i]);
    run();
  }

  void rest(const SplitBackward::Complete& complete) {
    splits_ = false;
    if (complete)
      options_.complete = [this, complete](size_t i, DistTensor& g) {
        if (i >= later_) complete(i - later_, g);
      };
    for (Put& p : std::exchange(put_off_, {}))
      go_back(*p.node, p.cotangents, p.needed.get(), true);
    run();
  }

  // Returns the cotangents of inputs lo to hi - 1. Returns an empty list if
  // options_.complete gives them to the caller.
  std::vector<DistTensor> result(size_t lo, size_t hi) {
    // Complete the inputs that the pass has not completed: those that are
    // outputs themselves, and those for which some cotangent never came,
    // because a node on the way got none.
    for (size_t i = lo; i < hi; ++i)
      if (awaited_[i] >= 0) completed(i);
    std::vector<DistTensor> result;
    if (options_.complete) return result;
    result.reserve(hi - lo);
    for (size_t i = lo; i < hi; ++i) {
      DistTensor* slot = slot_of(wanted_[i]);
      result.push_back(slot ? *slot : DistTensor());
    }
    return result;
  }
  size_t later() const { return later_; }
  size_t inputs() const { return wanted_.size(); }

 private:
  // Values of Visit::leads, which says to which of the wanted inputs a node
  // leads: none, several, or (n > 0) only input n - 1.
  static constexpr int64_t kNone = 0, kSeveral = -1;
  static int64_t both(int64_t a, int64_t b) {
    return a == b || b == kNone ? a : a == kNone ? b : kSeveral;
  }
  // A node that the outputs depend on.
  struct Visit {
    Node* node;
    uint64_t sequence;  // of the node, which may be destroyed before rest()
    // wanted: the node made one of the inputs. ends: the pass does not go back
    // beyond this node.
    bool wanted, ends;
    size_t slot;  // of the node's first output's cotangent in slots_
    int64_t leads = kNone;
    std::shared_ptr<Node> due = nullptr;  // the node, once it has a cotangent
  };
  // A node at which rest() has to call backward(), with the arguments. (Needed
  // is not a vector<bool>, because that does not convert to a span of bool.)
  using Needed = std::unique_ptr<bool[]>;
  struct Put {
    std::shared_ptr<Node> node;
    std::vector<DistTensor> cotangents;
    Needed needed;
  };

  bool may_wait(int64_t leads) const {
    return splits_ && leads > static_cast<int64_t>(later_);
  }

  // Fills visits_ with the nodes that the outputs depend on, the latest first.
  void explore(std::span<const DistTensor> outputs) {
    std::pmr::vector<Node*> open(&arena_);  // a heap, the latest node on top
    const auto earlier = [](const Node* a, const Node* b) {
      return a->sequence < b->sequence;
    };
    const auto add = [&](Node* n) {
      open.push_back(n);
      std::push_heap(open.begin(), open.end(), earlier);
    };
    for (const DistTensor& out : outputs)
      if (const Node::Edge e = edge_to(out); e.node) add(e.node.get());
    size_t slots = 0;
    while (!open.empty()) {
      std::pop_heap(open.begin(), open.end(), earlier);
      Node* n = open.back();
      open.pop_back();
      if (!visits_.empty() && visits_.back().node == n) continue;
      const bool wanted = std::binary_search(
          wanted_sequences_.begin(), wanted_sequences_.end(), n->sequence);
      const bool ends =
          n->inputs.empty() || (options_.stop_at_inputs && wanted);
      visits_.push_back({n, n->sequence, wanted, ends, slots});
      slots += static_cast<size_t>(n->num_outputs);
      if (ends) continue;
      for (const Node::Edge& e : n->inputs)
        if (e.node) add(e.node.get());
    }
    slots_.resize(slots);
  }

  // Sets `leads` of each visit, and counts the edges to each wanted input.
  // Begins with the earliest node, so that the nodes of a node's inputs come
  // before the node itself.
  void find_leads() {
    for (size_t k = visits_.size(); k-- > 0;) {
      Visit& v = visits_[k];
      if (v.wanted)
        for (size_t i = 0; i < wanted_.size(); ++i)
          if (wanted_[i].node.get() == v.node)
            v.leads = both(v.leads, static_cast<int64_t>(i) + 1);
      if (v.ends) continue;
      for (const Node::Edge& e : v.node->inputs) {
        if (!e.node) continue;
        const Visit& from = *visit(e);
        v.leads = both(v.leads, from.leads);
        if (from.wanted) for_inputs(e, [&](size_t i) { ++awaited_[i]; });
      }
    }
  }

  // Calls pass() for the nodes that have a cotangent and lead to a wanted
  // input, unless the pass ends at them; the latest node comes first.
  void run() {
    for (Visit& v : visits_)
      if (const std::shared_ptr<Node> node = std::exchange(v.due, nullptr);
          node && v.leads != kNone) {
        if (!node->hooks.empty()) [[unlikely]]
          for (int o = 0; o < node->num_outputs; ++o) call_hooks({node, o});
        if (!v.ends) pass(v, node);
      }
  }

  // Calls the hooks of the edge's tensor, the first time that its cotangent is
  // complete.
  void call_hooks(const Node::Edge& e) {
    if (e.node->hooks.empty()) return;
    DistTensor* slot = slot_of(e);
    if (!slot || !slot->defined() ||
        std::find(hooked_.begin(), hooked_.end(), slot) != hooked_.end())
      return;
    hooked_.push_back(slot);
    for (const auto& hook : e.node->hooks.all()) {
      if (hook->output != e.output) continue;
      DistTensor g = hook->replace(*slot);
      if (!g.defined()) continue;
      DT_CHECK(
          g.shape() == slot->shape() && g.mesh() == slot->mesh() &&
              g.dtype() == slot->dtype(),
          "register_hook",
          "the hook returned {} for the gradient {}; return one of the same "
          "type and shape, on the same mesh",
          g.spec()->to_string(), slot->spec()->to_string());
      *slot = std::move(g);
    }
  }

  // The visit of the edge's node; null if the pass does not reach that node.
  Visit* visit(const Node::Edge& e) {
    const auto it = std::lower_bound(
        visits_.begin(), visits_.end(), e.node->sequence,
        [](const Visit& v, uint64_t s) { return v.sequence > s; });
    return it != visits_.end() && it->sequence == e.node->sequence ? &*it
                                                                   : nullptr;
  }
  DistTensor* slot_of(const Node::Edge& e) {
    const Visit* v = visit(e);
    return v ? &slots_[v->slot + static_cast<size_t>(e.output)] : nullptr;
  }

  // Calls fn(i) for every wanted input that this edge leads to.
  template <class Fn>
  void for_inputs(const Node::Edge& e, Fn&& fn) const {
    for (size_t i = 0; i < wanted_.size(); ++i)
      if (wanted_[i].node == e.node && wanted_[i].output == e.output) fn(i);
  }

  void deliver(const Node::Edge& e, DistTensor c) {
    Visit& v = *visit(e);
    v.due = e.node;
    DistTensor& slot = slots_[v.slot + static_cast<size_t>(e.output)];
    slot = slot.defined() ? add_(slot, c) : std::move(c);
  }

  void pass(const Visit& v, const std::shared_ptr<Node>& node) {
    const size_t count = node->inputs.size();
    if (count > now_size_)
      now_ = static_cast<bool*>(arena_.allocate(now_size_ = count, 1));
    std::fill_n(now_, count, false);
    Needed later;
    bool any = false;
    for (size_t i = 0; i < count; ++i) {
      const Node::Edge& e = node->inputs[i];
      const int64_t leads = e.node ? visit(e)->leads : kNone;
      if (leads == kNone) continue;
      if (may_wait(leads)) {
        if (!later) later = std::make_unique<bool[]>(count);
        later[i] = true;
      } else {
        any = now_[i] = true;
      }
    }
    if (!any && !later) return;
    const std::span<DistTensor> cotangents(
        &slots_[v.slot], static_cast<size_t>(node->num_outputs));
    const bool last = !later;
    if (later)
      put_off_.push_back(
          {node, {cotangents.begin(), cotangents.end()}, std::move(later)});
    if (any) go_back(*node, cotangents, now_, last, v.wanted);
    if (!v.wanted)
      for (DistTensor& c : cotangents) c = {};
  }

  // Calls the node's backward() and delivers its results. `last`: the pass does
  // not need the node again. `keep`: the pass still needs `cotangents`.
  void go_back(Node& n, std::span<DistTensor> cotangents, const bool* needed,
               bool last, bool keep = false) {
    std::pmr::vector<DistTensor> back(n.inputs.size(), &arena_);
    for (size_t i = 0; i < cotangents.size(); ++i) {
      if (!cotangents[i].defined() || cotangents[i].dtype() != DType::kExact)
        continue;
      const DType type = n.type_of(static_cast<int>(i));
      if (type != DType::kExact) cotangents[i] = settled(cotangents[i], type);
    }
    n.backward(cotangents, {needed, back.size()}, back);
    if (!keep)
      for (DistTensor& c : cotangents) c = {};
    if (options_.release_graph && last)
      n.release();
    else if (n.offloads) [[unlikely]]
      n.each_saved([](Storage& s) {
        if (s.was_away()) s.offload();
      });
    for (size_t i = 0; i < back.size(); ++i) {
      if (!needed[i]) continue;
      const Node::Edge& e = n.inputs[i];
      if (back[i].defined()) deliver(e, std::move(back[i]));
      if (visit(e)->wanted)
        for_inputs(e, [&](size_t k) {
          if (--awaited_[k] == 0) completed(k);
        });
    }
  }

  void completed(size_t i) {
    call_hooks(wanted_[i]);
    if (!options_.complete) return;
    awaited_[i] = -1;
    const Visit* v = visit(wanted_[i]);
    if (!v) return;
    DistTensor& slot = slots_[v->slot + static_cast<size_t>(wanted_[i].output)];
    if (!slot.defined()) return;
    if (v->ends) return options_.complete(i, slot);
    DistTensor copy = slot;  // the pass still needs the original
    options_.complete(i, copy);
  }

  BackwardOptions options_;
  const Add add_;
  InlineMemory<1024> arena_;  // for the lists of a small graph
  std::pmr::vector<Node::Edge> wanted_{&arena_};  // the edges to the inputs
  // The sequence numbers of the inputs' nodes, ascending.
  std::pmr::vector<uint64_t> wanted_sequences_{&arena_};
  // For each input: over how many edges a cotangent may still come. -1: the sum
  // is complete, and options_.complete was called with it if it is defined.
  std::pmr::vector<int64_t> awaited_;
  std::pmr::vector<Visit> visits_{&arena_};      // the latest node first
  std::pmr::vector<DistTensor> slots_{&arena_};  // cotangents that arrived
  std::vector<const DistTensor*> hooked_;  // slots with hooks that have run
  bool* now_ = nullptr;  // `needed` of the node that pass() handles
  size_t now_size_ = 0;
  const size_t later_;
  bool splits_;
  std::vector<Put> put_off_;  // in the order of the pass
};

// Sets the rank's state (scopes, phase, trace) while a pass runs.
class Passing {
 public:
  Passing(RankContext& ctx, bool create_graph)
      : grad_(ctx.grad_enabled, create_graph),
        captures_(ctx.captures, create_graph ? ctx.captures : nullptr),
        phase_(ctx.phase, "backward"),
        span_(ctx, "backward") {}

 private:
  const Scoped<bool> grad_;
  const Scoped<Captures*> captures_;
  const Scoped<std::string> phase_;
  const TraceSpan span_;
};

}  // namespace

// The sequences of the thread's newest nodes.
static thread_local uint64_t leaves = 0, others = uint64_t{1} << 63;

Node::Node(bool leaf) : sequence(leaf ? ++leaves : ++others) {}

uint64_t Node::newest() { return others; }

void Node::each_of(const DistTensor& x, const EachStorage& fn) {
  if (!x.requires_grad()) return;
  const DistTensor::Impl& impl = *x.impl();
  if (!impl.node || impl.node->inputs.empty()) return;
  if (!impl.pending && impl.local.defined()) fn(*impl.local.storage());
  for (const DistTensor::Impl::Copy& c : impl.copies) {
    const DistTensor::Impl& copy = *c.tensor.impl();
    if (!copy.pending && copy.local.defined()) fn(*copy.local.storage());
  }
}

Node::~Node() {
  // Destroying a long chain recursively would exhaust the stack. This loop
  // destroys the nodes that nothing else holds. It links them into a list by
  // their next_, which needs no extra memory.
  std::shared_ptr<Node> pending;
  auto take = [&](Node& n) {
    for (Edge& e : n.inputs) {
      if (!e.node || e.node.use_count() != 1) continue;
      e.node->next_ = std::move(pending);
      pending = std::move(e.node);
    }
  };
  take(*this);
  while (pending) {
    std::shared_ptr<Node> n = std::move(pending);
    pending = std::move(n->next_);
    n->release();  // saved values also hold the nodes of the inputs
    take(*n);
  }
}

Node::Edge edge_to(const DistTensor& t) {
  if (!t.requires_grad()) return {};
  DistTensor::Impl& impl = *t.impl();
  if (!impl.node) impl.node = std::make_shared<LeafNode>();
  return {impl.node, impl.output};
}

HookHandle register_hook(const DistTensor& x,
                         std::function<DistTensor(const DistTensor&)> hook) {
  if (!RankContext::current().grad_enabled) return HookHandle();
  DT_CHECK(x.requires_grad(), "register_hook",
           "{} requires no gradient; call set_requires_grad() on it before",
           x.spec()->to_string());
  const Node::Edge e = edge_to(x);
  return e.node->hooks.add({e.output, std::move(hook)});
}

bool records(const DistTensor& x) {
  RankContext& ctx = RankContext::current();
  if (ctx.captures) ctx.captures->used(x);
  return ctx.grad_enabled && x.requires_grad();
}

void offload_saved(std::span<const DistTensor> results, uint64_t after) {
  std::set<const Storage*> stay;
  std::set<Node*> known;
  std::vector<Node*> open;
  const auto reach = [&](const Node::Edge& e) {
    if (e.node && e.node->sequence > after && known.insert(e.node.get()).second)
      open.push_back(e.node.get());
  };
  for (const DistTensor& y : results) {
    if (const Tensor& part = y.impl()->local; part.defined())
      stay.insert(part.storage().get());
    reach({y.impl()->node, 0});
  }
  while (!open.empty()) {
    Node& n = *open.back();
    open.pop_back();
    n.offloads = true;
    n.each_saved([&](Storage& s) {
      if (s.kind() == MemoryKind::kActivations && !stay.contains(&s))
        s.offload();
    });
    for (const Node::Edge& e : n.inputs) reach(e);
  }
}

std::vector<DistTensor> backward_pass(
    std::span<const DistTensor> outputs, std::span<const DistTensor> cotangents,
    std::span<const DistTensor> inputs, const BackwardOptions& options,
    const std::function<DistTensor(const DistTensor&, const DistTensor&)>&
        add) {
  const Passing passing(RankContext::current(), options.create_graph);
  Backward pass(outputs, cotangents, inputs, options, add, inputs.size());
  return pass.result(0, inputs.size());
}

class SplitBackward::Pass : public Backward {
  using Backward::Backward;
};

SplitBackward::SplitBackward(std::span<const DistTensor> outputs,
                             std::span<const DistTensor> cotangents,
                             const std::vector<DistTensor>& now,
                             const std::vector<DistTensor>& later, Add add) {
  std::vector<DistTensor> inputs = now;
  inputs.insert(inputs.end(), later.begin(), later.end());
  const Passing passing(RankContext::current(), false);
  pass_ = std::make_unique<Pass>(outputs, cotangents, inputs,
                                 BackwardOptions{.release_graph = true}, add,
                                 now.size());
}

SplitBackward::~SplitBackward() = default;
SplitBackward::SplitBackward(SplitBackward&&) noexcept = default;
SplitBackward& SplitBackward::operator=(SplitBackward&&) noexcept = default;

std::vector<DistTensor> SplitBackward::first() const {
  return pass_->result(0, pass_->later());
}

std::vector<DistTensor> SplitBackward::rest(const Complete& complete) {
  const Passing passing(RankContext::current(), false);
  pass_->rest(complete);
  return pass_->result(pass_->later(), pass_->inputs());
}

}  // namespace dtensor
