// SPDX-License-Identifier: Apache-2.0
// Messages between ranks of different processes: the data of a run. Control
// messages are those of the job (job.h).
#pragma once
#include <cstdint>
#include <vector>

namespace dtensor {

// From one rank's thread in a lane to another rank's. A channel delivers
// messages in the order in which they were sent.
struct Channel {
  int64_t from, to;  // ranks of the run, in two processes
  int lane;
};

// The messages that one thread is sending and receiving. Reused from collective
// to collective.
class PendingMessages {
 public:
  virtual ~PendingMessages() = default;
  // Begin to send `bytes` bytes, or to receive at most `bytes` bytes; at least
  // 1. The caller leaves the memory alone until done() returns true.
  virtual void send(const Channel&, const void* data, int64_t bytes) = 0;
  virtual void receive(const Channel&, void* data, int64_t bytes) = 0;
  // Whether everything begun so far is done; never waits. Calls after that
  // begin a new batch.
  virtual bool done() = 0;
  // The ranks from which messages of this batch are still to come; with several
  // messages, several times.
  virtual std::vector<int64_t> awaited() const = 0;
  // Abandons all unfinished sends and receives, after the run has failed.
  virtual void give_up() noexcept = 0;
};

}  // namespace dtensor
