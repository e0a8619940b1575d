// SPDX-License-Identifier: Apache-2.0
// A device that behaves like one whose memory is elsewhere and whose work runs
// later, for tests that have none.
//
// The host may not touch its memory: reading or writing it ends the process,
// with a sentence. What a stream is given is kept, and runs as late as it may,
// when the host asks for a result (to_host, synchronize) or another stream that
// waits for it runs: in the order of the stream, and with nothing done to the
// others that was not waited for. New memory is full of NaNs. A missing wait
// thus computes with what is not there yet. Several reach each other's memory,
// but for cannot_reach().
//
// Captures have CUDA's rules, and what breaks one throws Error. What is
// replayed runs as late, and with as little order, as what is given.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "dtensor/device/device.h"

namespace dtensor {

class RecordingDevice : public Device {
 public:
  // Has this much memory. `host` computes what it is given, at once and in the
  // host's memory.
  static std::unique_ptr<RecordingDevice> make(int64_t bytes = int64_t{1} << 32,
                                               Device& host = cpu());

  // Gives work to a stream.
  virtual void later(Stream, std::function<void()>) = 0;
  // What the host gave so far: a replay is one.
  virtual int64_t given() const = 0;
  // What ran so far.
  virtual int64_t works() const = 0;
  // Given and not run yet.
  virtual int64_t waiting() const = 0;
  // Whether the stream is one of its.
  virtual bool has(Stream) const = 0;
  // How often the host waited for a stream, other than for bytes.
  virtual int64_t synchronized() const = 0;

  bool can_access_peer(const Device& d) const override {
    return &d != unreachable_;
  }
  // That one's memory, from now on.
  void cannot_reach(const Device& d) { unreachable_ = &d; }

 private:
  const Device* unreachable_ = nullptr;
};

}  // namespace dtensor
