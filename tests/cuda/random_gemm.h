// SPDX-License-Identifier: Apache-2.0
// Small random products with strides of all kinds.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "dtensor/ops/kernels/gemm.h"

namespace dtensor::kernels {

// Lays out the dimensions of one operand in any order, with some gaps. The
// strides of dimensions that it does not have stay 0.
class OperandLayout {
 public:
  OperandLayout(std::mt19937& rng) : rng_(rng) {}
  void add(int64_t size, int64_t& stride) { dims_.push_back({size, &stride}); }
  // Sets the strides; returns the number of elements.
  int64_t lay_out() {
    std::shuffle(dims_.begin(), dims_.end(), rng_);
    int64_t next = rng_() % 8 == 0 ? 2 : 1;
    for (auto& [size, stride] : dims_) {
      *stride = next;
      next = next * size + (rng_() % 4 == 0 ? 3 : 0);
    }
    return next;
  }

 private:
  std::mt19937& rng_;
  std::vector<std::pair<int64_t, int64_t*>> dims_;
};

// A product with up to three batch dimensions. Each is a dimension of two or of
// all three operands.
struct RandomGemm {
  Gemm g;
  int64_t a_size, b_size, c_size;

  explicit RandomGemm(std::mt19937& rng) {
    const auto size = [&] { return static_cast<int64_t>(1 + rng() % 4); };
    g.m = size(), g.n = size(), g.k = size();
    const int dims = static_cast<int>(rng() % 4);
    g.batch = g.a_batch_strides = g.b_batch_strides = g.c_batch_strides =
        Shape::filled(dims, 0);
    OperandLayout a(rng), b(rng), c(rng);
    for (int d = 0; d < dims; ++d) {
      g.batch[d] = size();
      const unsigned without = rng() % 6;
      if (without != 0) a.add(g.batch[d], g.a_batch_strides[d]);
      if (without != 1) b.add(g.batch[d], g.b_batch_strides[d]);
      if (without != 2) c.add(g.batch[d], g.c_batch_strides[d]);
    }
    a.add(g.m, g.a_m), a.add(g.k, g.a_k);
    b.add(g.k, g.b_k), b.add(g.n, g.b_n);
    c.add(g.m, g.c_m), c.add(g.n, g.c_n);
    g.accumulate = rng() % 2;
    a_size = a.lay_out(), b_size = b.lay_out(), c_size = c.lay_out();
  }
};

}  // namespace dtensor::kernels
