// SPDX-License-Identifier: Apache-2.0
// Models against transformers in f64, on one rank and on meshes: logits, loss
// and the gradient of every parameter, or the last hidden state of an encoder.
// The files are described in tests/nn/data/README.md; DTENSOR_MODELS names a
// folder with more of them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "dtensor/autograd.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/nn/architecture.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/ops/grad.h"
#include "dtensor/placement/error.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<double>;

fs::path models() {
  const char* given = std::getenv("DTENSOR_MODELS");
  return given ? given : "tests/nn/data";
}

uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The sketch of tools/golden_sketch.py.
Values sketch(const Values& v) {
  Values s(9, 0);
  for (size_t i = 0; i < v.size(); ++i) {
    for (size_t k = 0; k < 8; ++k)
      s[k] += splitmix64(8 * i + k) >> 63 ? -v[i] : v[i];
    s[8] += v[i] * v[i];
  }
  s[8] = std::sqrt(s[8]);
  return s;
}

// Returns transformers' values for a tensor of our files. Transformers keeps
// the matrices of all experts in two tensors.
Values expected_of(const SafetensorsReader& expected, const std::string& name) {
  if (name == "grad.embed_out.weight" && !expected.contains(name))
    return values(expected.read("grad.lm_head.weight"));
  const std::string moe = ".block_sparse_moe.";
  const size_t at = name.find(moe);
  if (at == std::string::npos || expected.contains(name))
    return values(expected.read(name));
  const std::string layer = name.substr(0, at) + ".mlp.",
                    rest = name.substr(at + moe.size());
  if (rest == "gate.weight") return values(expected.read(layer + rest));
  int64_t e = 0;
  int w = 0;
  EXPECT_EQ(std::sscanf(rest.c_str(), "experts.%ld.w%d.weight", &e, &w), 2);
  const Tensor all = expected.read(
      layer + (w == 2 ? "experts.down_proj" : "experts.gate_up_proj"));
  const Tensor one = all.slice(0, e, e + 1);
  if (w == 2) return values(one);
  const int64_t ffn = all.shape()[1] / 2;
  return values(one.slice(1, w == 1 ? 0 : ffn, w == 1 ? ffn : 2 * ffn));
}

// Compares `got` with the tensor of that name, or its sketch with the sketch.
void compare(const SafetensorsReader& expected, const std::string& name,
             Values got, double tolerance, const std::string& where) {
  std::string as = name;
  if (expected.contains(as + ".sketch")) {
    as += ".sketch";
    got = sketch(got);
  }
  const Values want = expected_of(expected, as);
  ASSERT_EQ(got.size(), want.size()) << name;
  double scale = 0;
  for (double w : want) scale = std::max(scale, std::abs(w));
  EXPECT_GT(scale, 0) << name;
  // The gradient of a bias of keys is 0, except for rounding.
  scale = std::max(scale, 1e-6);
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * scale)
        << where << " " << as << " at " << i;
}

void check_model(const fs::path& dir, const std::string& mesh) {
  const fs::path out =
      fs::path(::testing::TempDir()) /
      ("goldens_" + std::to_string(::getpid()) + dir.filename().string());
  const std::string where = dir.string() + " on " + mesh;
  const Architecture& of =
      architecture(read_config((dir / "config.json").string()).name);
  const bool encoder = of.head_kind == Architecture::Head::kNone;
  // For the files of that folder, transformers has computed RMS norms, rotary
  // tables and softmax in f32.
  const double tolerance = std::getenv("DTENSOR_MODELS") ? 1e-6 : 1e-10;
  Values logits;
  double loss = 0;
  on_mesh<int>(mesh, [&](const Mesh& m) {
    const LoadOptions options{.dtype = DType::kF64};
    const auto model = from_pretrained(dir.string(), m, options);
    const SafetensorsReader expected(dir.string() + "/expected.safetensors");
    const Tensor ids = expected.read("input_ids");
    // The target of token t is token t + 1; the last token has none.
    std::vector<int64_t> next(static_cast<size_t>(ids.numel()), -100);
    const int64_t s = ids.shape()[1];
    for (int64_t i = 0; i + 1 < ids.numel(); ++i)
      if (i % s != s - 1) next[static_cast<size_t>(i)] = ids.integer_at(i + 1);
    const auto spread = [&](const Tensor& t) {
      return DistTensor::from_global(t, m, batch_layout(m, t.shape()));
    };
    const DistTensor tokens = spread(ids);
    const Values l = values(encoder ? onto(m, model->features(tokens))
                                    : model->logits(tokens));
    const bool first = RankContext::current().world_rank == 0;
    if (first) logits = l;
    if (encoder) return 0;
    const DistTensor mean = model->loss(
        tokens, spread(Tensor::from<int64_t>(ids.shape(), next.data())));
    const double value = mean.item();
    const auto grads = grad(mean, model->parameters());
    // Saves the gradients as if they were a model, to have them in the file's
    // form.
    const auto as_saved = from_pretrained(dir.string(), m, options);
    for (size_t i = 0; i < grads.size(); ++i)
      assign(as_saved->parameters()[i], grads[i]);
    save_pretrained(*as_saved, out.string());
    if (first) loss = value;
    return 0;
  });
  on_mesh<int>("a=1", [&](const Mesh&) {
    const SafetensorsReader expected(dir.string() + "/expected.safetensors");
    compare(expected, encoder ? "last_hidden_state" : "logits", logits,
            tolerance, where);
    if (encoder) return 0;
    EXPECT_NEAR(loss, expected.read("loss").at(0), tolerance) << where;
    const SafetensorsReader grads((out / "model.safetensors").string());
    for (const TensorInfo& t : grads.tensors())
      compare(expected, "grad." + t.name, values(grads.read(t.name)), tolerance,
              where);
    return 0;
  });
  fs::remove_all(out);
}

TEST(Goldens, LogitsLossAndEveryGradient) {
  int compared = 0;
  for (const auto& entry : fs::directory_iterator(models())) {
    if (!fs::exists(entry.path() / "expected.safetensors")) continue;
    ++compared;
    for (const char* mesh :
         {"dp=1", "tp=2", "dp=2,tp=3", "tp=5", "tp=7", "pp=2", "cp=2"})
      check_model(entry.path(), mesh);
    const std::string config = (entry.path() / "config.json").string();
    if (architecture(read_config(config).name).experts())
      for (const char* mesh : {"ep=2", "ep=3", "ep=2,tp=2", "dp=2,ep=3"})
        check_model(entry.path(), mesh);
  }
  EXPECT_GE(compared, std::getenv("DTENSOR_MODELS") ? 1 : 14);
}

}  // namespace
}  // namespace dtensor::nn
