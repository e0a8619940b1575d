// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cuda/attention_calls.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace dtensor::kernels::cuda {
namespace {

// The oldest version of cuDNN that takes arbitrary strides, and arbitrary
// lengths with a bottom-right diagonal.
constexpr int64_t kOldest = 90600;

// The alignment, in bytes, of addresses and of all strides but the last: cuDNN
// loads this much at once.
constexpr int64_t kAlignment = 16;

// The most batches, and the most heads, because each number becomes a dimension
// of a grid of blocks. For more, cuDNN makes a plan that fails to launch.
constexpr int64_t kMostBlocks = 65535;

// The deterministic backward pass stores one element for each pair of a query
// and a key, for all heads in a run. The pass is cut into runs that store at
// most kBytesOfRun if possible, and never more than kMostBytes.
constexpr int64_t kBytesOfRun = int64_t{1} << 30;
constexpr int64_t kMostBytes = int64_t{8} << 30;

bool has_type(DType t) { return is_half_float(t); }

bool aligned(const void* p) {
  return std::bit_cast<uintptr_t>(p) % kAlignment == 0;
}

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// The largest divisor of n that is at most `most`.
int64_t divisor(int64_t n, int64_t most) {
  int64_t d = std::min(n, most);
  while (n % d != 0) --d;
  return d;
}

// Whether query head h uses head h * hkv / hq of k and v, which cuDNN assumes.
bool is_grouped(const Attention& a) {
  if (a.hq % a.hkv != 0) return false;
  for (int64_t h = 0; !a.kv_head.empty() && h < a.hq; ++h)
    if (a.kv_head[static_cast<size_t>(h)] != h * a.hkv / a.hq) return false;
  return true;
}

// Sets t and diagonal. Returns false if some query sees no key (cuDNN would
// give NaN), or if the diagonal neither begins nor ends in a corner.
bool set_diagonal(const Attention& a, AttentionGraph& g) {
  const int64_t offset = a.query_offset;
  g.t = a.t;
  g.diagonal = Diagonal::kNone;
  if (!a.causal) return true;
  if (offset < 0) return false;
  g.t = std::min(a.t, a.s + std::min(offset, a.t));
  if (offset >= g.t - 1) return true;
  g.diagonal = offset == 0 ? Diagonal::kTopLeft : Diagonal::kBottomRight;
  return offset == 0 || offset == g.t - a.s;
}

// Fills the part of the graph that both passes share, including the operands of
// the forward pass.
template <class Pass>
std::optional<AttentionGraph> graph_of(const Cudnn& cudnn, const Pass& pass) {
  const Attention& a = pass.of;
  AttentionGraph g;
  g.type = a.type;
  g.scale = static_cast<float>(a.scale);
  g.b = a.b, g.hq = a.hq, g.hkv = a.hkv, g.s = a.s, g.d = a.d;
  if (!has_type(a.type) || a.mask.data || a.window || a.soft_cap != 0 ||
      cudnn.version < kOldest || cudnn.compute < 8 || a.b < 1 || a.hq < 1 ||
      a.hkv < 1 || a.s < 1 || a.t < 1 || a.d < 1 || a.b > kMostBlocks ||
      a.hq > kMostBlocks || a.d % 8 != 0 ||
      a.d > (cudnn.compute == 9 ? 256 : 128) || !is_grouped(a) ||
      !set_diagonal(a, g) || !(g.scale > 0) || !std::isfinite(g.scale))
    return {};
  if (!aligned(a.q.data) || !aligned(a.k.data) || !aligned(a.v.data) ||
      !aligned(pass.out.data) || !aligned(pass.lse))
    return {};
  std::ranges::copy(a.q.strides, g.strides[AttentionGraph::kQ]);
  std::ranges::copy(a.k.strides, g.strides[AttentionGraph::kK]);
  std::ranges::copy(a.v.strides, g.strides[AttentionGraph::kV]);
  std::ranges::copy(pass.out.strides, g.strides[AttentionGraph::kOut]);
  return g;
}

// Brings equivalent strides to one form. Returns false for strides that cuDNN
// does not take.
bool set_strides(AttentionGraph& g) {
  const int64_t per_row = kAlignment / size_of(g.type);
  for (int o = 0; o < g.kNumOperands; ++o) {
    if (!g.backward && o > g.kOut) break;
    const bool of_kv = o == g.kK || o == g.kV || o == g.kDK || o == g.kDV;
    const int64_t extents[] = {g.b, of_kv ? g.hkv : g.hq, of_kv ? g.t : g.s,
                               g.d};
    int64_t packed = 1;
    for (int i = 3; i >= 0; --i) {
      int64_t& stride = g.strides[o][i];
      if (extents[i] == 1) stride = packed;
      packed *= extents[i];
      if (i == 3 ? stride != 1 : stride <= 0 || stride % per_row != 0)
        return false;
    }
  }
  return true;
}

// Shrinks the graph to one run (b batches, hkv heads) of the deterministic
// backward pass, because the memory of a run grows with both. Returns false if
// the smallest run needs too much memory, or if the lse of a run would not be
// aligned.
bool cut(AttentionGraph& g) {
  const int64_t group = g.hq / g.hkv, b = g.b, hkv = g.hkv;
  const int64_t bytes =
      group * round_up(g.s, 64) * round_up(g.t, 128) * size_of(g.type);
  if (bytes > kMostBytes) return false;
  const int64_t groups = std::max<int64_t>(kBytesOfRun / bytes, 1);
  if (groups >= b * hkv) return true;
  g.b = divisor(b, std::max<int64_t>(groups / hkv, 1));
  g.hkv = divisor(hkv, groups);
  g.hq = g.hkv * group;
  // The lse of each run must be packed and aligned.
  return g.b * g.hq * g.s * size_of(DType::kF32) % kAlignment == 0;
}

}  // namespace

