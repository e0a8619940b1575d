// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/redistribute_cases.h"

#include <cstring>
#include <memory>

#include "dtensor/placement/error.h"
#include "dtensor/placement/step_schedule.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

// Copies `rows` rows of `bytes` bytes.
void copy_rows(int64_t rows, char* dst, int64_t dst_step, const char* src,
               int64_t src_step, int64_t bytes) {
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(dst + i * dst_step, src + i * src_step,
                static_cast<size_t>(bytes));
}

const Spec* spec(const Mesh& mesh, DType dtype, Dim rows, Dim columns,
                 std::vector<Partial> partials = {}) {
  const Shape shape{rows.size(), columns.size()};
  return Spec::get(mesh, shape, {{rows, columns}, std::move(partials)}, dtype);
}

// Moves from rows to columns on two ranks, or back.
RedistributeCase turn(std::string name, DType dtype, int64_t n, bool back) {
  const Mesh mesh = Mesh::parse("2");
  const Dim whole(n), cut(n, Split::over({0}));
  const Spec *rows = spec(mesh, dtype, cut, whole),
             *columns = spec(mesh, dtype, whole, cut);
  const int64_t item = size_of(dtype), h = n / 2 * item;
  auto direct = [=](int me, const std::vector<const char*>& src, char* dst) {
    for (int i = 0; i < 2; ++i) {
      const int from = (me + i) % 2;
      const char* s = src[static_cast<size_t>(from)];
      if (back)
        copy_rows(n / 2, dst + from * h, 2 * h, s + me * n / 2 * h, h, h);
      else
        copy_rows(n / 2, dst + from * n / 2 * h, h, s + me * h, 2 * h, h);
    }
  };
  return {std::move(name),       2, back ? columns : rows,
          back ? rows : columns, 2, direct};
}

RedistributeCase sum(int64_t n) {
  const Mesh mesh = Mesh::parse("2");
  const Dim whole(n), cut(n, Split::over({0}));
  auto direct = [=](int me, const std::vector<const char*>& src, char* dst) {
    const int64_t half = n / 2 * n;
    const float* a = reinterpret_cast<const float*>(src[0]) + me * half;
    const float* b = reinterpret_cast<const float*>(src[1]) + me * half;
    float* d = reinterpret_cast<float*>(dst);
#pragma GCC ivdep
    for (int64_t i = 0; i < half; ++i) d[i] = a[i] + b[i];
  };
  return {"P -> S0, f32",
          2,
          spec(mesh, DType::kF32, whole, whole, {{0, ReduceOp::kSum}}),
          spec(mesh, DType::kF32, cut, whole),
          3,
          direct};
}

RedistributeCase grid(int64_t n) {
  const Mesh mesh = Mesh::parse("2x2");
  const int64_t w = n / 4 * 4;  // bytes of a row of the destination
  auto direct = [=](int me, const std::vector<const char*>& src, char* dst) {
    for (int i = 0; i < 2; ++i)
      copy_rows(n / 2, dst + i * n / 2 * w, w,
                src[static_cast<size_t>(2 * i + me / 2)] + me % 2 * w, 2 * w,
                w);
  };
  return {"2x2 -> 1x4, f32",
          4,
          spec(mesh, DType::kF32, Dim(n, Split::over({0})),
               Dim(n, Split::over({1}))),
          spec(mesh, DType::kF32, Dim(n), Dim(n, Split::over({0, 1}))),
          2,
          direct};
}

// Moves blocks of 32 that are dealt to the ranks in turn.
RedistributeCase blocks(int64_t n) {
  const Mesh mesh = Mesh::parse("2x2");
  auto dealt = [n](std::vector<int> axes) {
    const int64_t parts = axes.size() == 2 ? 4 : 2;
    return Dim::product({Dim(n / (32 * parts)),
                         Dim(parts, Split::over(std::move(axes))), Dim(32)});
  };
  auto direct = [=](int me, const std::vector<const char*>& src, char* dst) {
    constexpr int64_t kBlock = 32 * 4;
    const int64_t w = n / 4 * 4;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t block = i / 32;
      const char* s = src[static_cast<size_t>(block % 2 * 2 + me % 2)] +
                      (block / 2 * 32 + i % 32) * 2 * w + me / 2 * kBlock;
      for (int64_t k = 0; k < w / kBlock; ++k)
        std::memcpy(dst + i * w + k * kBlock, s + 2 * k * kBlock, kBlock);
    }
  };
  return {"2x2 -> 1x4, blocks of 32, f32",
          4,
          spec(mesh, DType::kF32, dealt({0}), dealt({1})),
          spec(mesh, DType::kF32, Dim(n), dealt({0, 1})),
          2,
          direct};
}

}  // namespace

