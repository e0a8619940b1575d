// SPDX-License-Identifier: Apache-2.0
// The functions that are methods of a tensor, too, under torch's names: x.sum()
// is sum(x). The headers of ops/, which define the methods, say what each does;
// all other functions are free functions only.
//
// The methods of torch that have no meaning here are deleted, with a comment
// that says what to write instead. Compilers show it.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

class Device;
class DistTensor;
class IndexList;
class Placements;

// The base class of DistTensor.
class TensorMethods {
 public:
  // index(x, list): x[0], x[{0, Slice(1, 3)}], x[mask] (ops/indices.h).
  DistTensor operator[](const IndexList&) const;

  int dim() const;        // same as ndim()
  int64_t numel() const;  // elements of the global shape
  Placements placements() const;
  // The device of the rank's part. Throws Error on a rank outside the mesh.
  Device& device() const;

  DistTensor to(DType) const;  // same as cast()
  DistTensor clone() const;
  DistTensor sum(const std::vector<int>& dims = {}, bool keepdim = false) const;
  DistTensor mean(const std::vector<int>& dims = {},
                  bool keepdim = false) const;
  DistTensor view(const Shape&) const;
  DistTensor reshape(const Shape&) const;
  DistTensor expand(const Shape&) const;
  DistTensor permute(const std::vector<int>& order) const;
  DistTensor transpose(int a, int b) const;
  DistTensor t() const;  // a matrix transposed; vectors stay
  DistTensor T() const;  // same as t()
  // x itself, because operators take parts of any strides.
  const DistTensor& contiguous() const;

  // In place, as in torch: the value is broadcast to the shape of x and cast to
  // its type. Throws Error if x or the value requires a gradient outside of
  // NoGrad.
  const DistTensor& copy_(const DistTensor& value) const;
  const DistTensor& fill_(double value) const;
  const DistTensor& zero_() const;

  void backward() const = delete;       // write grad(loss, {w})
  void grad() const = delete;           // write grad(loss, {w})
  void to(const char*) const = delete;  // start the program with --device
  void cuda() const = delete;           // start the program with --device cuda
  void cpu() const = delete;            // write x.full()
  template <class T>
  void data_ptr() const = delete;  // write x.local().ptr<T>()
};

}  // namespace dtensor
