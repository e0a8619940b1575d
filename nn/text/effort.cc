// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/effort.h"

#include "dtensor/placement/error.h"

namespace dtensor::nn::text {

void Effort::refuse_steps(std::string_view where) const {
  fail("tokenizer",
       "{} takes more than {} steps for {} bytes of input; use a file whose "
       "patterns and tokens repeat less",
       where, kSteps + 1000 * input_, input_);
}

void Effort::refuse_bytes(std::string_view where) const {
  fail("tokenizer",
       "{} makes more than {} bytes of {} bytes of input; use a file that adds "
       "less text",
       where, kBytes + 256 * input_, input_);
}

}  // namespace dtensor::nn::text
