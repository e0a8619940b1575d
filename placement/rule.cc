// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/rule.h"

#include <algorithm>
#include <iterator>

#include "dtensor/placement/error.h"

namespace dtensor {

std::string_view name(Linearity kind) {
  constexpr std::string_view names[] = {"linear", "affine", "up",
                                        "down",   "max",    "min"};
  static_assert(std::size(names) == kNumLinearities);
  return names[static_cast<size_t>(kind)];
}

std::optional<ReduceOp> PartialNote::pass(ReduceOp op) const {
  switch (kind) {
    case Linearity::kLinear:
      if (op == ReduceOp::kSum || op == ReduceOp::kAvg) return op;
      break;
    case Linearity::kAffine:
      if (op == ReduceOp::kAvg) return op;
      break;
    case Linearity::kUp:
      if (op == ReduceOp::kMax || op == ReduceOp::kMin) return op;
      break;
    case Linearity::kDown:
      if (op == ReduceOp::kMax) return ReduceOp::kMin;
      if (op == ReduceOp::kMin) return ReduceOp::kMax;
      break;
    case Linearity::kMax:
      if (op == ReduceOp::kMax) return op;
      break;
    case Linearity::kMin:
      if (op == ReduceOp::kMin) return op;
      break;
  }
  return std::nullopt;
}

void FactorList::too_long() {
  fail("rule", "a dimension has more than {} factors; write at most {}", kMost,
       kMost);
}

int Rule::factor(char letter) const {
  for (size_t i = 0; i < factors_.size(); ++i)
    if (factors_[i].letter == letter) return static_cast<int>(i);
  return -1;
}

bool Rule::has_ellipsis() const {
  for (const auto* terms : {&in_, &out_})
    for (const Term& t : *terms)
      for (const DimFactors& d : t)
        if (d == DimFactors{kEllipsis}) return true;
  return false;
}

bool Rule::has_groups() const {
  for (const auto* terms : {&in_, &out_})
    for (const Term& t : *terms)
      for (const DimFactors& d : t)
        if (d.size() > 1) return true;
  return false;
}

bool contains(const FactorList& d, int f) {
  return std::find(d.begin(), d.end(), f) != d.end();
}

bool contains(const Rule::Term& t, int f) {
  return std::any_of(t.begin(), t.end(),
                     [&](const FactorList& d) { return contains(d, f); });
}

int dim_of(const Rule::Term& t, int f) {
  const auto at = std::find(t.begin(), t.end(), Rule::DimFactors{f});
  return at == t.end() ? -1 : static_cast<int>(at - t.begin());
}

Rule Rule::expand(const std::vector<Shape>& shapes, std::string_view op) const {
  if (!has_ellipsis()) return *this;
  DT_CHECK(shapes.size() == in_.size(), op, "takes {}, but got {}; pass {}",
           quantity(in_.size(), "input", "inputs"), shapes.size(), in_.size());
  const DimFactors dots{kEllipsis};
  // The broadcast shape of the batch dimensions, for which "..." stands.
  Shape batch;
  std::vector<Shape> own(in_.size());
  bool named = true;
  for (size_t i = 0; i < in_.size(); ++i) {
    auto at = std::find(in_[i].begin(), in_[i].end(), dots);
    if (at == in_[i].end()) continue;
    int fixed = static_cast<int>(in_[i].size()) - 1;
    int extra = shapes[i].size() - fixed;
    DT_CHECK(extra >= 0, op,
             "input {} of shape {} has too few dimensions; pass an input with "
             "{} or more",
             i, dtensor::to_string(shapes[i]), fixed);
    int start = static_cast<int>(at - in_[i].begin());
    for (int d = 0; d < extra; ++d) own[i].push_back(shapes[i][start + d]);
    // broadcast_shapes() below names both shapes if they are those of inputs.
    named = named && fixed == 0 && i < 2;
    for (int d = 1; !named && d <= std::min(extra, batch.size()); ++d) {
      const int64_t x = batch[batch.size() - d], y = own[i][extra - d];
      DT_CHECK(x == y || x == 1 || y == 1, op,
               "input {} of shape {} does not broadcast with the inputs before "
               "it: size {} of its dimension {} meets size {}; make the two "
               "equal, or one of them 1",
               i, dtensor::to_string(shapes[i]), y, start + extra - d, x);
    }
    batch = broadcast_shapes(batch, own[i], op);
  }
  Rule r;
  r.notes_ = notes_;
  r.links_ = links_;
  r.factors_.reserve(factors_.size() + static_cast<size_t>(batch.size()));
  r.factors_ = factors_;
  const int first = static_cast<int>(factors_.size());
  for (int d = 0; d < batch.size(); ++d) {
    // The last batch dimension is Z, the one before it Y. So a gradient, whose
    // inputs may have other numbers of dimensions, uses the same letters.
    char c = static_cast<char>('Z' - (batch.size() - 1 - d));
    DT_CHECK(factor(c) < 0, op,
             "the rule {} has the letter {}, which stands for a dimension of "
             "\"...\"; write another letter",
             to_string(), c);
    r.factors_.push_back({c});
  }
  bool out_has = false;
  // `has`: the sizes of the term's own batch dimensions, which line up with the
  // last dimensions of `batch`.
  auto expanded = [&](const Term& t, const Shape& has) {
    Term dims;
    dims.reserve(t.size() + static_cast<size_t>(has.size()));
    const int missing = batch.size() - has.size();
    for (const DimFactors& d : t) {
      if (d != dots) {
        dims.push_back(d);
        continue;
      }
      for (int k = 0; k < has.size(); ++k) {
        const bool one = has[k] == 1 && batch[missing + k] != 1;
        dims.push_back(one ? DimFactors{} : DimFactors{first + missing + k});
      }
    }
    return dims;
  };
  r.in_.reserve(in_.size());
  for (size_t i = 0; i < in_.size(); ++i)
    r.in_.push_back(expanded(in_[i], own[i]));
  r.out_.reserve(out_.size());
  for (const Term& t : out_) {
    out_has |= std::find(t.begin(), t.end(), dots) != t.end();
    r.out_.push_back(expanded(t, batch));
  }
  if (!out_has)
    for (int d = 0; d < batch.size(); ++d)
      r.factors_[static_cast<size_t>(first + d)].contracted = true;
  return r;
}

Rule Rule::gradient(int i) const {
  DT_CHECK(out_.size() == 1, "rule",
           "{} has several outputs, but only a rule with one output has a "
           "gradient; write a rule with one output",
           to_string());
  Rule r = *this;
  std::swap(r.in_[static_cast<size_t>(i)], r.out_[0]);
  r.notes_.clear();
  for (size_t k = 0; k < in_.size(); ++k)
    r.notes_.push_back({Linearity::kLinear, {static_cast<int>(k)}});
  for (size_t f = 0; f < factors_.size(); ++f) {
    bool kept = false;
    for (const DimFactors& d : r.out_[0])
      kept |= std::find(d.begin(), d.end(), static_cast<int>(f)) != d.end();
    r.factors_[f].contracted = !kept;
  }
  return r;
}

std::string Rule::to_string() const {
  // Each mark is written once: the first mark of a factor where the factor
  // first occurs, its second mark at the next occurrence.
  std::vector<std::string> marks;
  for (const Factor& x : factors_) {
    std::string& m = marks.emplace_back();
    if (x.one_range) m += '^';
    if (x.inside) m += '~';
    if (x.pinned) m += '!';
  }
  auto factor_text = [&](int f) {
    std::string t(1, factors_[static_cast<size_t>(f)].letter);
    std::string& left = marks[static_cast<size_t>(f)];
    if (!left.empty()) {
      t += left.back();
      left.pop_back();
    }
    return t;
  };
  auto terms_text = [&](const std::vector<Term>& terms) {
    std::string t;
    for (size_t i = 0; i < terms.size(); ++i) {
      if (i) t += ',';
      for (const DimFactors& d : terms[i]) {
        if (d.empty()) {
          t += '1';
        } else if (d[0] == kEllipsis) {
          t += "...";
        } else if (d.size() == 1) {
          t += factor_text(d[0]);
        } else {
          t += '(';
          for (int f : d) t += factor_text(f);
          t += ')';
        }
      }
    }
    return t;
  };
  std::string body = terms_text(in_);
  body += "->" + terms_text(out_);
  std::string notes;
  auto add = [&](const std::string& n) {
    notes += (notes.empty() ? " | " : "; ") + n;
  };
  for (const PartialNote& n : notes_) {
    std::string t(name(n.kind));
    t += ' ';
    for (size_t i = 0; i < n.inputs.size(); ++i)
      t += (i ? "," : "") + std::to_string(n.inputs[i]);
    add(t);
  }
  for (const Factor& f : factors_)
    if (f.reduction != ReduceOp::kSum)
      add(std::string(1, f.letter) + ":" + std::string(name(f.reduction)));
  for (auto [h, g] : links_)
    add(fmt::format("link {} {}", factors_[static_cast<size_t>(h)].letter,
                    factors_[static_cast<size_t>(g)].letter));
  return body + notes;
}

}  // namespace dtensor
