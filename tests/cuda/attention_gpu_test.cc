// SPDX-License-Identifier: Apache-2.0
// Compares attention through cuDNN, on a GPU, with the CPU's in f64.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/ops/cuda_plugin/launch.cuh"
#include "dtensor/ops/kernels/cuda/attention.h"
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/error.h"

namespace dtensor {

// Replaces the plugin's functions, for one device and without other ranks.
cudaStream_t cuda::enter(Stream s) {
  check(cudaSetDevice(0), "enter");
  return static_cast<cudaStream_t>(s.handle);
}
void cuda::check(cudaError_t e, const char* what) {
  DT_CHECK(e == cudaSuccess, what, "CUDA says: {}", cudaGetErrorString(e));
}
void* cuda::allocate_scratch(cudaStream_t s, int64_t bytes) {
  void* data = nullptr;
  check(cudaMallocAsync(&data, static_cast<size_t>(bytes), s), "scratch");
  return data;
}
void cuda::release(void* data, cudaStream_t s) noexcept {
  EXPECT_EQ(cudaFreeAsync(data, s), cudaSuccess);
}

namespace kernels::cuda {
namespace {

using dtensor::cuda::check;

template <class T>
class OnGpu {
 public:
  explicit OnGpu(const std::vector<T>& x) : n_(x.size()) {
    check(cudaMalloc(&data_, bytes()), "cudaMalloc");
    check(cudaMemcpy(data_, x.data(), bytes(), cudaMemcpyHostToDevice), "copy");
  }
  // Fills the memory with bytes that no kernel writes.
  explicit OnGpu(size_t n) : n_(n) {
    check(cudaMalloc(&data_, bytes()), "cudaMalloc");
    check(cudaMemset(data_, 0xff, bytes()), "memset");
  }
  ~OnGpu() { cudaFree(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  void* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> x(n_);
    check(cudaMemcpy(x.data(), data_, bytes(), cudaMemcpyDeviceToHost), "copy");
    return x;
  }

 private:
  size_t bytes() const { return n_ * sizeof(T); }
  size_t n_;
  void* data_ = nullptr;
};

using Values = std::vector<bf16>;

Values random(int64_t n, unsigned seed, float low, float high) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> d(low, high);
  Values x(static_cast<size_t>(n));
  for (bf16& v : x) v = bf16(d(rng));
  return x;
}
std::vector<double> doubles(const Values& x) {
  std::vector<double> r;
  for (bf16 v : x) r.push_back(static_cast<float>(v));
  return r;
}
std::vector<double> doubles(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

enum class Layout { kBshd, kBhsd };

std::array<int64_t, 4> strides_of(Layout l, int64_t h, int64_t s, int64_t d) {
  if (l == Layout::kBshd) return {h * s * d, d, h * d, 1};
  return {h * s * d, s * d, d, 1};
}

struct Case {
  int64_t b, hq, hkv, s, t, d;
  bool causal = false;
  int64_t offset = 0;
  bool backward = true;  // by cuDNN
  // Added to all scores.
  float shift = 0;
  Layout layout = Layout::kBshd;
};

std::string text(const Case& c) {
  std::string r;
  for (int64_t n : {c.b, c.hq, c.hkv, c.s, c.t, c.d, c.offset})
    r += std::to_string(n) + " ";
  return r + (c.causal ? "causal " : "") + std::to_string(c.shift);
}

struct Sizes {
  explicit Sizes(const Case& c)
      : q(c.b * c.hq * c.s * c.d),
        k(c.b * c.hkv * c.t * c.d),
        lse(c.b * c.hq * c.s) {}
  int64_t q, k, lse;
};

void set_sizes(const Case& c, AttentionBackward& g) {
  Attention& a = g.of;
  a.b = c.b, a.hq = c.hq, a.hkv = c.hkv, a.s = c.s, a.t = c.t, a.d = c.d;
  a.causal = c.causal;
  a.query_offset = c.offset;
  a.scale = 1 / std::sqrt(static_cast<double>(c.d));
  a.q.strides = g.out.strides = g.dout.strides = g.dq.strides =
      strides_of(c.layout, c.hq, c.s, c.d);
  a.k.strides = a.v.strides = g.dk.strides = g.dv.strides =
      strides_of(c.layout, c.hkv, c.t, c.d);
}

// The tolerance is relative to the largest expected value.
void expect_near(const char* what, const std::vector<double>& got,
                 const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (double w : want) largest = std::max(largest, std::fabs(w));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::fabs(got[i] - want[i]), tolerance * largest)
        << what << "[" << i << "] is " << got[i] << ", not " << want[i];
}

struct Inputs {
  explicit Inputs(const Case& c)
      : q(random(Sizes(c).q, 1, -2, 2)),
        k(random(Sizes(c).k, 2, -2, 2)),
        v(random(Sizes(c).k, 3, -1, 1)),
        dout(random(Sizes(c).q, 4, -1, 1)) {
    if (c.shift == 0) return;
    // The first feature of each row adds the shift to all its scores.
    for (size_t i = 0; i < q.size(); i += static_cast<size_t>(c.d))
      q[i] = bf16(c.shift * std::sqrt(static_cast<float>(c.d)));
    for (size_t i = 0; i < k.size(); i += static_cast<size_t>(c.d))
      k[i] = bf16(1.0f);
  }
  Values q, k, v, dout;
};

struct Results {
  Values out;
  std::vector<float> lse;
  Values dq, dk, dv;
};

bool same_bits(const Values& a, const Values& b) {
  return std::ranges::equal(a, b, {}, &bf16::bits, &bf16::bits);
}

class AttentionGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cudnn_attention_library().starts_with("cuDNN"))
      GTEST_SKIP() << cudnn_attention_library();
    int devices = 0;
    const cudaError_t e = cudaGetDeviceCount(&devices);
    if (e != cudaSuccess) GTEST_SKIP() << "no GPU: " << cudaGetErrorString(e);
    check(cudaStreamCreate(&stream_), "stream");
    check(
        cudaDeviceGetAttribute(&compute_, cudaDevAttrComputeCapabilityMajor, 0),
        "attribute");
  }
  void TearDown() override {
    if (stream_) cudaStreamDestroy(stream_);
    options = CudaOptions();
  }

