#include "dtensor/autograd.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/error.h"
#include "dtensor/split_backward.h"
#include "dtensor/trace.h"

namespace dtensor {
namespace {

// The node of a tensor that no operator made.
class LeafNode : public Node {
 public:
  std::vector<DistTensor> backward(std::span<const DistTensor>,
                                   std::span<const bool>) override {
    return {};
  }
  std::string_view name() const override { return "leaf"; }
};

// One backward pass; has two parts if some inputs may come later.
class Backward {
 public:
  using Add = SplitBackward::Add;
  // rest() completes the inputs from number `later` on.
  Backward(std::span<const DistTensor> inputs, const BackwardOptions& options,
           const Add& add, size_t later)
      : options_(options),
        add_(add),
        awaited_(inputs.size()),
        later_(later),
        splits_(later < inputs.size()) {
    for (const DistTensor& in : inputs) {
      DT_CHECK(
          in.requires_grad(), "grad",
          "{} does not require a gradient; call set_requires_grad() before "
          "it is used",
          in.spec()->to_string());
      wanted_.push_back(edge_to(in));
      wanted_nodes_.insert(wanted_.back().node.get());
    }
  }

  void start(const DistTensor& output, const DistTensor& cotangent) {
    const Node::Edge e = edge_to(output);
    if (!e.node) return;
    explore(e.node.get());
    deliver(e, cotangent);
  }

  void run() {
    while (!queue_.empty()) {
      const std::shared_ptr<Node> n = queue_.top().node;
      queue_.pop();
      if (!ends(n.get()) && leads_[n.get()]) pass(n);
    }
  }

  void rest(const SplitBackward::Complete& complete) {
    splits_ = false;
    if (complete)
      options_.complete = [this, complete](size_t i, DistTensor& g) {
        if (i >= later_) complete(i - later_, g);
      };
    for (Put& p : std::exchange(put_off_, {}))
      go_back(*p.node, std::move(p.cotangents), p.needed.get(), true);
    run();
  }

  // The cotangents of inputs lo to hi - 1.
  std::vector<DistTensor> result(size_t lo, size_t hi) {
    std::vector<DistTensor> result;
    for (size_t i = lo; i < hi; ++i) {
      if (awaited_[i] > 0) completed(i);  // some nodes contributed nothing
      DistTensor* slot = find(wanted_[i]);
      result.push_back(slot ? *slot : DistTensor());
    }
    return result;
  }
  size_t later() const { return later_; }
  size_t inputs() const { return wanted_.size(); }

 private:
  struct Ready {
    std::shared_ptr<Node> node;
    bool operator<(const Ready& o) const {
      return node->sequence < o.node->sequence;  // the latest comes first
    }
  };

  // The work at one node that rest() has to do. (A vector<bool> does not
  // convert to a span of bool.)
  using Needed = std::unique_ptr<bool[]>;
  struct Put {
    std::shared_ptr<Node> node;
    std::vector<DistTensor> cotangents;
    Needed needed;
  };
  // Which wanted inputs a node leads to: none, several, or only number n - 1.
  static constexpr int64_t kNone = 0, kSeveral = -1;
  static int64_t both(int64_t a, int64_t b) {
    return a == b || b == kNone ? a : a == kNone ? b : kSeveral;
  }
  bool may_wait(int64_t leads) const {
    return splits_ && leads > static_cast<int64_t>(later_);
  }

  // Whether the pass ends at this node.
  bool ends(Node* n) const {
    return n->inputs.empty() ||
           (options_.stop_at_inputs && wanted_nodes_.contains(n));
  }

  // Finds the nodes that lead to a wanted input, and how many cotangents each
  // wanted input will get. Not recursive, since graphs are deep.
  void explore(Node* root) {
    std::vector<Node*> stack{root};
    while (!stack.empty()) {
      Node* n = stack.back();
      if (!open_.insert(n).second || ends(n)) {
        stack.pop_back();
        int64_t to = kNone;
        if (wanted_nodes_.contains(n))
          for (size_t i = 0; i < wanted_.size(); ++i)
            if (wanted_[i].node.get() == n)
              to = both(to, static_cast<int64_t>(i) + 1);
        if (!ends(n))
          for (const Node::Edge& e : n->inputs)
            if (e.node) to = both(to, leads_[e.node.get()]);
        leads_[n] = to;
        continue;
      }
      for (const Node::Edge& e : n->inputs) {
        if (!e.node) continue;
        for_inputs(e, [&](size_t i) { ++awaited_[i]; });
        if (!open_.contains(e.node.get())) stack.push_back(e.node.get());
      }
    }
  }

  // Calls fn(i) for every wanted input that this edge leads to.
  template <class Fn>
  void for_inputs(const Node::Edge& e, Fn&& fn) const {
    if (!wanted_nodes_.contains(e.node.get())) return;
    for (size_t i = 0; i < wanted_.size(); ++i)
      if (wanted_[i].node == e.node && wanted_[i].output == e.output) fn(i);
  }

