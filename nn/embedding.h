// A table of rows, looked up by number.
#pragma once
#include "dtensor/nn/module.h"

namespace dtensor::nn {

class Embedding : public Module {
 public:
  Embedding(const Scope& at, int64_t rows, int64_t hidden);
  // ids [...] -> [..., hidden].
  virtual DistTensor forward(const DistTensor& ids) const;
  // Rows 0 to n-1, [n, hidden]: position embeddings.
  virtual DistTensor first(int64_t n) const;
  // x [b, s, hidden] times the transpose of the table, or of a copy of it that
  // lies where x does, [b, s, rows]: a tied head.
  virtual DistTensor attend(const DistTensor& x, const DistTensor& table) const;
  const DistTensor& table() const { return weight_; }

 private:
  DistTensor weight_;
};

}  // namespace dtensor::nn
