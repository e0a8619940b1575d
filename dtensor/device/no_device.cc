// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "dtensor/device/device.h"

namespace dtensor {
namespace {

class NoDevice final : public Device {
 public:
  Kind kind() const override { return Kind::kNone; }
  std::string_view name() const override { return "no device"; }
  void* allocate(int64_t, Stream) override { return nullptr; }
  void release(void*, int64_t, Stream) noexcept override {}
  int64_t copy(Stream, int64_t, Sizes, void*, Sizes, const void*,
               Sizes) override {
    return 0;
  }
  void cast(Stream, Sizes, DType, void*, Sizes, DType, const void*,
            Sizes) override {}
  void fill(Stream, DType, Sizes, void*, Sizes, double) override {}
  int64_t reduce(Stream, ReduceOp, DType, Sizes, void*, Sizes,
                 std::span<const Operand>, int64_t) override {
    return 0;
  }
  int64_t reduce_into_all(Stream, ReduceOp, DType, int64_t,
                          std::span<char* const>, std::span<const char* const>,
                          int64_t) override {
    return 0;
  }
  void divide(Stream, DType, int64_t, void*, const void*,
              const void*) override {}
  void to_host(Stream, void* host, const void*, int64_t bytes) override {
    if (bytes > 0) std::memset(host, 0, static_cast<size_t>(bytes));
  }
  void from_host(Stream, void*, const void*, int64_t) override {}
  Event record(Stream) override { return {}; }
  void wait(Stream, const Event&) override {}
  bool passed(const Event&) override { return true; }
  void synchronize(Stream) override {}
};

}  // namespace

Device& no_device() {
  static NoDevice device;
  return device;
}

}  // namespace dtensor
