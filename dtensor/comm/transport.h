// SPDX-License-Identifier: Apache-2.0
// The messages that carry the data of a run between ranks of different
// processes. For control messages, see job.h.
#pragma once
#include <cstdint>
#include <vector>

namespace dtensor {

// The way from one rank's thread in a lane to another rank's thread in the same
// lane. A channel delivers messages in the order in which they were sent.
struct Channel {
  int64_t from, to;  // ranks of the run, in two processes
  int lane;          // see Backend::kLanes
};

// The messages that one thread is sending and receiving. The object is used for
// one collective after the other.
class PendingMessages {
 public:
  virtual ~PendingMessages() = default;
  // Begin to send `bytes` bytes, or to receive at most `bytes` bytes. `bytes`
  // is at least 1. The caller leaves the memory alone until done() returns
  // true.
  virtual void send(const Channel&, const void* data, int64_t bytes) = 0;
  virtual void receive(const Channel&, void* data, int64_t bytes) = 0;
  // Returns whether all sends and receives begun so far are done; never waits.
  // Once it has returned true, later sends and receives form a new batch.
  virtual bool done() = 0;
  // Returns the ranks from which messages of this batch are still to come. A
  // rank may occur several times.
  virtual std::vector<int64_t> awaited() const = 0;
  // Abandons all unfinished sends and receives, after the run has failed.
  virtual void give_up() noexcept = 0;
};

}  // namespace dtensor
