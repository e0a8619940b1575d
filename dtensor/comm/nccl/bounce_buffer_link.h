// A link for calls in which only some members' operands lie in registered
// memory, although NCCL requires all of them there, or none. It copies operands
// from registered memory to bounce buffers, and received data back.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "dtensor/comm/nccl/link.h"
#include "dtensor/comm/scratch.h"
#include "dtensor/device/reserve.h"

namespace dtensor {

// For one call, or one group of calls, on that stream of the device. `where`
// begins errors.
class BounceBufferLink final : public NcclLink {
 public:
  BounceBufferLink(NcclLink& link, int members, const Reserve& registered,
                   Device& device, Stream stream, std::string_view where)
      : link_(link),
        members_(members),
        registered_(registered),
        device_(device),
        stream_(stream),
        where_(where) {}
  // Copies received data back to registered memory. Call it when the link has
  // settled.
  void back();

  bool settled() override { return link_.settled(); }
  void all_gather(Stream, const void* in, void* out, int64_t bytes) override;
  void reduce_scatter(Stream, ReduceOp, DType, const void* in, void* out,
                      int64_t n) override;
  void all_reduce(Stream, ReduceOp, DType, void* data, int64_t n) override;
  void begin_group() override { link_.begin_group(); }
  void end_group() override { link_.end_group(); }
  void drop_group() noexcept override { link_.drop_group(); }
  void send(Stream, const void* data, int64_t bytes, int to) override;
  void receive(Stream, void* data, int64_t bytes, int from) override;
  void register_memory(void* memory, int64_t bytes) override {
    link_.register_memory(memory, bytes);
  }
  void abort() noexcept override { link_.abort(); }

 private:
  struct Back {
    void* to;
    const void* from;
    int64_t bytes;
  };
  void* scratch(int64_t bytes);
  void copy(void* to, const void* from, int64_t bytes);
  // The addresses that NCCL should read and write instead of `data`.
  const void* in(const void* data, int64_t bytes);
  void* out(void* data, int64_t bytes);

  NcclLink& link_;
  const int members_;
  const Reserve& registered_;
  Device& device_;
  const Stream stream_;
  const std::string_view where_;
  std::vector<Scratch> scratch_;
  std::vector<Back> back_;
};

}  // namespace dtensor
