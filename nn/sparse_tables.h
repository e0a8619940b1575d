// SPDX-License-Identifier: Apache-2.0
// The tables of a model whose gradients a Trainer takes of the used rows only
// (TrainerOptions::sparse).
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "dtensor/nn/module.h"
#include "dtensor/nn/optimizer.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/ops/rows_record.h"

namespace dtensor::nn {

// The gradients of one step, micro-batch after micro-batch. Every rank calls
// the same functions.
class SparseTables {
 public:
  // Throws Error unless options.sparse has the names of matrices that the
  // optimizer updates by a kernel, each once, and the other options go with
  // them. `language`: the model is a language model, so that a mesh with an
  // axis pp makes it a pipeline.
  SparseTables(const TrainerOptions&, const Module&, const Optimizer&,
               bool language);
  bool empty() const { return tables_.empty(); }

  // The tensors of which to take the gradients of a micro-batch: the
  // optimizer's other parameters, and the rows that the loss has collected.
  // Throws Error if the loss has not passed each of the tables to used_rows(),
  // or if it has passed another tensor that wants a gradient.
  std::vector<DistTensor> inputs(const RowsRecord&);
  // Keeps the gradients of the rows, out of the list that grad() has returned
  // for inputs(). They may be partial.
  void keep_rows(std::vector<DistTensor>& grads);
  // Turns the gradients of the other parameters into those of all parameters,
  // as Optimizer::step() takes them, and returns UpdateOptions::rows. Adds the
  // rows of all micro-batches, and forgets them.
  std::vector<DistTensor> finish(std::vector<DistTensor>& grads);

 private:
  struct Table {
    std::string name;
    size_t index;  // among the optimizer's parameters
    std::vector<SomeRows> used = {};
  };
  const Optimizer& optimizer_;
  std::vector<Table> tables_;
  // For each of the latest inputs() that are rows, whose they are.
  std::vector<Table*> from_;
  std::vector<SomeRows> latest_;
  RowsRecord::Sum sum_ = nullptr;
};

}  // namespace dtensor::nn
