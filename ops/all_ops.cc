#include "ops/all_ops.h"

#include "ops/attention.h"
#include "ops/cat.h"
#include "ops/contraction.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/slice.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace dtensor {

const std::vector<const Op*>& all_ops() {
  static const auto* list = [] {
    auto* all = new std::vector<const Op*>;
    for (const auto& ops :
         {contraction_ops(), pointwise_ops(), reduce_ops(), view_ops(),
          slice_ops(), cat_ops(), softmax_ops(), norm_ops(), embedding_ops(),
          cross_entropy_ops(), attention_ops(), random_ops()})
      all->insert(all->end(), ops.begin(), ops.end());
    return all;
  }();
  return *list;
}

const Op* find_op(std::string_view name) {
  for (const Op* op : all_ops())
    if (op->name() == name) return op;
  return nullptr;
}

}  // namespace dtensor
