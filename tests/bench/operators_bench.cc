// SPDX-License-Identifier: Apache-2.0
// Times single operators on one rank for operators_bench.py, which times
// torch's in turn:
//
//   bazel build -c opt //tests/bench:operators_bench
//   python3 tests/bench/operators_bench.py
//   bazel-bin/tests/bench/operators_bench
//
// Reads the name of a case from each line of its standard input, and answers
// with the processor seconds that one call took. With --list it prints all
// names.
#include <cstdint>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "tests/models/models.h"

namespace dtensor {
namespace {

using Call = std::function<void()>;

// Inputs, which are the same in operators_bench.py.
struct Inputs {
  Mesh mesh;
  DistTensor x(const Shape& s, DType t = DType::kF32) const {
    return cast(uniform(s, mesh, {}, DType::kF32, {}, -2, 2), t);
  }
  DistTensor positive(const Shape& s) const {
    return uniform(s, mesh, {}, DType::kF32, {}, 0.1, 2);
  }
  DistTensor ids(const Shape& s, int64_t n) const {
    return randint(0, n, s, mesh);
  }
};

using Make = std::function<Call(const Inputs&)>;
using Cases = std::map<std::string, Make>;

// Cases of a function of one and of two inputs.
using One = DistTensor (*)(const DistTensor&);
using Two = DistTensor (*)(const DistTensor&, const DistTensor&);
Make one(One f, const Shape& s = {1024, 1024}, DType t = DType::kF32) {
  return
      [=](const Inputs& in) -> Call { return [f, x = in.x(s, t)] { f(x); }; };
}
Make two(Two f, const Shape& a = {1024, 1024}, const Shape& b = {1024, 1024},
         DType t = DType::kF32) {
  return [=](const Inputs& in) -> Call {
    return [f, x = in.x(a, t), y = in.x(b, t)] { f(x, y); };
  };
}
// A case of the gradient of f alone.
Make slope(One f, const Shape& s = {1024, 1024}) {
  return [=](const Inputs& in) -> Call {
    DistTensor x = in.x(s);
    x.set_requires_grad();
    const DistTensor y = f(x), dy = in.x(y.shape());
    return [x, y, dy] { grad(y, {x}, {.cotangent = dy}); };
  };
}

void add_pointwise(Cases& c) {
  const DType b = DType::kBF16;
  const Shape big{1024, 1024};
#define DT_ONE(name) c[#name] = one([](const DistTensor& x) { return name(x); })
  DT_ONE(abs), DT_ONE(neg), DT_ONE(square), DT_ONE(exp), DT_ONE(expm1);
  DT_ONE(sin), DT_ONE(cos), DT_ONE(tanh), DT_ONE(sigmoid), DT_ONE(erf),
      DT_ONE(relu);
  DT_ONE(silu), DT_ONE(gelu), DT_ONE(gelu_tanh), DT_ONE(softplus);
  DT_ONE(floor), DT_ONE(round), DT_ONE(sign), DT_ONE(clone);
#undef DT_ONE
#define DT_POSITIVE(name)                       \
  c[#name] = [=](const Inputs& in) -> Call {    \
    return [x = in.positive(big)] { name(x); }; \
  }
  DT_POSITIVE(sqrt), DT_POSITIVE(rsqrt), DT_POSITIVE(log), DT_POSITIVE(log1p);
#undef DT_POSITIVE
  c["pow"] = [=](const Inputs& in) -> Call {
    return [x = in.positive(big), y = in.x(big)] { pow(x, y); };
  };
#define DT_TWO(name) \
  c[#name] =         \
      two([](const DistTensor& x, const DistTensor& y) { return name(x, y); })
  DT_TWO(add), DT_TWO(sub), DT_TWO(mul), DT_TWO(div), DT_TWO(maximum);
  DT_TWO(atan2), DT_TWO(lt), DT_TWO(eq);
#undef DT_TWO
  const Two plus = [](const DistTensor& x, const DistTensor& y) {
    return x + y;
  };
  const Two times = [](const DistTensor& x, const DistTensor& y) {
    return x * y;
  };
  c["add number"] = one([](const DistTensor& x) { return x + 1.5; });
  c["clamp"] = one([](const DistTensor& x) { return clamp(x, -1, 1); });
  c["clamp from below"] =
      one([](const DistTensor& x) { return clamp_min(x, 0.5); });
  c["lerp"] = two([](const DistTensor& x, const DistTensor& y) {
    return lerp(x, y, 0.25);
  });
  c["where"] = [=](const Inputs& in) -> Call {
    return [p = lt(in.x(big), in.x(big)), x = in.x(big), y = in.x(big)] {
      where(p, x, y);
    };
  };
  c["to bf16"] = one([](const DistTensor& x) { return cast(x, DType::kBF16); });
  c["to f32"] =
      one([](const DistTensor& x) { return cast(x, DType::kF32); }, big, b);
  c["add bf16"] = two(plus, big, big, b);
  c["gelu bf16"] = one([](const DistTensor& x) { return gelu(x); }, big, b);
  c["add a row"] = two(plus, big, {1024});
  c["add a column"] = two(plus, big, {1024, 1});
  c["[65536,4] + [4]"] = two(plus, {65536, 4}, {4});
  c["[65536,16] + [16]"] = two(plus, {65536, 16}, {16});
  c["[16384,64] + [64]"] = two(plus, {16384, 64}, {64});
  c["[65536,4] * [65536,1]"] = two(times, {65536, 4}, {65536, 1});
  c["[8,64,56,56] + [64,1,1]"] = two(plus, {8, 64, 56, 56}, {64, 1, 1});
}

void add_reductions(Cases& c) {
#define DT_REDUCE(name)                                                       \
  c[#name " of all"] = one([](const DistTensor& x) { return name(x); });      \
  c[#name " over 0"] = one([](const DistTensor& x) { return name(x, {0}); }); \
  c[#name " over 1"] = one([](const DistTensor& x) { return name(x, {1}); })
  DT_REDUCE(sum);
  DT_REDUCE(mean);
  DT_REDUCE(amax);
  DT_REDUCE(var);
#undef DT_REDUCE
  const One over0 = [](const DistTensor& x) { return sum(x, {0}); };
  c["[65536,4] sum over 0"] = one(over0, {65536, 4});
  c["[65536,4] sum over 0, gradient"] = slope(over0, {65536, 4});
  c["[262144,4] sum over 1"] =
      one([](const DistTensor& x) { return sum(x, {1}); }, {262144, 4});
  c["logsumexp over 1"] =
      one([](const DistTensor& x) { return logsumexp(x, {1}); });
  c["argmax over 1"] = one([](const DistTensor& x) { return argmax(x, 1); });
  c["cumsum over 0"] = one([](const DistTensor& x) { return cumsum(x, 0); });
  c["cumsum over 1"] = one([](const DistTensor& x) { return cumsum(x, 1); });
  c["cumprod over 1"] = one([](const DistTensor& x) { return cumprod(x, 1); });
}

void add_rows(Cases& c) {
  const One last = [](const DistTensor& x) { return softmax(x, -1); };
  c["softmax"] = one(last);
  c["softmax, gradient"] = slope(last);
  c["log_softmax"] =
      one([](const DistTensor& x) { return log_softmax(x, -1); });
  c["softmax over channels"] =
      one([](const DistTensor& x) { return softmax(x, 1); }, {8, 32, 64, 64});
  c["softmax over the middle"] =
      one([](const DistTensor& x) { return softmax(x, 1); }, {64, 256, 64});
  const auto norm = [](bool layer, bool back) -> Make {
    return [=](const Inputs& in) -> Call {
      DistTensor x = in.x({1024, 1024}), gamma = in.x({1024}),
                 beta = in.x({1024});
      const auto f = [=] {
        return layer ? layer_norm(x, gamma, beta) : rms_norm(x, gamma);
      };
      if (!back) return [f] { f(); };
      x.set_requires_grad(), gamma.set_requires_grad();
      beta.set_requires_grad();
      const DistTensor y = f(), dy = in.x(y.shape());
      std::vector<DistTensor> to{x, gamma};
      if (layer) to.push_back(beta);
      return [=] { grad(y, to, {.cotangent = dy}); };
    };
  };
  c["layer_norm"] = norm(true, false);
  c["layer_norm, gradient"] = norm(true, true);
  c["rms_norm"] = norm(false, false);
  c["rms_norm, gradient"] = norm(false, true);
  c["cross_entropy"] = [](const Inputs& in) -> Call {
    return [x = in.x({1024, 1024}), t = in.ids({1024}, 1024)] {
      cross_entropy(x, t);
    };
  };
}

void add_data(Cases& c) {
  const Shape big{1024, 1024};
  c["transpose"] = one([](const DistTensor& x) { return clone(transpose(x)); });
  c["cat"] = two([](const DistTensor& x, const DistTensor& y) {
    return cat({x, y}, 1);
  });
  c["flip"] = one([](const DistTensor& x) { return flip(x, {1}); });
  c["roll"] = one([](const DistTensor& x) { return roll(x, {3}, {1}); });
  c["pad"] = one([](const DistTensor& x) { return pad(x, {1, 1}); });
  c["tril"] = one([](const DistTensor& x) { return tril(x); });
  c["sort"] = one([](const DistTensor& x) { return sort(x).values; });
  c["topk"] = one([](const DistTensor& x) { return topk(x, 8).values; });
  c["one_hot"] = [](const Inputs& in) -> Call {
    return [t = in.ids({1024}, 1024)] { one_hot(t, 1024); };
  };
  c["index_select"] = [=](const Inputs& in) -> Call {
    return [x = in.x(big), t = in.ids({1024}, 1024)] { index_select(x, 0, t); };
  };
  c["gather"] = [=](const Inputs& in) -> Call {
    return [x = in.x(big), t = in.ids(big, 1024)] { gather(x, 1, t); };
  };
  c["scatter_add"] = [=](const Inputs& in) -> Call {
    return [x = in.x(big), y = in.x(big), t = in.ids(big, 1024)] {
      scatter_add(x, 1, t, y);
    };
  };
  c["embedding"] = [](const Inputs& in) -> Call {
    return
        [x = in.x({8192, 256}), t = in.ids({4096}, 8192)] { embedding(x, t); };
  };
  c["embedding, gradient"] = [](const Inputs& in) -> Call {
    DistTensor x = in.x({8192, 256});
    x.set_requires_grad();
    const DistTensor y = embedding(x, in.ids({4096}, 8192)),
                     dy = in.x(y.shape());
    return [=] { grad(y, {x}, {.cotangent = dy}); };
  };
  c["einsum bchw,bchw->bc"] = two(
      [](const DistTensor& x, const DistTensor& y) {
        return einsum("bchw,bchw->bc", {x, y});
      },
      {8, 32, 64, 64}, {8, 32, 64, 64});
  c["matmul"] =
      two([](const DistTensor& x, const DistTensor& y) { return matmul(x, y); },
          {512, 512}, {512, 512});
  c["attention"] = [](const Inputs& in) -> Call {
    const Shape s{2, 256, 8, 64};
    return [q = in.x(s), k = in.x(s), v = in.x(s)] {
      attention(q, k, v, {.causal = true});
    };
  };
  c["randn"] = [=](const Inputs& in) -> Call {
    return [=, mesh = in.mesh] { randn(big, mesh); };
  };
  c["rand"] = [=](const Inputs& in) -> Call {
    return [=, mesh = in.mesh] { uniform(big, mesh); };
  };
}

// A convolution of a real network.
struct Conv {
  const char* name;
  Shape x, weight;
  ConvOptions options = {};
  bool transposed = false;
};
const std::vector<Conv>& convolutions() {
  static const std::vector<Conv> list = {
      {"resnet stem", {2, 3, 224, 224}, {64, 3, 7, 7}, {{2}, 3}},
      {"resnet 1x1", {2, 64, 56, 56}, {256, 64, 1, 1}},
      {"resnet 3x3 of 64", {2, 64, 56, 56}, {64, 64, 3, 3}, {{1}, 1}},
      {"resnet 3x3 by 2", {2, 128, 56, 56}, {128, 128, 3, 3}, {{2}, 1}},
      {"resnet 1x1 by 2", {2, 256, 56, 56}, {512, 256, 1, 1}, {{2}}},
      {"resnet 3x3 of 256", {2, 256, 14, 14}, {256, 256, 3, 3}, {{1}, 1}},
      {"resnet 3x3 of 512", {2, 512, 7, 7}, {512, 512, 3, 3}, {{1}, 1}},
      {"mobilenet depthwise",
       {2, 96, 56, 56},
       {96, 1, 3, 3},
       {{1}, 1, {1}, 96}},
      {"resnext groups", {2, 128, 28, 28}, {128, 4, 3, 3}, {{1}, 1, {1}, 32}},
      {"deeplab dilated", {1, 256, 28, 28}, {256, 256, 3, 3}, {{1}, 2, {2}}},
      {"diffusion 3x3", {1, 320, 32, 32}, {320, 320, 3, 3}, {{1}, 1}},
      {"vit patches", {2, 3, 224, 224}, {768, 3, 16, 16}, {{16}}},
      {"whisper conv1d", {1, 80, 3000}, {384, 80, 3}, {{1}, 1}},
      {"wav2vec conv1d by 2", {1, 512, 1600}, {512, 512, 3}, {{2}}},
      {"video conv3d", {1, 16, 8, 28, 28}, {32, 16, 3, 3, 3}, {{1}, 1}},
      {"unet up 2x2", {2, 64, 28, 28}, {64, 32, 2, 2}, {{2}}, true},
  };
  return list;
}

void add_windows(Cases& c) {
  for (const Conv& conv : convolutions()) {
    const auto f = [conv](const DistTensor& x, const DistTensor& w) {
      if (conv.transposed) return conv_transpose2d(x, w, {}, conv.options);
      return x.ndim() == 3   ? conv1d(x, w, {}, conv.options)
             : x.ndim() == 4 ? conv2d(x, w, {}, conv.options)
                             : conv3d(x, w, {}, conv.options);
    };
    c[conv.name] = [=](const Inputs& in) -> Call {
      return [f, x = in.x(conv.x), w = in.x(conv.weight)] { f(x, w); };
    };
    c[std::string(conv.name) + ", gradient"] = [=](const Inputs& in) -> Call {
      DistTensor x = in.x(conv.x), w = in.x(conv.weight);
      x.set_requires_grad(), w.set_requires_grad();
      const DistTensor y = f(x, w), dy = in.x(y.shape());
      return [=] { grad(y, {x, w}, {.cotangent = dy}); };
    };
  }
  const Shape image{2, 64, 112, 112};
  const One largest = [](const DistTensor& x) {
    return max_pool2d(x, {3}, {.stride = {2}, .padding = {1}});
  };
  const One average = [](const DistTensor& x) { return avg_pool2d(x, {2}); };
  c["max_pool2d"] = one(largest, image);
  c["max_pool2d, gradient"] = slope(largest, image);
  c["avg_pool2d"] = one(average, image);
  c["avg_pool2d, gradient"] = slope(average, image);
  const Shape small{2, 64, 56, 56};
  const One linearly = [](const DistTensor& x) {
    return interpolate(x,
                       {.scale_factor = {2}, .mode = Interpolation::kLinear});
  };
  c["upsample nearest"] = one(
      [](const DistTensor& x) {
        return interpolate(
            x, {.scale_factor = {2}, .mode = Interpolation::kNearest});
      },
      small);
  c["upsample bilinear"] = one(linearly, small);
  c["upsample bilinear, gradient"] = slope(linearly, small);
  c["upsample bicubic"] = one(
      [](const DistTensor& x) {
        return interpolate(
            x, {.scale_factor = {2}, .mode = Interpolation::kCubic});
      },
      small);
  c["grid_sample"] =
      two([](const DistTensor& x,
             const DistTensor& grid) { return grid_sample(x, grid); },
          small, {2, 56, 56, 2});
  c["unfold"] = one([](const DistTensor& x) { return unfold(x, {3}); }, small);
  c["fold"] = one([](const DistTensor& x) { return fold(x, {56}, {3}); },
                  {2, 16 * 9, 54 * 54});
  c["pad reflect"] = one(
      [](const DistTensor& x) {
        return pad(x, {3, 3, 3, 3}, PadMode::kReflect);
      },
      image);
  const One grouped = [](const DistTensor& x) { return group_norm(x, 32); };
  const One batched = [](const DistTensor& x) {
    return batch_norm(x, {}, {}, {}, {}, true).y;
  };
  c["group_norm"] = one(grouped, image);
  c["group_norm, gradient"] = slope(grouped, image);
  c["batch_norm"] = one(batched, image);
  c["batch_norm, gradient"] = slope(batched, image);
  c["pixel_shuffle"] =
      one([](const DistTensor& x) { return pixel_shuffle(x, 2); }, image);
}

// Operators of statistics, selections and linear algebra.
void add_analysis(Cases& c) {
  const Shape big{1024, 1024}, line{1 << 20}, matrix{256, 256};
#define DT_ONE(name, shape, expression) \
  c[name] = one([](const DistTensor& x) { return expression; }, shape)
  DT_ONE("erfinv", big, erfinv(x)), DT_ONE("lgamma", big, lgamma(x));
  DT_ONE("digamma", big, digamma(x)), DT_ONE("i0", big, i0(x));
  DT_ONE("logcumsumexp over 1", big, logcumsumexp(x, 1));
  DT_ONE("prod over 1", big, prod(x, {1}));
  DT_ONE("max over 1", big, max(x, 1).values);
  DT_ONE("kthvalue", big, kthvalue(x, 500).values);
  DT_ONE("median", big, median(x, 1).values);
  DT_ONE("quantile", big, quantile(x, 0.9, 1));
  DT_ONE("histc", line, histc(x, 100, -2, 2));
  DT_ONE("unique", line, unique(round(x * 100)).values);
  DT_ONE("nonzero", big, nonzero(relu(x)));
  DT_ONE("diff", big, diff(x)), DT_ONE("cov", matrix, cov(x));
  DT_ONE("diagonal", big, clone(diagonal(x)));
  DT_ONE("rot90", big, clone(rot90(x)));
  DT_ONE("bernoulli", big, bernoulli(abs(x) * 0.5));
  DT_ONE("normal", big, normal(x));
  DT_ONE("normalize", big, normalize(x));
  DT_ONE("qr", matrix, qr(x).q), DT_ONE("svd", matrix, svd(x).s);
  DT_ONE("eigh", matrix, eigh(x + transpose(x, 0, 1)).values);
  DT_ONE("lu, det", matrix, det(x)), DT_ONE("inv", matrix, inv(x));
  DT_ONE("matrix_exp", matrix, matrix_exp(x));
#undef DT_ONE
#define DT_TWO(name, a, b, expression)                                         \
  c[name] =                                                                    \
      two([](const DistTensor& x, const DistTensor& y) { return expression; }, \
          a, b)
  const Shape points{1024, 32};
  DT_TWO("solve", matrix, matrix, solve(x, y));
  DT_TWO("solve_triangular", matrix, matrix, solve_triangular(x, y, false));
  DT_TWO("cdist", points, points, cdist(x, y));
  DT_TWO("kron", (Shape{32, 32}), (Shape{32, 32}), kron(x, y));
  DT_TWO("masked_select", big, big, masked_select(x, gt(y, 0)));
  DT_TWO("mse_loss", big, big, mse_loss(x, y));
  DT_TWO("kl_div", big, big, kl_div(x, abs(y)));
  DT_TWO("bce with logits", big, big,
         binary_cross_entropy_with_logits(x, abs(y) * 0.5));
  DT_TWO("cosine_similarity", big, big, cosine_similarity(x, y));
#undef DT_TWO
  c["cholesky"] = [=](const Inputs& in) -> Call {
    const DistTensor x = in.x(matrix);
    return [a = matmul(x, transpose(x, 0, 1)) + eye(256, 256, in.mesh)] {
      cholesky(a);
    };
  };
  c["searchsorted"] = [=](const Inputs& in) -> Call {
    return [s = sort(in.x({4096}), 0).values, x = in.x(line)] {
      searchsorted(s, x);
    };
  };
  c["scatter_reduce amax"] = [=](const Inputs& in) -> Call {
    return [x = in.x(big), y = in.x(big), i = in.ids(big, 1024)] {
      scatter_reduce(x, 1, i, y, IndexReduction::kAmax);
    };
  };
  c["index_put"] = [=](const Inputs& in) -> Call {
    return [x = in.x(big), y = in.x(big), i = in.ids({1024}, 1024)] {
      index_put(x, {i}, y);
    };
  };
  c["take_along_dim"] = [=](const Inputs& in) -> Call {
    return [x = in.x(big), i = in.ids(big, 1024)] { take_along_dim(x, i, 1); };
  };
  c["embedding_bag"] = [=](const Inputs& in) -> Call {
    return [w = in.x({8192, 64}), i = in.ids({2048, 8}, 8192)] {
      embedding_bag(w, i);
    };
  };
  c["ctc_loss"] = [=](const Inputs& in) -> Call {
    return [x = log_softmax(in.x({128, 16, 64}), -1),
            t = randint(1, 64, {16, 32}, in.mesh),
            n = full({16}, 128, in.mesh, {}, DType::kI64),
            m = full({16}, 32, in.mesh, {}, DType::kI64)] {
      ctc_loss(x, t, n, m);
    };
  };
}

// A case of a model's loss and its gradients.
Make step(DType type, std::function<DistTensor(testing::Parameters&)> model) {
  return [=](const Inputs& in) -> Call {
    auto p = std::make_shared<testing::Parameters>(in.mesh, type);
    model(*p);
    return [=] {
      std::vector<DistTensor> to;
      for (const NamedTensor& t : p->all()) to.push_back(t.tensor);
      grad(model(*p), to);
    };
  };
}

void add_models(Cases& c) {
  c["resnet50 step"] = step(DType::kF32, [](testing::Parameters& p) {
    return testing::resnet(p, {4, 3, 224, 224}, 64);
  });
  c["unet step"] = step(DType::kF32, [](testing::Parameters& p) {
    return testing::unet(p, {2, 3, 128, 128}, 32);
  });
  // These are small: they show what a call costs.
  c["dlrm step"] = step(DType::kF64, testing::dlrm);
  c["ctc step"] = step(DType::kF64, testing::ctc);
  c["diffusion transformer step"] = step(DType::kF64, testing::dit);
  c["gaussian process step"] = step(DType::kF64, testing::gaussian_process);
}

double seconds(const Call& call) {
  for (int64_t n = 1;; n *= 2) {
    const std::clock_t start = std::clock();
    for (int64_t i = 0; i < n; ++i) call();
    const double took =
        static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if (took > 0.02) return took / static_cast<double>(n);
  }
}

int main(int argc, char** argv) {
  Program program({.about = "Times operators on one rank.", .mesh = "x=1"});
  bool list = false;
  program.add("--list", &list, "print the names of all cases");
  return program.main(argc, argv, nullptr, [&] {
    Cases cases;
    add_pointwise(cases), add_reductions(cases), add_rows(cases);
    add_data(cases), add_windows(cases), add_analysis(cases);
    add_models(cases);
    if (list) {
      for (const auto& [name, make] : cases) std::cout << name << '\n';
      return;
    }
    run(program.run_options(), [&](Runtime& rt) {
      const Inputs in{rt.mesh()};
      std::map<std::string, Call> made;
      for (std::string name; std::getline(std::cin, name);) {
        if (!made.count(name)) made = {{name, cases.at(name)(in)}};
        std::cout << seconds(made.at(name)) << std::endl;
      }
    });
  });
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) { return dtensor::main(argc, argv); }
