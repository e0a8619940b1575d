#include "dtensor/ops/all_ops.h"

namespace dtensor {

const OpList& all_ops() {
  static const auto* list = [] {
    auto* all = new OpList;
    for (const auto& ops :
         {contraction_ops(), linear_ops(), pointwise_ops(), reduce_ops(),
          view_ops(), slice_ops(), flip_ops(), cat_ops(), softmax_ops(),
          norm_ops(), gather_ops(), embedding_ops(), cross_entropy_ops(),
          attention_ops(), topk_ops(), experts_ops(), random_ops()})
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
