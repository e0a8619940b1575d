#include "tests/dtensor/device/portable_device.h"

#include "dtensor/device/portable/boxes.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {
namespace {

using portable::host_boxes;

class PortableDevice final : public Device {
 public:
  Kind kind() const override { return Kind::kCpu; }
  const KernelTable* own_kernels() const override {
    return &portable_kernels();
  }

  void* allocate(int64_t bytes, Stream s) override {
    return cpu().allocate(bytes, s);
  }
  void release(void* block, int64_t bytes, Stream s) noexcept override {
    cpu().release(block, bytes, s);
  }

  int64_t copy(Stream s, int64_t item_size, Sizes shape, void* dst, Sizes to,
               const void* src, Sizes from) override {
    return host_boxes().copy(s, item_size, shape, dst, to, src, from);
  }
  void cast(Stream s, Sizes shape, DType dst_type, void* dst, Sizes to,
            DType src_type, const void* src, Sizes from) override {
    host_boxes().cast(s, shape, dst_type, dst, to, src_type, src, from);
  }
  void fill(Stream s, DType dtype, Sizes shape, void* dst, Sizes to,
            double value) override {
    host_boxes().fill(s, dtype, shape, dst, to, value);
  }
  int64_t reduce(Stream s, ReduceOp op, DType dtype, Sizes shape, void* dst,
                 Sizes to, std::span<const Operand> srcs,
                 int64_t count) override {
    return host_boxes().reduce(s, op, dtype, shape, dst, to, srcs, count);
  }
  void divide(Stream s, DType dtype, int64_t n, void* dst, const void* a,
              const void* b) override {
    host_boxes().divide(s, dtype, n, dst, a, b);
  }

  void to_host(Stream s, void* host, const void* src, int64_t bytes) override {
    cpu().to_host(s, host, src, bytes);
  }
  void from_host(Stream s, void* dst, const void* host,
                 int64_t bytes) override {
    cpu().from_host(s, dst, host, bytes);
  }
  Event record(Stream s) override { return cpu().record(s); }
  void wait(Stream s, const Event& event) override { cpu().wait(s, event); }
  bool passed(const Event& event) override { return cpu().passed(event); }
  void synchronize(Stream s) override { cpu().synchronize(s); }
};

}  // namespace

Device& portable_device() {
  static PortableDevice device;
  return device;
}

}  // namespace dtensor
