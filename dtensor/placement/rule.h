// What an operator computes, as one line of text over factors.
//
//   rule  = terms "->" terms [" | " note { "; " note }]
//   terms = term { "," term }            one per input, one per output
//   term  = { dim }                      a scalar has none
//   dim   = factor | "(" factor factor ... ")" | "1" | "..."
//   factor= letter [ "!" | "~" | "^" ]
//   note  = kind i{,i} | letter ":" reduction | "link" letter letter
//   kind  = "linear" | "affine" | "up" | "down" | "max" | "min"
//
// A letter is a factor: dimensions that share it have one size. "(h d)" is a
// dimension made of two factors, the first outermost. "1" has size 1 and meets
// any size (broadcast). "..." stands for the same leading dimensions in every
// term that has it, aligned at the right, each of which may be missing or 1 in
// an input. "!" says that no rank may hold only a part of the factor. "~" says
// that the operator has an algorithm of its own for a split factor, with small
// collectives inside, so that no partial is left. "^" says that every rank
// must hold one range of the factor. A factor that the outputs
// lack leaves them partial: a sum, unless "k:max" says otherwise. "link h g":
// an axis that splits h may split g too; g is never split without h.
//
// The notes say what an input's partial may do (i counts inputs from 0; one
// note is one group, whose inputs are partial together, the others whole):
//   linear 0,1   add: P(sum) of both jointly, avg too
//   affine 0     x + c: P(avg) passes, P(sum) does not
//   up 0 / down 0   monotone: exp keeps P(max) and P(min), neg swaps them
//   max 0,1      commutes with max alone: the maximum of two, or over a
//   dimension
//
// Example: "mk,kn->mn | linear 0; linear 1" on one mesh axis has the
// strategies R,R->R  m: S0,R->S0  k: S1,S0->P  n: R,S1->S1  P,R->P  R,P->P.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/shape.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

struct Factor {
  char letter;
  bool pinned = false;                  // "!"
  bool inside = false;                  // "~"
  bool one_range = false;               // "^"
  ReduceOp reduction = ReduceOp::kSum;  // when the outputs lack it
  bool contracted = false;              // the outputs lack it
  bool operator==(const Factor&) const = default;
};

enum class Linearity : uint8_t { kLinear, kAffine, kUp, kDown, kMax, kMin };
struct PartialNote {
  Linearity kind;
  std::vector<int> inputs;
  bool operator==(const PartialNote&) const = default;
  // What the output becomes when the group's inputs are partial by `op`, or
  // nullopt when the operator cannot take that.
  std::optional<ReduceOp> pass(ReduceOp op) const;
};

class Rule {
 public:
  // A dimension's factors (indices into factors()), outermost first; none for
  // "1"; kEllipsis alone for "...".
  using DimFactors = std::vector<int>;
  using Term = std::vector<DimFactors>;
  static constexpr int kEllipsis = -1;

  // Throws Error that points at what is wrong in the text.
  explicit Rule(std::string_view text);

  const std::vector<Term>& inputs() const { return in_; }
  const std::vector<Term>& outputs() const { return out_; }
  const std::vector<Factor>& factors() const { return factors_; }
  const std::vector<PartialNote>& notes() const { return notes_; }
  // Pairs (h, g): g may be split only together with h.
  const std::vector<std::pair<int, int>>& links() const { return links_; }
  bool has_ellipsis() const;
  int factor(char letter) const;  // -1 when there is none

  // Without "...": for inputs of these shapes, with fresh capital letters for
  // the batch dimensions and "1" where an input has size 1 there.
  Rule expand(const std::vector<Shape>& shapes, std::string_view op) const;

  // The rule of the gradient of input i: of a sum of products the cotangent of
  // the output takes the operand's place. Only for contractions (one output,
  // plain factors, all inputs linear).
  Rule gradient(int i) const;

  // Text that parses to an equal rule.
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

// Which Dim each factor gets, and which partials pass through.
struct Assignment {
  struct Pass {
    int axis;
    int note;  // index into Rule::notes()
    ReduceOp op;
    bool operator==(const Pass&) const = default;
  };
  std::vector<Dim> dims;     // by factor, of its size
  std::vector<Pass> passes;  // outermost first
  bool operator==(const Assignment&) const = default;
};

// A rule with sizes: what remains is to choose an assignment.
class BoundRule {
 public:
  // Throws Error when a factor has two sizes, a term another number of
  // dimensions, or a product of sizes overflows. Sizes of factors that only
  // outputs have come from `extra` (letter, size).
  BoundRule(const Rule& rule, const std::vector<Shape>& shapes,
            std::string_view op,
            const std::vector<std::pair<char, int64_t>>& extra = {});

  const Rule& rule() const { return rule_; }
  int64_t size(int factor) const { return sizes_[static_cast<size_t>(factor)]; }
  Shape output_shape(int i) const {
    return shape_of(rule_.outputs()[size_t(i)]);
  }
  Shape input_shape(int i) const { return shape_of(rule_.inputs()[size_t(i)]); }
  // The product of the factors' sizes (of a linked pair the first's alone): a
  // contraction has 2x as many flops.
  double points() const;

  // The nearest assignment that the operator can compute: where an output lacks
  // a factor (whose parts are then combined), or "~" combines its parts, every
  // index of it in one part; where it has "^", one range for every rank.
  Assignment legal(Assignment, const Mesh&) const;
  // The layouts of inputs and outputs under an assignment that is legal.
  Layout input_layout(const Assignment&, const Mesh&, int i) const;
  Layout output_layout(const Assignment&, const Mesh&, int i) const;
  // The largest share of points() that a rank computes.
  double largest_share(const Assignment&, const Mesh&) const;

  // The factors that one mesh axis may split at once: one each, and linked
  // pairs.
  std::vector<std::vector<int>> choices() const;
  // "m: dp; n: tp; P over pp in 0", "R" for none.
  std::string to_string(const Assignment&, const Mesh&) const;

 private:
  Shape shape_of(const Rule::Term&) const;
  Layout layout_of(const Rule::Term&, const Assignment&, const Mesh&) const;
  Rule rule_;
  std::vector<int64_t> sizes_;
};

// One line per strategy of a single mesh axis of size 2, as in the example.
std::string strategies(const Rule& expanded);

}  // namespace dtensor
