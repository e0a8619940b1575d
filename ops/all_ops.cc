#include "dtensor/ops/all_ops.h"

#include "dtensor/ops/attention.h"
#include "dtensor/ops/cat.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/cross_entropy.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/experts.h"
#include "dtensor/ops/linear.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/slice.h"
#include "dtensor/ops/softmax.h"
#include "dtensor/ops/topk.h"
#include "dtensor/ops/view.h"

namespace dtensor {

const std::vector<const Op*>& all_ops() {
  static const auto* list = [] {
    auto* all = new std::vector<const Op*>;
    for (const auto& ops :
         {contraction_ops(), linear_ops(), pointwise_ops(), reduce_ops(),
          view_ops(), slice_ops(), cat_ops(), softmax_ops(), norm_ops(),
          embedding_ops(), cross_entropy_ops(), attention_ops(), topk_ops(),
          experts_ops(), random_ops()})
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
