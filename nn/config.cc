// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/config.h"

#include <utility>

#include "dtensor/nn/architecture.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

// The nearest multiples of m around n, as a suggestion in an error.
std::string around(int64_t n, int64_t m) {
  const int64_t below = n / m * m;
  if (below == 0) return fmt::format("{}", m);
  return fmt::format("{} or {}", below, below + m);
}

constexpr const char* kOrDefault = ", or 0 for the default";

void check_positive(const char* what, int64_t n, int64_t most,
                    const char* or_what = "") {
  DT_CHECK(n >= 1, "model", "{} is {}; it must be at least 1{}", what, n,
           or_what);
  DT_CHECK(n <= most, "model", "{} is {}; it must be at most {}", what, n,
           most);
}

}  // namespace

double ModelConfig::eps() const {
  return norm_eps > 0 ? norm_eps : architecture(name).norm_eps;
}

int64_t ModelConfig::ffn_size() const {
  if (ffn) return ffn;
  if (architecture(name).matrices() == 2) return 4 * hidden;
  // Three matrices then have about as many numbers as two of 4 * hidden.
  return ((8 * hidden + 2) / 3 + 7) / 8 * 8;
}

bool ModelConfig::is_tied() const {
  return tied.value_or(architecture(name).tied);
}

bool ModelConfig::is_parallel() const {
  return parallel.value_or(architecture(name).parallel);
}

void ModelConfig::validate() const {
  const Architecture& of = architecture(name);
  // The names of the architectures with experts, for errors.
  const std::string with_experts =
      architecture_names([](const Architecture& a) { return a.experts(); });
  // kMost is far above the sizes of real models, and small enough that the
  // product of two sizes and a few small numbers does not overflow. (The
  // product of three sizes is checked below.)
  constexpr int64_t kMost = int64_t{1} << 28;
  check_positive("layers", layers, 100'000);
  check_positive("hidden", hidden, kMost);
  check_positive("heads", heads, kMost);
  check_positive("seq", seq, kMost);
  check_positive("vocab", vocab, kMost);
  if (ffn) check_positive("ffn", ffn, kMost, kOrDefault);
  if (kv_heads) check_positive("kv-heads", kv_heads, kMost, kOrDefault);
  if (head_size) check_positive("the head size", head_size, kMost, kOrDefault);
  DT_CHECK(head_size || hidden % heads == 0, "model",
           "hidden {} is not a multiple of heads {}; write hidden {}", hidden,
           heads, around(hidden, of.rotary ? 2 * heads : heads));
  DT_CHECK(of.grouped || !kv_heads, "model",
           "kv-heads is {}, but a {} has as many kv-heads as heads ({}); leave "
           "kv-heads out",
           kv_heads, name, heads);
  DT_CHECK(heads % kv() == 0, "model",
           "heads {} is not a multiple of kv-heads {}; write a divisor of {} "
           "for kv-heads, such as 1",
           heads, kv_heads, heads);
  DT_CHECK(
      !of.rotary || !head_size || head_size % 2 == 0, "model",
      "{} rotates pairs of numbers, but the head size is {}, which is odd; "
      "write an even head size",
      name, head_size);
  DT_CHECK(!of.rotary || head_dim() % 2 == 0, "model",
           "{} rotates pairs of numbers, but the head size (hidden {} / heads "
           "{}) is {}, which is odd; write hidden {}",
           name, hidden, heads, head_dim(), around(hidden, 2 * heads));
  DT_CHECK(rope.dims % 2 == 0 && rope.dims >= 0 && rope.dims <= head_dim(),
           "model",
           "rope.dims is {}, but numbers are rotated in pairs, and the head "
           "size is {}; write an even number from 0 (for all) to {}",
           rope.dims, head_dim(), head_dim());
  DT_CHECK(window >= 0 && window <= kMost, "model",
           "the window is {}; write a number of tokens of at most {}, or 0 for "
           "no window",
           window, kMost);
  for (const auto& [what, cap] :
       {std::pair("attention_soft_cap", attention_soft_cap),
        std::pair("logit_soft_cap", logit_soft_cap)})
    DT_CHECK(cap >= 0 && std::isfinite(cap), "model",
             "{} is {}; write a positive number, or 0 for no cap", what, cap);
  DT_CHECK(windowed.empty() || std::ssize(windowed) == layers, "model",
           "the size of windowed is {}, but layers is {}; give windowed one "
           "value for each layer, or none",
           windowed.size(), layers);
  for (const auto& [what, n] :
       {std::pair("experts", experts), std::pair("top-k", top_k)})
    DT_CHECK(
        of.experts() || !n, "model",
        "{} is {}, but this model is a {}, which has no experts; leave {} out, "
        "or use a {}",
        what, n, name, what, with_experts);
  if (experts) check_positive("experts", experts, 1'000'000, kOrDefault);
  if (of.experts()) {
    // The bytes of parameters, gradients and optimizer state must not overflow.
    const double numbers = 3.0 * static_cast<double>(layers) *
                           static_cast<double>(expert_count()) *
                           static_cast<double>(ffn_size()) *
                           static_cast<double>(hidden);
    DT_CHECK(numbers < 1e17, "model",
             "{} layers of {} experts, each with three matrices {} x {}, have "
             "{:.3g} parameters; write sizes with fewer than 1e17",
             layers, expert_count(), ffn_size(), hidden, numbers);
  }
  DT_CHECK(!of.experts() ||
               (chosen_experts() >= 1 && chosen_experts() <= expert_count()),
           "model",
           "top-k is {}; write a number from 1 to the number of experts, {}",
           chosen_experts(), expert_count());
  DT_CHECK(of.experts() || router_loss == 0, "model",
           "router_loss is {}, but this model is a {}, which has no router; "
           "set router_loss to 0, or name to {}",
           router_loss, name, with_experts);
  DT_CHECK(
      router_loss >= 0 && router_loss <= 1e300, "model",
      "the weight of the router's loss is {}; write a number from 0 to 1e300",
      router_loss);
  DT_CHECK(is_float(dtype), "model",
           "dtype {} is not a float type; write f32, f64, bf16 or f16, and for "
           "int8 weights load with int8_weights",
           dtensor::name(dtype));
  DT_CHECK(rope.theta > 0 && rope.theta <= 1e300, "model",
           "rope theta is {}; it must be above 0 and at most 1e300",
           rope.theta);
  DT_CHECK(query_scalar >= 0, "model",
           "query_scalar is {}; write a positive number, or 0 for the size of "
           "a head",
           query_scalar);
  DT_CHECK(norm_eps >= 0 && norm_eps < 1, "model",
           "norm eps is {}; it must be at least 0 and below 1", norm_eps);
}

}  // namespace dtensor::nn
