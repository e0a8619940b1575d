#include <algorithm>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/contraction_op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
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
// and adapts the rule. Returns false if there is none.
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
        // `where` ignores other elements; times 0, infinities would give NaN.
        const auto along = [&](int d) {
          std::string shape(static_cast<size_t>(x.ndim()), '1');
          shape[static_cast<size_t>(d)] = 'a';
          const DistTensor index = arange(x.size(d), x.mesh());
          return apply1(product_op("expand", "a->" + shape), {&index, 1});
        };
        x = cast(sum(where(eq(along(a), along(b)), x, 0), {b}), x.dtype());
        term.erase(j, 1);
        any = true;
      }
    in += (in.empty() ? "" : ",") + term;
  }
  // Terms without an operand stay, for the rule's own check to report.
  if (begin <= arrow) in += "," + rule.substr(begin, arrow - begin);
  if (any) rule = in + rule.substr(arrow);
  return any;
}

}  // namespace

DistTensor einsum(std::string_view text,
                  const std::vector<DistTensor>& operands) {
  std::string t;
  for (char c : text)
    if (c != ' ') t += c;
  check_defined("einsum", operands);
  std::vector<DistTensor> own = operands;
  if (take_diagonals(t, own)) return einsum(t, own);
  const Rule& rule = product_rule(t);
  DT_CHECK(rule.inputs().size() == operands.size(), "einsum",
           "'{}' is for {} operands, but got {}", text, rule.inputs().size(),
           operands.size());
  const std::string alone = only_in_output(rule);
  DT_CHECK(alone.empty(), "einsum",
           "'{}' has the index '{}' only in its output", text, alone[0]);
  check_types("einsum", operands);
  if (operands.size() <= 2) return apply1(product_op("einsum", t), operands);
  // Contract the first two, keeping indices that are used later, then the rest.
  size_t comma = t.find(',');
  comma = t.find(',', comma + 1);
  std::string first = t.substr(0, comma), rest = t.substr(comma + 1), kept;
  DT_CHECK(!rule.has_ellipsis(), "einsum",
           "'{}' has '...' and more than two operands; contract two at a time",
           text);
  for (char c : first)
    if (c != ',' && rest.find(c) != rest.npos && kept.find(c) == kept.npos)
      kept += c;
  std::vector<DistTensor> next{
      einsum(first + "->" + kept, {operands[0], operands[1]})};
  next.insert(next.end(), operands.begin() + 2, operands.end());
  return einsum(kept + "," + rest, next);
}

}  // namespace dtensor