std::optional<AttentionGraph> attention_graph(const Cudnn& cudnn,
                                              const AttentionForward& a) {
  auto g = graph_of(cudnn, a);
  if (!g || !set_strides(*g)) return {};
  return g;
}

std::optional<AttentionGraph> attention_graph(const Cudnn& cudnn,
                                              const AttentionBackward& grad) {
  auto g = graph_of(cudnn, grad);
  if (!g || !aligned(grad.dout.data) || !aligned(grad.dq.data) ||
      !aligned(grad.dk.data) || !aligned(grad.dv.data))
    return {};
  g->backward = true;
  g->deterministic = cudnn.deterministic;
  // cuDNN does not support a single query or key here, and gives wrong results:
  // github.com/NVIDIA/cudnn-frontend/issues/1072.
  if (g->s == 1 || g->t == 1) return {};
  // Up to cuDNN 9.30, Hopper's kernel works on blocks of 128 keys. If the last
  // block has only 64, the kernel treats the missing 64 as keys with scores of
  // 0, unless a diagonal hides them. That gives NaN in dq for lse < -88.7:
  // github.com/pytorch/pytorch/issues/196678.
  const bool hidden = g->diagonal != Diagonal::kNone && g->s <= g->t;
  if (cudnn.compute == 9 && g->t % 128 == 64 && !hidden) return {};
  std::ranges::copy(grad.dout.strides, g->strides[AttentionGraph::kDOut]);
  std::ranges::copy(grad.dq.strides, g->strides[AttentionGraph::kDQ]);
  std::ranges::copy(grad.dk.strides, g->strides[AttentionGraph::kDK]);
  std::ranges::copy(grad.dv.strides, g->strides[AttentionGraph::kDV]);
  if ((g->deterministic && !cut(*g)) || !set_strides(*g)) return {};
  return g;
}

bool says_not_supported(std::string_view words) {
  const auto says = [words](std::string_view w) {
    return words.find(w) != words.npos;
  };
  // cuDNN also says NOT_SUPPORTED if something is missing at run time.
  return (says("NOT_SUPPORTED") || says("No valid engine configs")) &&
         !says("RUNTIME_PREREQUISITE_MISSING") &&
         !says("SUBLIBRARY_UNAVAILABLE") && !says("INCOMPATIBLE_CUD");
}

}  // namespace dtensor::kernels::cuda
