// SPDX-License-Identifier: Apache-2.0
// A rule describes an operator as one line of text over factors.
//
//   rule   = terms "->" terms [" | " note { "; " note }]
//   terms  = term { "," term }           one per input, one per output
//   term   = { dim }                     a scalar has none
//   dim    = factor | "(" factor factor ... ")" | "1" | "..."
//   factor = letter [ "!" | "~" | "^" ]
//   note   = kind i{,i} | letter ":" reduction | "link" letter letter
//   kind   = "linear" | "affine" | "up" | "down" | "max" | "min"
//
// A letter is a factor: all dimensions with this letter have one size. "(h d)"
// is a dimension made of two factors, the first outermost. "1" is a dimension
// of size 1, such as one that is broadcast. "..." stands for the same
// dimensions in every term that has it. They are aligned at the right, and in
// an input each of them may be missing or 1.
//
// Marks: "!" means that no rank may hold only a part of the factor. "~" means
// that the operator has its own algorithm for a split factor, with small
// collectives inside, so that no partial is left. "^" means that every rank
// must hold one range of the factor. A mark may stand at any occurrence of the
// factor; two marks stand at two occurrences ("n~->n^").
//
// If a factor is split, an output that lacks it becomes partial: a sum, unless
// "k:max" gives another reduction. "link h g": an axis that splits h may split
// g too; g is never split without h.
//
// A note tells how the operator treats partial inputs. i counts inputs from 0;
// the inputs of one note are partial together over an axis, and all other
// inputs are replicated over it:
//   linear 0,1       add: P(sum) of both jointly, avg too
//   affine 0         x + c: P(avg) passes, P(sum) does not
//   up 0 / down 0    monotone: exp keeps P(max) and P(min), neg swaps them
//   max 0,1          commutes with max alone: the maximum of two
//   max 0            the maximum over a dimension
//
// P(exact) passes no note.
//
// Example: "mk,kn->mn | linear 0; linear 1" on one mesh axis has the strategies
// R,R->R  m: S0,R->S0  k: S1,S0->P  n: R,S1->S1  P,R->P  R,P->P.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

struct Factor {
  char letter;
  bool pinned = false;                  // "!"
  bool inside = false;                  // "~"
  bool one_range = false;               // "^"
  ReduceOp reduction = ReduceOp::kSum;  // of an output that lacks it
  bool contracted = false;              // no output has it
  bool operator==(const Factor&) const = default;
};

enum class Linearity : uint8_t { kLinear, kAffine, kUp, kDown, kMax, kMin };
inline constexpr int kNumLinearities = 6;
std::string_view name(Linearity);  // as in a note: "linear"
struct PartialNote {
  Linearity kind;
  std::vector<int> inputs;
  bool operator==(const PartialNote&) const = default;
  // The output's partial if the inputs of the note are partial by `op`; nullopt
  // if the operator cannot compute on such inputs.
  std::optional<ReduceOp> pass(ReduceOp op) const;
};

// A few factors (indices into Rule::factors()), stored in the object itself,
// because a rule is copied for every new shape of its inputs (see
// Rule::expand()).
class FactorList {
 public:
  static constexpr size_t kMost = 15;
  FactorList() = default;
  FactorList(std::initializer_list<int> factors) {
    for (int f : factors) push_back(f);
  }
  // Throws Error if there are kMost already.
  void push_back(int f) {
    if (n_ == kMost) too_long();
    f_[n_++] = static_cast<int8_t>(f);
  }
  size_t size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int operator[](size_t i) const { return f_[i]; }
  const int8_t* begin() const { return f_.data(); }
  const int8_t* end() const { return f_.data() + n_; }
  bool operator==(const FactorList&) const = default;

 private:
  [[noreturn]] static void too_long();
  std::array<int8_t, kMost> f_{};  // 0 from n_ on
  uint8_t n_ = 0;
};

class Rule {
 public:
  // A dimension's factors, outermost first: none for "1", and only kEllipsis
  // for "...".
  using DimFactors = FactorList;
  using Term = std::vector<DimFactors>;
  static constexpr int kEllipsis = -1;

  // Throws Error that tells what is wrong in the text.
  explicit Rule(std::string_view text);

  const std::vector<Term>& inputs() const { return in_; }
  const std::vector<Term>& outputs() const { return out_; }
  const std::vector<Factor>& factors() const { return factors_; }
  // Marks a factor "!" instead of "~".
  void pin(int factor) {
    Factor& f = factors_[static_cast<size_t>(factor)];
    f.pinned = true;
    f.inside = false;
  }
  const std::vector<PartialNote>& notes() const { return notes_; }
  // Pairs (h, g): g may be split only together with h.
  const std::vector<std::pair<int, int>>& links() const { return links_; }
  bool has_ellipsis() const;
  bool has_groups() const;        // a dimension of several factors
  int factor(char letter) const;  // -1 if there is none

  // The rule for inputs of these shapes, without "...". The dimensions that
  // "..." stands for get new capital letters, or "1" in an input that is
  // broadcast along that dimension. Throws Error, headed by `op`, if the shapes
  // do not fit.
  Rule expand(const std::vector<Shape>& shapes, std::string_view op) const;

  // The rule of the gradient with respect to input i: a contraction in which
  // the output's cotangent takes the place of input i. Throws Error if there
  // are several outputs. REQUIRES: this rule is a contraction (plain factors,
  // all inputs linear).
  Rule gradient(int i) const;

  // A text that parses to an equal rule.
  std::string to_string() const;
  bool operator==(const Rule&) const = default;

 private:
  Rule() = default;
  friend class RuleParser;
  std::vector<Term> in_, out_;
  std::vector<Factor> factors_;
  std::vector<PartialNote> notes_;
  std::vector<std::pair<int, int>> links_;
};

// Whether the dimension, or the term, has the factor.
bool contains(const FactorList&, int factor);
bool contains(const Rule::Term&, int factor);
// The index of the term's dimension that is this factor alone; -1 if none is.
int dim_of(const Rule::Term&, int factor);

}  // namespace dtensor
