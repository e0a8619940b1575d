// An embedding table, looked up by row number.
#pragma once
#include "dtensor/nn/module.h"

namespace dtensor::nn {

class Embedding : public Module {
 public:
  Embedding(const Scope& at, int64_t rows, int64_t hidden);
  // ids [...] -> [..., hidden].
  virtual DistTensor forward(const DistTensor& ids) const;
  // Rows 0 to n - 1, [n, hidden], for position embeddings.
  virtual DistTensor first(int64_t n) const;
  // A tied head: x [b, s, hidden] times the transpose of `table` [rows, hidden]
  // gives [b, s, rows]. `table` is this module's table, or a copy of it on the
  // mesh of x.
  virtual DistTensor attend(const DistTensor& x, const DistTensor& table) const;
  const DistTensor& table() const { return weight_; }

 private:
  DistTensor weight_;
};

}  // namespace dtensor::nn
