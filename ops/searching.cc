// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/searching.h"

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/kernels/select.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct SearchArgs {
  static constexpr Fields kFields = {"right"};
  bool right;
};

// sorted x "...n" or "n", values "...k" or "..." -> the number of elements
// before each value. A part of a sorted row is sorted, so the counts in the
// parts add up.
class SearchSorted : public Op {
 public:
  SearchSorted()
      : Op("searchsorted", {.work = {.flops_per_point = 0, .looked_up = 1},
                            .differentiable = false}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return BoundRule(
        Rule(shapes[0].size() == 1 ? "n,...->..." : "...n,...k->...k"), shapes,
        name());
  }
  std::vector<DType> out_dtypes(std::span<const DType>,
                                const Attrs&) const override {
    return {DType::kI64};
  }
  std::vector<Sample> samples() const override {
    // A row is sorted if all of its elements are equal.
    const auto zeros = [](const Shape& shape) {
      return SampleInput{.shape = shape, .lo = 0, .hi = 0};
    };
    SampleInput values{{3, 4}};
    values.zeros = true;
    return {{{zeros({3, 5}), values}, SearchArgs{false}, true},
            {{zeros({7}), values}, SearchArgs{true}, true}};
  }

  void compute(Compute& c) const override {
    const Rows x(c.in[0]);
    const Tensor values = c.in[1].to_contiguous();
    c.run(kernels::CountBefore{.x = x,
                               .k = x.rows == 0 ? 0 : values.numel() / x.rows,
                               .values = values.data(),
                               .equal = c.attrs.as<SearchArgs>().right,
                               .out = c.out[0].mutable_ptr<int64_t>()});
  }
};

DistTensor search(std::string_view op, const DistTensor& sequence,
                  const DistTensor& values, const SearchOptions& options) {
  DT_CHECK(
      sequence.dtype() == values.dtype() && sequence.dtype() != DType::kBool,
      op, "cannot look for {} in {}; cast both to one type, which is not bool",
      values.spec()->to_string(), sequence.spec()->to_string());
  const DistTensor count = apply1(op_of<SearchSorted>(), {sequence, values},
                                  SearchArgs{options.right});
  return options.out_int32 ? cast(count, DType::kI32) : count;
}

}  // namespace

DistTensor searchsorted(const DistTensor& sequence, const DistTensor& values,
                        const SearchOptions& options) {
  check_defined("searchsorted", {sequence, values});
  bool fits = sequence.ndim() > 0;
  if (sequence.ndim() > 1) {
    fits = sequence.ndim() == values.ndim();
    for (int d = 0; fits && d + 1 < values.ndim(); ++d)
      fits = sequence.size(d) == values.size(d);
  }
  DT_CHECK(fits, "searchsorted",
           "the values {} do not fit the sequence {}; pass a vector, or a "
           "sequence that has the shape of the values except in the last "
           "dimension",
           values.spec()->to_string(), sequence.spec()->to_string());
  if (!options.sorter.defined())
    return search("searchsorted", sequence, values, options);
  DT_CHECK(options.sorter.shape() == sequence.shape(), "searchsorted",
           "the sorter {} does not fit the sequence {}; pass the indices from "
           "argsort(sequence)",
           options.sorter.spec()->to_string(), sequence.spec()->to_string());
  return search("searchsorted", gather(sequence, -1, options.sorter), values,
                options);
}

DistTensor bucketize(const DistTensor& values, const DistTensor& boundaries,
                     bool out_int32, bool right) {
  check_defined("bucketize", {values, boundaries});
  DT_CHECK(boundaries.ndim() == 1, "bucketize",
           "the boundaries {} are not a vector; for a sequence in each row "
           "write searchsorted()",
           boundaries.spec()->to_string());
  return search("bucketize", boundaries, values,
                {.out_int32 = out_int32, .right = right});
}

static const OpFamily kFamily("searching",
                              [] { return OpList{&op_of<SearchSorted>()}; });

}  // namespace dtensor
