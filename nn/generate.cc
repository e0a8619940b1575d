#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "dtensor/autograd.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/models.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor::nn {
namespace {

// The first index at which the cumulative softmax(logits / temperature) exceeds
// u.
int64_t draw(std::span<const double> logits, double temperature, double u) {
  const int64_t n = std::ssize(logits);
  int64_t likeliest = 0;
  for (int64_t i = 1; i < n; ++i)
    if (logits[static_cast<size_t>(i)] > logits[static_cast<size_t>(likeliest)])
      likeliest = i;
  if (temperature == 0) return likeliest;
  const auto weight = [&](int64_t i) {
    return std::exp((logits[static_cast<size_t>(i)] -
                     logits[static_cast<size_t>(likeliest)]) /
                    temperature);
  };
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += weight(i);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    if ((sum += weight(i)) > u * total) return i;
  return likeliest;  // due to rounding, or NaN logits
}

// The uniform number in [0, 1) for this seed and position.
double uniform_at(uint64_t seed, int64_t position) {
  double u = 0;
  cpu_kernels().run(Stream{},
                    kernels::RandomBox{.type = DType::kF64,
                                       .key = {seed, hash_text("generate")},
                                       .global = {position + 1},
                                       .lo = {position},
                                       .size = {1},
                                       .out = &u,
                                       .out_strides = {1},
                                       .p1 = 1});
  return u;
}

}  // namespace

std::vector<int64_t> generate(const LanguageModel& model,
                              const GenerateOptions& options) {
  const ModelConfig& config = model.config();
  DT_CHECK(!options.prompt.empty(), "generate",
           "the prompt is empty; start with a token, such as the newline 10");
  DT_CHECK(options.temperature >= 0 && options.temperature < 1e300, "generate",
           "temperature is {}; it must be a number of at least 0",
           options.temperature);
  for (int64_t t : options.prompt)
    DT_CHECK(t >= 0 && t < config.vocab, "generate",
             "token {} of the prompt is not in the vocabulary of {}", t,
             config.vocab);
  const NoGrad no_grad;
  std::vector<int64_t> text = options.prompt;
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t n = std::min<int64_t>(std::ssize(text), config.seq);
    // Rounding up to a power of two leaves few shapes, so that layouts are
    // decided only for those. Attention is causal: the padding after n is not
    // seen.
    const int64_t padded =
        std::min(config.seq, static_cast<int64_t>(std::bit_ceil(uint64_t(n))));
    std::vector<int64_t> window(static_cast<size_t>(padded), 0);
    std::copy(text.end() - n, text.end(), window.begin());
    const Mesh& mesh = model.mesh();
    const DistTensor tokens = DistTensor::from_global(
        Tensor::from<int64_t>({1, padded}, window.data()), mesh,
        batch_placements(mesh));
    const DistTensor logits =
        model.head(slice(model.features(tokens), 1, n - 1, n));
    const Tensor row = onto(mesh, logits).full();
    const bool values = row.device().kind() != Device::Kind::kNone;
    text.push_back(values ? draw(row.to_doubles(), options.temperature,
                                 uniform_at(options.seed, i))
                          : 0);
  }
  text.erase(text.begin(), text.begin() + std::ssize(options.prompt));
  return text;
}

}  // namespace dtensor::nn
