// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/effort.h"

#include <ctime>

#include "dtensor/placement/error.h"

namespace dtensor::nn::text {

void Effort::compare_time(std::string_view where) {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  const double now = static_cast<double>(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  if (begun_ < 0) begun_ = now;
  DT_CHECK(now - begun_ <= 1 + 20e-6 * static_cast<double>(input_), "tokenizer",
           "{} takes longer than 1 s plus 20 us for each of {} of input, "
           "counting the tokenizer's earlier parts; use a tokenizer.json with "
           "simpler patterns",
           where, quantity(input_, "byte", "bytes"));
}

void Effort::refuse_steps(std::string_view where) const {
  fail("tokenizer",
       "{} takes more than {} steps, counting the tokenizer's earlier parts, "
       "for {} of input; use a tokenizer.json whose patterns and tokens repeat "
       "less",
       where, kSteps + 1000 * input_, quantity(input_, "byte", "bytes"));
}

void Effort::refuse_bytes(std::string_view where) const {
  fail("tokenizer",
       "{} makes more than {} bytes, counting the tokenizer's earlier parts, "
       "from {} of input; use a tokenizer.json that adds less text",
       where, kBytes + 256 * input_, quantity(input_, "byte", "bytes"));
}

}  // namespace dtensor::nn::text
