#include "dtensor/runtime/autograd.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "dtensor/placement/error.h"

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

std::vector<DistTensor> backward_pass(
    std::span<const DistTensor> outputs, std::span<const DistTensor> cotangents,
    std::span<const DistTensor> inputs, bool create_graph,
    const std::function<DistTensor(const DistTensor&, const DistTensor&)>&
        add) {
  RankContext& ctx = RankContext::current();
  Scoped<bool> grad(ctx.grad_enabled, create_graph);
  Scoped<std::string> phase(ctx.phase, "backward");

  std::vector<Node::Edge> wanted;
  std::unordered_map<Node*, bool> leads;  // to a wanted input?
  for (const DistTensor& in : inputs) {
    DT_CHECK(
        in.requires_grad(), "grad",
        "{} does not want a gradient; call set_requires_grad() before it is "
        "used",
        in.spec()->to_string());
    wanted.push_back(edge_to(in));
    leads[wanted.back().node.get()] = true;
  }
  // Which nodes lead to a wanted input; without recursion, since graphs are
  // deep.
  auto explore = [&](Node* root) {
    std::vector<Node*> stack{root};
    std::unordered_set<Node*> open;
    while (!stack.empty()) {
      Node* n = stack.back();
      if (!open.insert(n).second || n->inputs.empty()) {
        stack.pop_back();
        bool any = leads.count(n) && leads[n];
        for (const Node::Edge& e : n->inputs)
          any |= e.node && leads[e.node.get()];
        leads[n] = any;
        continue;
      }
      for (const Node::Edge& e : n->inputs)
        if (e.node && !open.count(e.node.get())) stack.push_back(e.node.get());
    }
  };

  struct Pending {
    std::shared_ptr<Node> node;
    bool operator<(const Pending& o) const {
      return node->sequence < o.node->sequence;  // the latest comes first
    }
  };
  std::priority_queue<Pending> queue;
  std::unordered_map<Node*, std::vector<DistTensor>> arrived;
  auto deliver = [&](const Node::Edge& e, const DistTensor& c) {
    auto [it, fresh] = arrived.try_emplace(e.node.get());
    if (fresh) {
      it->second.resize(static_cast<size_t>(e.node->num_outputs));
      queue.push({e.node});
    }
    DistTensor& slot = it->second[static_cast<size_t>(e.output)];
    slot = slot.defined() ? add(slot, c) : c;
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    Node::Edge e = edge_to(outputs[i]);
    if (!e.node) continue;
    explore(e.node.get());
    deliver(e, cotangents[i]);
  }

  std::unordered_set<Node*> keep;
  for (const Node::Edge& e : wanted) keep.insert(e.node.get());
  while (!queue.empty()) {
    std::shared_ptr<Node> n = queue.top().node;
    queue.pop();
    if (!leads[n.get()]) continue;
    // vector<bool> is no span of bool.
    auto needed = std::make_unique<bool[]>(n->inputs.size());
    bool any = false;
    for (size_t i = 0; i < n->inputs.size(); ++i) {
      Node* from = n->inputs[i].node.get();
      any |= needed[i] = from && leads[from];
    }
    if (!any) continue;
    std::vector<DistTensor> cots = arrived[n.get()];
    if (!keep.count(n.get())) arrived[n.get()].clear();
    std::vector<DistTensor> back =
        n->backward(cots, {needed.get(), n->inputs.size()});
    cots.clear();
    for (size_t i = 0; i < n->inputs.size(); ++i)
      if (needed[i] && back[i].defined()) deliver(n->inputs[i], back[i]);
  }

  std::vector<DistTensor> result;
  for (const Node::Edge& e : wanted) {
    auto it = arrived.find(e.node.get());
    result.push_back(it == arrived.end()
                         ? DistTensor()
                         : it->second[static_cast<size_t>(e.output)]);
  }
  return result;
}

}  // namespace dtensor