std::vector<RedistributeCase> redistribute_cases(int64_t n) {
  DT_CHECK(n >= 128 && n % 128 == 0, "bench",
           "matrices of {} x {}; write a multiple of 128", n, n);
  std::vector<RedistributeCase> cases{
      turn("S0 -> S1, f32", DType::kF32, n, false),
      turn("S1 -> S0, f32", DType::kF32, n, true),
      turn("S0 -> S1, f64", DType::kF64, n, false),
      turn("S1 -> S0, f64", DType::kF64, n, true),
      sum(n),
      grid(n),
      blocks(n),
      turn("S0 -> S1, f32 [8, 8]", DType::kF32, 8, false)};
  cases.back().repeats = 1000;
  return cases;
}

std::vector<Contender> redistribute_contenders(const RedistributeCase& c,
                                               Communicator& comm) {
  struct State {
    Tensor src, other;
    Tensor dst[3];  // one for each contender, so all are equally cold
    std::vector<const char*> sources;
    Step step;
    Schedule schedule;
  };
  const int me = comm.rank();
  const Coord at = c.from->mesh().coordinate(me);
  auto s = std::make_shared<State>();
  s->src = Tensor::empty(c.from->local_shape(at), c.from->dtype());
  for (Tensor* t : {&s->other, &s->dst[0], &s->dst[1], &s->dst[2]}) {
    *t = Tensor::empty(c.to->local_shape(at), c.to->dtype());
    t->fill(0);
  }
  s->src.fill(me + 1);
  s->sources.resize(static_cast<size_t>(comm.size()));
  const char* mine = s->src.ptr<char>();
  comm.all_gather_bytes({StepKind::kAllGatherBytes, "benchmark"}, &mine,
                        sizeof(mine), s->sources.data());
  const bool reduces = c.from->partial_axes() != 0;
  const Call call{reduces ? StepKind::kReduceScatter : StepKind::kExchange,
                  "benchmark", c.from->hash()};
  const Call meet{StepKind::kBarrier, "benchmark"};
  s->step = {.kind = reduces ? StepKind::kReduceScatter : StepKind::kExchange,
             .axes = c.from->mesh().all_axes(),
             .from = c.from,
             .to = c.to};
  s->schedule = schedule(s->step, me);
  const int repeats = c.repeats;
  auto repeated = [repeats](auto fn) {
    return [=] {
      for (int i = 0; i < repeats; ++i) fn();
      return -1.;
    };
  };
  return {
      {"memcpy of the local bytes", repeated([s] {
         std::memcpy(s->dst[0].mutable_data(), s->other.data(),
                     static_cast<size_t>(s->other.bytes()));
       })},
      {"direct read", repeated([s, me, meet, &comm, direct = c.direct] {
         comm.barrier(meet);
         direct(me, s->sources, s->dst[1].mutable_ptr<char>());
         comm.barrier(meet);
       })},
      {"exchange", repeated([s, call, reduces, &comm] {
         Transfer t{.schedule = &s->schedule,
                    .dtype = s->src.dtype(),
                    .src = s->src.data(),
                    .src_strides = s->src.strides(),
                    .dst = s->dst[2].mutable_data(),
                    .dst_strides = s->dst[2].strides()};
         if (reduces)
           comm.reduce(call, {}, {&t, 1});
         else
           comm.exchange(call, {}, {&t, 1});
       })},
      {"redistribute",
       repeated([s] { redistribute_local(s->src, s->step.from, s->step.to); })},
  };
}

}  // namespace dtensor
