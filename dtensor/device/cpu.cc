// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "dtensor/device/combine.h"
#include "dtensor/device/copy.h"
#include "dtensor/device/device.h"

namespace dtensor {
namespace {

class Cpu final : public Device {
 public:
  Kind kind() const override { return Kind::kCpu; }
  std::string_view name() const override { return "the CPU"; }

  void* allocate(int64_t bytes, Stream) override {
    constexpr int64_t kAlignment = 64;
    return std::aligned_alloc(
        kAlignment, static_cast<size_t>((bytes + kAlignment - 1) / kAlignment *
                                        kAlignment));
  }
  void release(void* block, int64_t, Stream) noexcept override {
    std::free(block);
  }

  int64_t copy(Stream, int64_t item_size, Sizes shape, void* dst,
               Sizes dst_strides, const void* src, Sizes src_strides) override {
    return copy_strided(item_size, shape, dst, dst_strides, src, src_strides);
  }
  void cast(Stream, Sizes shape, DType dst_type, void* dst, Sizes dst_strides,
            DType src_type, const void* src, Sizes src_strides) override {
    cast_strided(shape, dst_type, dst, dst_strides, src_type, src, src_strides);
  }
  void fill(Stream, DType dtype, Sizes shape, void* dst, Sizes dst_strides,
            double value) override {
    fill_strided(dtype, shape, dst, dst_strides, value);
  }
  int64_t reduce(Stream, ReduceOp op, DType dtype, Sizes shape, void* dst,
                 Sizes dst_strides, std::span<const Operand> srcs,
                 int64_t count) override {
    return reduce_strided(op, dtype, shape, dst, dst_strides, srcs, count);
  }
  int64_t reduce_into_all(Stream, ReduceOp op, DType dtype, int64_t n,
                          std::span<char* const> dsts,
                          std::span<const char* const> srcs,
                          int64_t count) override {
    return dtensor::reduce_into_all(op, dtype, n, dsts, srcs, count);
  }
  void divide(Stream, DType dtype, int64_t n, void* dst, const void* a,
              const void* b) override {
    dtensor::divide(dtype, n, dst, a, b);
  }
  void to_host(Stream, void* host, const void* src, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, src, static_cast<size_t>(bytes));
  }
  void from_host(Stream, void* dst, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(dst, host, static_cast<size_t>(bytes));
  }

  Event record(Stream) override { return {}; }
  void wait(Stream, const Event&) override {}
  bool passed(const Event&) override { return true; }
  void synchronize(Stream) override {}
};

}  // namespace

Device& cpu() {
  static Cpu device;
  return device;
}

}  // namespace dtensor
