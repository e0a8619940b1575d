// SPDX-License-Identifier: Apache-2.0
// A device for tests that behaves like a GPU: its memory is elsewhere, and its
// work runs later.
//
// The host may not touch its memory: reading or writing it ends the process,
// with a message. A stream's work is kept and runs as late as possible: when
// the host asks for a result (to_host(), synchronize()), or when another stream
// that waits for it runs. Work runs in the order of its stream, and runs work
// of other streams only if it waits for that work. New memory is full of NaNs,
// so a missing wait computes with NaNs or old values. Several recording devices
// reach each other's memory, except after cannot_reach().
//
// Captures follow CUDA's rules; breaking a rule throws Error. A replay runs as
// late as other work, and only its waits order the works of its streams.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "dtensor/device/device.h"

namespace dtensor {

class RecordingDevice : public Device {
 public:
  // Makes a device with so many bytes of memory. Its work computes with the
  // kernels of `host`, when it runs.
  static std::unique_ptr<RecordingDevice> make(int64_t bytes = int64_t{1} << 32,
                                               Device& host = cpu());

  // Adds work to a stream.
  virtual void later(Stream, std::function<void()>) = 0;
  // The number of works that streams were given so far. A replay counts as one.
  virtual int64_t given() const = 0;
  // The number of works that have run. A replay counts each of its works.
  virtual int64_t works() const = 0;
  // The number of works that were given and have not run.
  virtual int64_t waiting() const = 0;
  // Whether the stream belongs to this device.
  virtual bool has(Stream) const = 0;
  // How often the host has called synchronize().
  virtual int64_t synchronized() const = 0;

  bool can_access_peer(const Device& d) const override {
    return &d != unreachable_;
  }
  // From now on this device cannot access d's memory.
  void cannot_reach(const Device& d) { unreachable_ = &d; }

 private:
  const Device* unreachable_ = nullptr;
};

}  // namespace dtensor
