#include "dtensor/runtime/autograd.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/trace.h"

namespace dtensor {
namespace {

// A tensor that no operator made.
class LeafNode : public Node {
 public:
  std::vector<DistTensor> backward(std::span<const DistTensor>,
                                   std::span<const bool>) override {
    return {};
  }
  std::string_view name() const override { return "leaf"; }
};

// One pass.
class Backward {
 public:
  using Add = std::function<DistTensor(const DistTensor&, const DistTensor&)>;
  Backward(std::span<const DistTensor> inputs, const BackwardOptions& options,
           const Add& add)
      : options_(options), add_(add), awaited_(inputs.size()) {
    for (const DistTensor& in : inputs) {
      DT_CHECK(in.requires_grad(), "grad",
               "{} does not want a gradient; call set_requires_grad() before "
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

  std::vector<DistTensor> run() {
    while (!queue_.empty()) {
      const std::shared_ptr<Node> n = queue_.top().node;
      queue_.pop();
      if (!ends(n.get()) && leads_[n.get()]) pass(*n);
    }
    std::vector<DistTensor> result;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (awaited_[i] > 0) completed(i);  // some never came
      DistTensor* slot = find(wanted_[i]);
      result.push_back(slot ? *slot : DistTensor());
    }
    return result;
  }

 private:
  struct Ready {
    std::shared_ptr<Node> node;
    bool operator<(const Ready& o) const {
      return node->sequence < o.node->sequence;  // the latest comes first
    }
  };

  // Does the pass go no further than this node?
  bool ends(Node* n) const {
    return n->inputs.empty() ||
           (options_.stop_at_inputs && wanted_nodes_.contains(n));
  }

  // Which nodes lead to a wanted input, and how many cotangents each of these
  // is to get; without recursion, since graphs are deep.
  void explore(Node* root) {
    std::vector<Node*> stack{root};
    while (!stack.empty()) {
      Node* n = stack.back();
      if (!open_.insert(n).second || ends(n)) {
        stack.pop_back();
        bool any = wanted_nodes_.contains(n);
        if (!ends(n))
          for (const Node::Edge& e : n->inputs)
            any |= e.node && leads_[e.node.get()];
        leads_[n] = any;
        continue;
      }
      for (const Node::Edge& e : n->inputs) {
        if (!e.node) continue;
        for_inputs(e, [&](size_t i) { ++awaited_[i]; });
        if (!open_.contains(e.node.get())) stack.push_back(e.node.get());
      }
    }
  }

  // fn(i) for the inputs that this edge leads to.
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

  void pass(Node& n) {
    // vector<bool> is no span of bool.
    auto needed = std::make_unique<bool[]>(n.inputs.size());
    bool any = false;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      Node* from = n.inputs[i].node.get();
      any |= needed[i] = from && leads_[from];
    }
    if (!any) return;
    std::vector<DistTensor> cots = arrived_[&n];
    if (!wanted_nodes_.contains(&n)) arrived_[&n].clear();
    std::vector<DistTensor> back =
        n.backward(cots, {needed.get(), n.inputs.size()});
    cots.clear();
    if (options_.release_graph) n.release();
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
    DistTensor copy = *slot;  // the pass goes on from here
    options_.complete(i, copy);
  }

  const BackwardOptions& options_;
  const Add& add_;
  std::vector<Node::Edge> wanted_;  // of the inputs
  std::unordered_set<Node*> wanted_nodes_;
  std::vector<int64_t> awaited_;  // cotangents, by input
  std::unordered_set<Node*> open_;
  std::unordered_map<Node*, bool> leads_;  // to a wanted input?
  std::priority_queue<Ready> queue_;
  std::unordered_map<Node*, std::vector<DistTensor>> arrived_;
};

}  // namespace

Node::Node() {
  thread_local uint64_t next = 0;
  sequence = ++next;
}

Node::~Node() {
  // A long chain of nodes would end itself recursively and exhaust the stack:
  // what only this node holds is taken apart in a loop, as a list that needs no
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
    n->release();  // what it saved holds the nodes of its inputs, too
    take(*n);
  }
}

Node::Edge edge_to(const DistTensor& t) {
  if (!t.requires_grad()) return {};
  DistTensor::Impl& impl = *t.impl();
  if (!impl.node) impl.node = std::make_shared<LeafNode>();
  return {impl.node, impl.output};
}

bool grad_enabled() { return RankContext::current().grad_enabled; }

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
  RankContext& ctx = RankContext::current();
  const Scoped<bool> grad(ctx.grad_enabled, options.create_graph);
  const Scoped<Captures*> captures(
      ctx.captures, options.create_graph ? ctx.captures : nullptr);
  const Scoped<std::string> phase(ctx.phase, "backward");
  const TraceSpan span(ctx, "backward");
  Backward pass(inputs, options, add);
  for (size_t i = 0; i < outputs.size(); ++i)
    pass.start(outputs[i], cotangents[i]);
  return pass.run();
}

}  // namespace dtensor
