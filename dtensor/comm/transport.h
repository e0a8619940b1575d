// Messages between the processes of a run: everything that a HostBackend
// needs from MPI or TCP.
//
// Every process of a run has one Transport. All processes create theirs
// together; several threads may call it at once.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;
  virtual std::unique_ptr<PendingMessages> pending_messages() = 0;

  // Short control messages. tell() sends one to another process and never
  // waits; told() returns the next one received, if any. Messages from one
  // process keep their order.
  struct Told {
    int from;
    std::string text;
  };
  virtual void tell(int process, std::string_view text) = 0;
  virtual std::optional<Told> told() = 0;

  // Sleeps until something arrives, at most that long, for waiting
  // threads that should leave the processor to others. Returns false at once if
  // this transport cannot sleep.
  virtual bool rest(std::chrono::microseconds) { return false; }

  // A process that is known to have ended; -1: none.
  virtual int lost() { return -1; }
  // The cause of that end, as far as lost() can tell.
  virtual std::string_view why_lost() const {
    return "its process has ended in the middle of the run (it was killed, or "
           "crashed)";
  }

  // Called by all processes together when the run has succeeded everywhere and
  // no message is under way.
  virtual void close() = 0;
  // Ends the other processes of the job with `code`, when some of them no
  // longer answer. The caller then ends its own process, if it still runs.
  virtual void abort(int code) noexcept = 0;
};

}  // namespace dtensor