  // Runs both passes. Expects that cuDNN takes the second exactly if
  // c.backward.
  Results run(const Case& c, const Inputs& in) {
    const Sizes n(c);
    AttentionBackward g;
    Attention& a = g.of;
    set_sizes(c, g);
    const OnGpu<bf16> q(in.q), k(in.k), v(in.v), dout(in.dout);
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    OnGpu<bf16> out(size(n.q)), dq(size(n.q)), dk(size(n.k)), dv(size(n.k));
    OnGpu<float> lse(size(n.lse));
    a.q.data = q.data(), a.k.data = k.data(), a.v.data = v.data();
    g.out.data = out.data(), g.dout.data = dout.data(), g.lse = lse.data();
    g.dq.data = dq.data(), g.dk.data = dk.data(), g.dv.data = dv.data();
    a.type = DType::kBF16;
    const Stream s{stream_};
    EXPECT_TRUE(cudnn_attention(
        s,
        AttentionForward{
            .of = a, .out = {out.data(), g.out.strides}, .lse = lse.data()}));
    EXPECT_EQ(cudnn_attention(s, g), c.backward);
    check(cudaStreamSynchronize(stream_), "synchronize");
    return {out.read(), lse.read(), dq.read(), dk.read(), dv.read()};
  }

  void compare(const Case& c) {
    SCOPED_TRACE(text(c));
    const Inputs in(c);
    const Results got = run(c, in);
    if (HasFailure()) return;

    const Sizes n(c);
    AttentionBackward g;
    Attention& a = g.of;
    set_sizes(c, g);
    const std::vector<double> q = doubles(in.q), k = doubles(in.k),
                              v = doubles(in.v), dout = doubles(in.dout);
    const auto room = [](int64_t n) {
      return std::vector<double>(static_cast<size_t>(n));
    };
    std::vector<double> out = room(n.q), lse = room(n.lse), dq = room(n.q),
                        dk = room(n.k), dv = room(n.k);
    a.q.data = q.data(), a.k.data = k.data(), a.v.data = v.data();
    g.out.data = out.data(), g.dout.data = dout.data(), g.lse = lse.data();
    g.dq.data = dq.data(), g.dk.data = dk.data(), g.dv.data = dv.data();
    a.type = DType::kF64;
    cpu_kernels().run({}, AttentionForward{.of = a,
                                           .out = {out.data(), g.out.strides},
                                           .lse = lse.data()});
    expect_near("out", doubles(got.out), out, 2e-2);
    expect_near("lse", doubles(got.lse), lse, 1e-4);
    if (!c.backward || HasFailure()) return;
    cpu_kernels().run({}, g);
    expect_near("dq", doubles(got.dq), dq, 2e-2);
    expect_near("dk", doubles(got.dk), dk, 2e-2);
    expect_near("dv", doubles(got.dv), dv, 2e-2);
  }

  cudaStream_t stream_ = nullptr;
  int compute_ = 0;
};

