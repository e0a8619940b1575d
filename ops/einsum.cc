// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cctype>
#include <map>
#include <memory>

#include "dtensor/gather.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/contraction_op.h"
#include "dtensor/ops/diagonal.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// The dimension of x that the letter at position `at` of its term stands for.
int dim_at(std::string_view term, size_t at, const DistTensor& x) {
  const size_t dots = term.find("...");
  return static_cast<int>(at) -
         (dots < at ? static_cast<int>(term.size()) - x.ndim() : 0);
}

// Replaces each operand that has a letter twice in its term by its diagonal,
// and adapts the rule. Returns false if there is no such operand.
bool take_diagonals(std::string& rule, std::vector<DistTensor>& operands) {
  const size_t arrow = std::min(rule.find("->"), rule.size());
  std::string in;
  bool any = false;
  size_t begin = 0;
  for (DistTensor& x : operands) {
    if (begin > arrow) break;
    const size_t end = std::min(rule.find(',', begin), arrow);
    std::string term = rule.substr(begin, end - begin);
    begin = end + 1;
    for (size_t i = 0; i < term.size(); ++i)
      for (size_t j = term.size(); --j > i;) {
        if (term[i] == '.' || term[i] != term[j]) continue;
        const int a = dim_at(term, i, x), b = dim_at(term, j, x);
        DT_CHECK(x.size(a) == x.size(b), "einsum",
                 "'{}' takes the diagonal of two dimensions, but their sizes "
                 "are {} and {}; pass equal sizes",
                 rule, x.size(a), x.size(b));
        x = movedim(diagonal(x, 0, a, b), {-1}, {a});
        term.erase(j, 1);
        any = true;
      }
    in += term + ",";
  }
  // Terms without an operand stay in the rule. einsum() reports them.
  if (begin <= arrow) in += rule.substr(begin, arrow - begin) + ",";
  if (any) rule = in.substr(0, in.size() - 1) + rule.substr(arrow);
  return any;
}

// The most operands whose orders are all compared. Six take 0.1 s; eight took
// up to 2 s.
constexpr size_t kMostExact = 6;

// An operand of einsum(), or the contraction of one or two Products.
struct Product {
  std::string term;
  OpInput value;
  uint64_t operands = 0;             // a bit for each operand that it contains
  int64_t price = 0, own_price = 0;  // of all its contractions; of the last one
  std::string rule = {};             // of the last contraction
  std::vector<std::shared_ptr<const Product>> from = {};
};
using Ref = std::shared_ptr<const Product>;

// Looks for the cheapest order in which to contract pairs.
class Search {
 public:
  Search(const Rule& given, std::span<const DistTensor> inputs)
      : planner_(RankContext::current().planner) {
    std::vector<Shape> shapes;
    for (const DistTensor& x : inputs) {
      DT_CHECK(x.mesh() == inputs[0].mesh(), "einsum",
               "operands are on two meshes, {} and {}; move one to the other's "
               "mesh",
               inputs[0].mesh().to_string(), x.mesh().to_string());
      shapes.push_back(x.shape());
    }
    const BoundRule bound(given, shapes, "einsum");
    const auto text = [&](const Rule::Term& term) {
      std::string t;
      for (const FactorList& d : term)
        t += d.empty() ? '1' : bound.rule().factors()[size_t(d[0])].letter;
      return t;
    };
    out_ = text(bound.rule().outputs()[0]);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const DistTensor& x = inputs[i];
      // The order of sums decides their rounding, so a reproducible run prices
      // the work of one rank.
      const OpInput input =
          reproducible(x.dtype())
              ? OpInput{Spec::replicated(Mesh::parse("one=1"), x.shape(),
                                         x.dtype())}
              : as_input(x);
      operands_.push_back(std::make_shared<Product>(
          Product{text(bound.rule().inputs()[i]), input, uint64_t{1} << i}));
    }
  }

  Ref best() {
    std::vector<Ref> list;
    for (const Ref& x : operands_) {
      // Sum over the indices that neither another operand nor the output has.
      const Ref sum = product({x});
      list.push_back(sum && sum->term != x->term ? sum : x);
    }
    const Ref best = exact(greedy(list, kMostExact));
    DT_CHECK(best, "einsum",
             "found no order in which to contract two operands at a time; the "
             "last attempt failed: {}",
             failure_);
    return best;
  }

 private:
  // Contracts one or two products. If that is impossible, returns null and sets
  // failure_.
  Ref product(std::vector<Ref> from) {
    auto made = std::make_shared<Product>();
    std::string needed = out_;
    std::vector<OpInput> in;
    std::vector<Shape> shapes;
    for (const Ref& x : from) {
      made->rule += (in.empty() ? "" : ",") + x->term;
      made->operands |= x->operands;
      made->price += x->price;
      in.push_back(x->value);
      shapes.push_back(x->value.spec->shape());
    }
    for (const Ref& x : operands_)
      if (!(made->operands & x->operands)) needed += ',' + x->term;
    const bool last = needed == out_;
    for (char c : made->rule)
      if (std::isalpha(c) && needed.find(c) != needed.npos &&
          made->term.find(c) == made->term.npos)
        made->term += c;
    if (last) made->term = out_;
    made->rule += "->" + made->term;
    made->from = std::move(from);
    try {
      const BoundRule rule(product_rule(made->rule), shapes, "einsum");
      const DType type = in[0].spec->dtype();
      const Choice c = choose(rule, in, {&type, 1}, {2}, planner_, "einsum");
      made->value.spec = c.out[0];
      // The last contraction also pays for the reduction of a partial result;
      // others leave that to the contraction that takes the result.
      made->own_price = c.comm_ps + c.work_ps + (last ? c.reduce_ps : 0);
      made->price = std::min(kMostPs, made->price + made->own_price);
    } catch (const Error& e) {
      failure_ = e.what();
      return nullptr;
    }
    return made;
  }

  // Contracts the cheapest pair until `most` products are left. Returns {} if
  // no pair can be contracted.
  std::vector<Ref> greedy(std::vector<Ref> list, size_t most) {
    while (list.size() > most) {
      Ref best;
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t k = i + 1; k < list.size(); ++k) {
          const Ref made = product({list[i], list[k]});
          if (made && (!best || made->own_price < best->own_price)) best = made;
        }
      if (!best) return {};
      *std::find(list.begin(), list.end(), best->from[0]) = best;
      std::erase(list, best->from[1]);
    }
    return list;
  }

  // The cheapest product of the whole list; null if there is none.
  Ref exact(const std::vector<Ref>& list) {
    // A product that costs as much as the best order so far, at first the
    // greedy one, cannot be part of a cheaper order.
    const std::vector<Ref> known = greedy(list, 1);
    Ref best = known.empty() ? nullptr : known[0];
    // found[set][hash] is the cheapest product of a subset of the list (a bit
    // for each) whose spec has this hash. A hash is equal on all ranks, so that
    // they all go through the products in one order.
    std::vector<std::map<uint64_t, Ref>> found(size_t{1} << list.size());
    for (size_t i = 0; i < list.size(); ++i) found[size_t{1} << i][0] = list[i];
    for (size_t set = 1; set < found.size(); ++set) {
      const size_t rest = set & (set - 1);  // without the first
      for (size_t b = rest; b > 0; b = (b - 1) & rest)
        for (const auto& x : found[set ^ b])
          for (const auto& y : found[b]) {
            const Ref made = product({x.second, y.second});
            if (!made || (best && made->price >= best->price)) continue;
            Ref& same = found[set][made->value.spec->hash()];
            if (!same || made->price < same->price) same = made;
            if (set + 1 == found.size()) best = made;
          }
    }
    return best;
  }

  Planner& planner_;
  std::string out_, failure_;  // failure_: why a product is impossible
  std::vector<Ref> operands_;
};

