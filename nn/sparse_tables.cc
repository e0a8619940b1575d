// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/sparse_tables.h"

#include <algorithm>
#include <utility>

#include "dtensor/ops/embedding.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor::nn {

SparseTables::SparseTables(const TrainerOptions& options, const Module& model,
                           const Optimizer& optimizer, bool language)
    : optimizer_(optimizer) {
  const std::vector<DistTensor>& all = optimizer.parameters();
  for (const std::string& name : options.sparse) {
    DT_CHECK(!language || axis_that(kSplitsStages, model.mesh()) < 0, "trainer",
             "sparse lists {}, but a pipeline has no sparse gradients; leave "
             "sparse out, or train on a mesh without pp",
             name);
    DT_CHECK(!options.cuda_graph, "trainer",
             "sparse lists {}, but a graph cannot replay steps whose numbers "
             "of rows differ; leave cuda_graph out",
             name);
    DT_CHECK(!options.check_bytes, "trainer",
             "sparse lists {}, but the bytes of a step then depend on its ids; "
             "set check_bytes to false",
             name);
    const DistTensor p = model.parameter(name);
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const auto& q) { return q.same_as(p); });
    DT_CHECK(found != all.end(), "trainer",
             "sparse lists {}, which the optimizer does not update; leave it "
             "out",
             name);
    DT_CHECK(p.ndim() == 2, "trainer",
             "sparse lists {}, which is {}; list only matrices, whose rows are "
             "looked up",
             name, p.spec()->to_string());
    DT_CHECK(!optimizer.by_operators(), "trainer",
             "sparse lists {}, but an update by operators is one of all rows; "
             "leave sparse out, or use SGD or AdamW",
             name);
    const auto index = static_cast<size_t>(found - all.begin());
    DT_CHECK(std::none_of(tables_.begin(), tables_.end(),
                          [&](const Table& t) { return t.index == index; }),
             "trainer", "sparse lists {} twice; list it once", name);
    tables_.push_back({name, index});
  }
}

std::vector<DistTensor> SparseTables::inputs(const RowsRecord& record) {
  const std::vector<DistTensor>& all = optimizer_.parameters();
  std::vector<DistTensor> list;
  for (size_t i = 0; i < all.size(); ++i)
    if (std::none_of(tables_.begin(), tables_.end(),
                     [&](const Table& t) { return t.index == i; }))
      list.push_back(all[i]);
  from_.clear();
  latest_.clear();
  for (const SomeRows& call : record.calls) {
    if (!call.rows.requires_grad()) continue;
    const auto t =
        std::find_if(tables_.begin(), tables_.end(), [&](const Table& table) {
          return all[table.index].same_as(call.table);
        });
    DT_CHECK(t != tables_.end(), "trainer",
             "the loss passes {} to used_rows(), but TrainerOptions::sparse "
             "does not list it, so that it would get no gradient; list the "
             "names of such parameters",
             call.table.spec()->to_string());
    from_.push_back(&*t);
    latest_.push_back(call);
    list.push_back(call.rows);
  }
  if (record.sum) sum_ = record.sum;
  for (const Table& t : tables_)
    DT_CHECK(std::find(from_.begin(), from_.end(), &t) != from_.end(),
             "trainer",
             "sparse lists {}, but the loss does not pass it to used_rows(); "
             "look up the rows that used_rows() returns, or leave it out",
             t.name);
  return list;
}

void SparseTables::keep_rows(std::vector<DistTensor>& grads) {
  const size_t others = grads.size() - latest_.size();
  for (size_t k = 0; k < latest_.size(); ++k)
    from_[k]->used.push_back(
        {latest_[k].table, latest_[k].ids, std::move(grads[others + k])});
  grads.resize(others);
}

std::vector<DistTensor> SparseTables::finish(std::vector<DistTensor>& grads) {
  if (empty()) return {};
  const NoGrad no_grad;
  // All gradients of rows move together.
  std::vector<DistTensor> rows;
  std::vector<SpecRef> to;
  for (const Table& t : tables_)
    for (const SomeRows& r : t.used) {
      rows.push_back(r.rows);
      to.push_back(rows_spec(r.table, r.ids.size(0))->with(r.rows.dtype()));
    }
  relayout(rows, to);
  const size_t count = optimizer_.parameters().size();
  std::vector<DistTensor> all(count), ids(count);
  size_t next = 0;
  for (Table& t : tables_) {
    for (SomeRows& r : t.used) r.rows = std::exchange(rows[next++], {});
    const SomeRows sum = t.used.size() == 1 ? t.used[0] : sum_(t.used);
    t.used.clear();
    ids[t.index] = sum.ids;
    // The last rows are of no id, but padding may have given them a gradient,
    // which the norm must not see.
    all[t.index] = where(unsqueeze(ge(sum.ids, 0), 1), sum.rows, 0);
  }
  auto dense = grads.begin();
  for (size_t i = 0; i < count; ++i)
    if (!ids[i].defined()) all[i] = std::move(*dense++);
  grads = std::move(all);
  return ids;
}

}  // namespace dtensor::nn