TEST_F(AttentionGpuTest, IsTheCpus) {
  const bool hopper = compute_ == 9;
  const Case cases[] = {
      {2, 8, 2, 256, 256, 64, true},
      {1, 4, 4, 512, 512, 128, true},
      {2, 4, 1, 200, 200, 64, true},
      {1, 2, 2, 192, 192, 64, true},
      {2, 4, 4, 256, 384, 64, false},
      {3, 4, 4, 197, 197, 64, false},
      {1, 6, 2, 333, 211, 72, false},
      {1, 2, 2, 192, 192, 64, false, 0, !hopper},
      {1, 4, 4, 300, 100, 32, true},
      {2, 4, 4, 128, 384, 64, true, 256},
      {2, 4, 2, 130, 384, 64, true, 254},
      {2, 8, 4, 1, 300, 64, true, 299, false},
      {2, 8, 4, 1, 300, 64, false, 0, false},
      {2, 8, 2, 256, 256, 64, true, 0, true, 0, Layout::kBhsd},
      {2, 4, 2, 192, 320, 64, false, 0, !hopper, 0, Layout::kBhsd},
      {1, 4, 2, 160, 160, 8, true},
      {1, 3, 1, 333, 333, 64, true},
      {1, 1, 1, 7, 9, 64, false},
  };
  for (const Case& c : cases) {
    compare(c);
    if (HasFailure()) return;
  }
  if (hopper) compare({1, 4, 2, 256, 256, 256, true});
  const auto counts = declined.counts();
  EXPECT_FALSE(counts.contains("attention") ||
               counts.contains("attention's gradient"))
      << cudnn_attention_library();
}

// Keys that no query sees get gradients of zero.
TEST_F(AttentionGpuTest, SeesNoKeyBeyondTheLastQuery) {
  for (Layout l : {Layout::kBshd, Layout::kBhsd}) {
    compare({2, 4, 2, 128, 512, 64, true, 128, true, 0, l});
    compare({2, 4, 2, 128, 512, 64, true, 0, true, 0, l});
  }
}

// exp(-lse) is more than a float can hold, so elements outside of q and k must
// not count as scores of 0.
TEST_F(AttentionGpuTest, ScoresFarBelowZero) {
  for (int64_t s : {128, 192, 200, 256, 1000}) {
    compare({1, 2, 2, s, s, 64, true, 0, true, -110});
    const bool taken = compute_ != 9 || s % 128 != 64;
    compare({1, 2, 2, s, s, 64, false, 0, taken, -110});
    compare({1, 2, 2, s - 30, s, 64, false, 0, taken, -110});
    if (HasFailure()) return;
  }
}

TEST_F(AttentionGpuTest, SameBitsEveryTimeAndInEveryThread) {
  options = CudaOptions{.deterministic = true};
  for (const Case& c : {Case{2, 8, 2, 1024, 1024, 128, true},
                        Case{2, 8, 8, 1000, 1000, 64, false}}) {
    SCOPED_TRACE(text(c));
    const Inputs in(c);
    const Results first = run(c, in);
    const auto expect_same = [&](const Results& r) {
      EXPECT_TRUE(same_bits(r.out, first.out));
      EXPECT_EQ(r.lse, first.lse);
      EXPECT_TRUE(same_bits(r.dq, first.dq));
      EXPECT_TRUE(same_bits(r.dk, first.dk));
      EXPECT_TRUE(same_bits(r.dv, first.dv));
    };
    for (int i = 0; i < 5; ++i) expect_same(run(c, in));
    // One thread alone, then two at once.
    std::thread([&] { expect_same(run(c, in)); }).join();
    std::thread a([&] { expect_same(run(c, in)); });
    std::thread b([&] { expect_same(run(c, in)); });
    a.join();
    b.join();
  }
}

// Compares a call that is cut into runs with one call for the last run.
TEST_F(AttentionGpuTest, RunsInPartsAreTheWhole) {
  options = CudaOptions{.deterministic = true};
  const Case whole = {2,    16, 4,    8192, 8192,         64,
                      true, 0,  true, 0,    Layout::kBhsd};
  const Case part = {1, 8, 2, 8192, 8192, 64, true, 0, true, 0, Layout::kBhsd};
  Inputs in(whole);
  const Results all = run(whole, in);
  const Sizes n(part);
  const auto last = [](const auto& x, int64_t n) {
    return std::vector(x.end() - n, x.end());
  };
  in.q = last(in.q, n.q), in.dout = last(in.dout, n.q);
  in.k = last(in.k, n.k), in.v = last(in.v, n.k);
  const Results alone = run(part, in);
  EXPECT_TRUE(same_bits(alone.dq, last(all.dq, n.q)));
  EXPECT_TRUE(same_bits(alone.dk, last(all.dk, n.k)));
  EXPECT_TRUE(same_bits(alone.dv, last(all.dv, n.k)));
}

}  // namespace
}  // namespace kernels::cuda
}  // namespace dtensor