// Returns the order that Search finds for operands with these specs. Each
// thread caches the orders of a run.
Ref order_of(const std::string& text, std::span<const DistTensor> operands) {
  struct Order {
    Ref product;
    std::vector<SpecRef> held;  // the specs whose addresses the key has
  };
  thread_local BoundedCache<std::string, Order> known("orders of einsum",
                                                      cache_limit::kRules);
  std::string key = fmt::format("{} {}", text, RankContext::current().run_id);
  for (const DistTensor& x : operands) {
    const OpInput in = as_input(x);
    key += fmt::format(" {} {}", fmt::ptr(in.spec), int(in.keep));
  }
  if (const Order* order = known.find(key)) return order->product;
  Order made{Search(product_rule(text), operands).best(), {}};
  for (const DistTensor& x : operands) made.held.push_back(x.use_spec());
  return known.insert(key, std::move(made)).product;
}

DistTensor computed(const Product& p, TensorList operands) {
  if (p.from.empty())
    return operands[static_cast<size_t>(std::countr_zero(p.operands))];
  std::vector<DistTensor> in;
  for (const Ref& x : p.from) in.push_back(computed(*x, operands));
  return apply1(product_op("einsum", p.rule), in);
}

}  // namespace

DistTensor einsum(std::string_view text, TensorList operands) {
  std::string t;
  for (char c : text)
    if (c != ' ') t += c;
  check_defined("einsum", operands);
  if (t.find("->") == t.npos) {
    std::string letters = t;
    std::sort(letters.begin(), letters.end());
    t += t.find("...") == t.npos ? "->" : "->...";
    for (char c : letters)
      if (std::isalpha(c) && std::count(letters.begin(), letters.end(), c) == 1)
        t += c;
  }
  std::vector<DistTensor> own(operands.begin(), operands.end());
  while (take_diagonals(t, own)) operands = own;
  const Rule& rule = product_rule(t);
  DT_CHECK(rule.inputs().size() == operands.size(), "einsum",
           "the list of operands has length {}, but '{}' needs length {}; pass "
           "one operand for each term of the rule",
           operands.size(), text, rule.inputs().size());
  const std::string alone = only_in_output(rule);
  DT_CHECK(alone.empty(), "einsum",
           "'{}' has the index '{}' only in its output; give it to an operand, "
           "or leave it out",
           text, alone[0]);
  check_types("einsum", operands);
  if (operands.size() <= 2) return apply1(product_op("einsum", t), operands);
  DT_CHECK(operands.size() <= 64, "einsum",
           "got {} operands; contract at most 64 at a time", operands.size());
  return computed(*order_of(t, operands), operands);
}

}  // namespace dtensor
