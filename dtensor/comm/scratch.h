// SPDX-License-Identifier: Apache-2.0
// Memory of a device that a collective needs until it ends.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>

#include "dtensor/device/device.h"
#include "dtensor/placement/error.h"

namespace dtensor {

class Scratch {
 public:
  // Throws an Error that begins with `where` if the device has no memory left.
  Scratch(Device& device, Stream stream, int64_t bytes, std::string_view where)
      : device_(&device),
        stream_(stream),
        bytes_(bytes),
        data_(bytes > 0 ? device.allocate(bytes, stream) : nullptr) {
    DT_CHECK(
        data_ || bytes == 0, where,
        "the device has no memory left for {}; use a smaller batch, or split "
        "the tensors over more ranks",
        quantity(bytes, "byte", "bytes"));
  }
  Scratch(Scratch&& o) noexcept
      : device_(o.device_),
        stream_(o.stream_),
        bytes_(o.bytes_),
        data_(std::exchange(o.data_, nullptr)) {}
  Scratch& operator=(Scratch&&) = delete;
  // Releases the memory behind the stream's earlier work, which may still use
  // it.
  ~Scratch() {
    if (data_) device_->release(data_, bytes_, stream_);
  }
  void* data() const { return data_; }

 private:
  Device* device_;
  Stream stream_;
  int64_t bytes_;
  void* data_;
};

}  // namespace dtensor