  DistTensor* find(const Node::Edge& e) {
    const auto it = arrived_.find(e.node.get());
    return it == arrived_.end() ? nullptr
                                : &it->second[static_cast<size_t>(e.output)];
  }

  void deliver(const Node::Edge& e, const DistTensor& c) {
    auto [it, fresh] = arrived_.try_emplace(e.node.get());
    if (fresh) {
      it->second.resize(static_cast<size_t>(e.node->num_outputs));
      queue_.push({e.node});
    }
    DistTensor& slot = it->second[static_cast<size_t>(e.output)];
    slot = slot.defined() ? add_(slot, c) : c;
  }

  void pass(const std::shared_ptr<Node>& node) {
    Node& n = *node;
    const size_t count = n.inputs.size();
    Needed now = std::make_unique<bool[]>(count), later;
    bool any = false;
    for (size_t i = 0; i < count; ++i) {
      Node* from = n.inputs[i].node.get();
      const int64_t leads = from ? leads_[from] : kNone;
      if (leads == kNone) continue;
      if (may_wait(leads)) {
        if (!later) later = std::make_unique<bool[]>(count);
        later[i] = true;
      } else {
        any = now[i] = true;
      }
    }
    if (!any && !later) return;
    std::vector<DistTensor> cots = arrived_[&n];
    if (!wanted_nodes_.contains(&n)) arrived_[&n].clear();
    const bool last = !later;
    if (later) put_off_.push_back({node, cots, std::move(later)});
    if (any) go_back(n, std::move(cots), now.get(), last);
  }

  // `last`: the node is not needed again.
  void go_back(Node& n, std::vector<DistTensor> cots, const bool* needed,
               bool last) {
    std::vector<DistTensor> back = n.backward(cots, {needed, n.inputs.size()});
    cots.clear();
    if (options_.release_graph && last) n.release();
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!needed[i]) continue;
      if (back[i].defined()) deliver(n.inputs[i], std::move(back[i]));
      for_inputs(n.inputs[i], [&](size_t k) {
        if (--awaited_[k] == 0) completed(k);
      });
    }
  }

  void completed(size_t i) {
    DistTensor* slot = find(wanted_[i]);
    if (!options_.complete || !slot || !slot->defined()) return;
    if (ends(wanted_[i].node.get())) return options_.complete(i, *slot);
    DistTensor copy = *slot;  // the pass still needs the original
    options_.complete(i, copy);
  }

  BackwardOptions options_;
  const Add add_;
  std::vector<Node::Edge> wanted_;  // of the inputs
  std::unordered_set<Node*> wanted_nodes_;
  std::vector<int64_t> awaited_;  // cotangents, by input
  std::unordered_set<Node*> open_;
  std::unordered_map<Node*, int64_t> leads_;
  std::priority_queue<Ready> queue_;
  std::unordered_map<Node*, std::vector<DistTensor>> arrived_;
  const size_t later_;
  bool splits_;
  std::vector<Put> put_off_;  // in the order of the pass
};

// The rank's state while a pass runs.
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

Node::Node() {
  thread_local uint64_t next = 0;
  sequence = ++next;
}

Node::~Node() {
  // Destroying a long chain recursively would exhaust the stack. This loop
  // destroys the nodes that only this one holds, as a list that needs no extra
  // memory.
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

bool records(const DistTensor& x) {
  RankContext& ctx = RankContext::current();
  if (ctx.captures) ctx.captures->used(x);
  return ctx.grad_enabled && x.requires_grad();
}

std::vector<DistTensor> backward_pass(
    std::span<const DistTensor> outputs, std::span<const DistTensor> cotangents,
    std::span<const DistTensor> inputs, const BackwardOptions& options,
    const std::function<DistTensor(const DistTensor&, const DistTensor&)>&
        add) {
  const Passing passing(RankContext::current(), options.create_graph);
  Backward pass(inputs, options, add, inputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    pass.start(outputs[i], cotangents[i]);
  pass.run();
  return pass.result(0, inputs.size());
}

class SplitBackward::Pass : public Backward {
  using Backward::Backward;
};

SplitBackward::SplitBackward(const std::vector<DistTensor>& outputs,
                             const std::vector<DistTensor>& cotangents,
                             const std::vector<DistTensor>& now,
                             const std::vector<DistTensor>& later, Add add) {
  std::vector<DistTensor> inputs = now;
  inputs.insert(inputs.end(), later.begin(), later.end());
  const Passing passing(RankContext::current(), false);
  pass_ = std::make_unique<Pass>(inputs, BackwardOptions{.release_graph = true},
                                 add, now.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    pass_->start(outputs[i], cotangents[i]);
  pass_->run();
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
