// SPDX-License-Identifier: Apache-2.0
// Convolutions by oneDNN.
#include "dtensor/ops/kernels/convolution.h"

#include <algorithm>
#include <dnnl.hpp>

#include "dtensor/ops/kernels/cpu/dnnl_cache.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels::cpu {
namespace {

using dnnl::memory;
using Makes = Convolution::Makes;

// A tensor as the caller has it, and as the primitive wants it.
struct Operand {
  memory plain, best;
  dnnl::reorder reorder = {};  // empty if both are the same
};
struct Entry {
  dnnl::primitive primitive;
  Operand x, weight, y;
  memory bias;
};
// The kind, the type, b, groups, c, o, whether there is a bias, and 18 sizes of
// space.
using Cache = DnnlCache<25, Entry>;

memory::desc row_major(const memory::dims& dims, memory::data_type t) {
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size() - 1; d > 0; --d)
    strides[d - 1] = strides[d] * dims[d];
  return memory::desc(dims, t, strides);
}

Operand operand(const dnnl::engine& engine, const memory::desc& plain,
                const memory::desc& best, bool made) {
  Operand o{memory(plain, engine, nullptr), memory(best, engine, nullptr)};
  if (plain != best)
    o.reorder =
        made ? dnnl::reorder(o.best, o.plain) : dnnl::reorder(o.plain, o.best);
  return o;
}

Entry make(const dnnl::engine& engine, const Convolution& a) {
  const auto t =
      a.type == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
  // oneDNN has better kernels for fewer dimensions.
  size_t first = 0;
  while (first < 2 && a.in[first] == 1 && a.out[first] == 1 &&
         a.kernel[first] == 1 && a.pad[first] == 0)
    ++first;
  memory::dims x{a.b, a.groups * a.c}, y{a.b, a.groups * a.o};
  memory::dims w{a.o, a.c}, stride, dilation, front, behind;
  if (a.groups > 1) w.insert(w.begin(), a.groups);
  for (size_t d = first; d < 3; ++d) {
    x.push_back(a.in[d]);
    y.push_back(a.out[d]);
    w.push_back(a.kernel[d]);
    stride.push_back(a.stride[d]);
    dilation.push_back(a.dilation[d] - 1);
    front.push_back(a.pad[d]);
    behind.push_back((a.out[d] - 1) * a.stride[d] +
                     (a.kernel[d] - 1) * a.dilation[d] + 1 - a.in[d] -
                     a.pad[d]);
  }
  const auto any = [&](const memory::dims& dims) {
    return memory::desc(dims, t, memory::format_tag::any);
  };
  const memory::dims channels{a.groups * a.o};
  const memory::desc bias = a.bias ? row_major(channels, t) : memory::desc();
  constexpr auto direct = dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, direct, any(x), any(w), bias, any(y),
       stride, dilation, front, behind},
      engine);
  const auto entry = [&](const dnnl::primitive& p, const memory::desc& of_x,
                         const memory::desc& of_w, const memory::desc& of_y) {
    return Entry{
        p, operand(engine, row_major(x, t), of_x, a.makes == Makes::kX),
        operand(engine, row_major(w, t), of_w, a.makes == Makes::kWeight),
        operand(engine, row_major(y, t), of_y, a.makes == Makes::kY),
        memory(bias, engine, nullptr)};
  };
  if (a.makes == Makes::kY)
    return entry(dnnl::convolution_forward(forward), forward.src_desc(),
                 forward.weights_desc(), forward.dst_desc());
  if (a.makes == Makes::kX) {
    const dnnl::convolution_backward_data::primitive_desc pd(
        {direct, any(x), any(w), any(y), stride, dilation, front, behind},
        engine, forward);
    return entry(dnnl::convolution_backward_data(pd), pd.diff_src_desc(),
                 pd.weights_desc(), pd.diff_dst_desc());
  }
  const dnnl::convolution_backward_weights::primitive_desc pd(
      {direct, any(x), any(w), any(y), stride, dilation, front, behind}, engine,
      forward);
  return entry(dnnl::convolution_backward_weights(pd), pd.src_desc(),
               pd.diff_weights_desc(), pd.diff_dst_desc());
}

Cache::Key key_of(const Convolution& a) {
  Cache::Key key{static_cast<int64_t>(a.makes),
                 static_cast<int64_t>(a.type),
                 a.b,
                 a.groups,
                 a.c,
                 a.o,
                 a.bias != nullptr};
  auto to = key.begin() + 7;
  for (const Convolution::Space* s :
       {&a.in, &a.out, &a.kernel, &a.stride, &a.dilation, &a.pad})
    to = std::copy(s->begin(), s->end(), to);
  return key;
}

}  // namespace

bool convolution(const Convolution& a) {
  if (a.type != DType::kF32 && a.type != DType::kBF16) return false;
  // oneDNN takes neither empty tensors nor negative padding.
  if (a.b * a.groups * a.c * a.o == 0) return false;
  for (size_t d = 0; d < 3; ++d)
    if (a.in[d] * a.out[d] * a.kernel[d] == 0 || a.pad[d] < 0) return false;
  thread_local Cache cache;
  Entry* const e = cache.find(
      key_of(a), [&](const dnnl::engine& engine) { return make(engine, a); });
  if (!e) return false;
  const auto begin = [](Operand& o, const void* data, ScratchSlot slot) {
    o.plain.set_data_handle(const_cast<void*>(data));
    o.best.set_data_handle(
        o.reorder ? scratch<char>(slot, static_cast<int64_t>(
                                            o.best.get_desc().get_size()))
                  : const_cast<void*>(data));
  };
  const auto reorder = [&](Operand& o, memory& from, memory& to) {
    return !o.reorder || cache.execute(o.reorder, {{DNNL_ARG_FROM, from.get()},
                                                   {DNNL_ARG_TO, to.get()}});
  };
  const bool x = a.makes == Makes::kX, y = a.makes == Makes::kY;
  const bool weight = a.makes == Makes::kWeight;
  begin(e->x, x ? a.made : a.x, kScratchPackA);
  begin(e->weight, weight ? a.made : a.weight, kScratchPackB);
  begin(e->y, y ? a.made : a.y, kScratchPackC);
  const auto ready = [&](Operand& o, bool made) {
    return made || reorder(o, o.plain, o.best);
  };
  if (!ready(e->x, x) || !ready(e->weight, weight) || !ready(e->y, y))
    return false;
  if (a.bias) e->bias.set_data_handle(const_cast<void*>(a.bias));
  const auto run = [&](int of_x, int of_weight, int of_y) {
    const dnnl_exec_arg_t bias{DNNL_ARG_BIAS, e->bias.get()};
    const dnnl_exec_arg_t px{of_x, e->x.best.get()};
    const dnnl_exec_arg_t pw{of_weight, e->weight.best.get()};
    const dnnl_exec_arg_t py{of_y, e->y.best.get()};
    return a.bias ? cache.execute(e->primitive, {px, pw, py, bias})
                  : cache.execute(e->primitive, {px, pw, py});
  };
  Operand& made = x ? e->x : weight ? e->weight : e->y;
  return run(x ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC,
             weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
             y ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST) &&
         reorder(made, made.best, made.plain);
}

}  // namespace dtensor::kernels::cpu
