// Messages between the processes of a run: what a ProcessBackend needs of MPI,
// or of TCP, and no more.
//
// Every process has one Transport of a run, all of which are made together and
// called by several threads at once.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dtensor {

// From one rank's thread of a lane to another rank's: what is sent on a channel
// is received in the order in which it was sent.
struct Channel {
  int64_t from, to;  // ranks of the run, in two processes
  int lane;
};

// What one thread has on its way. Kept from collective to collective.
class PendingMessages {
 public:
  virtual ~PendingMessages() = default;
  // Begins to send, or to receive at most so many bytes; 1 or more. The memory
  // belongs to this object until everything is done.
  virtual void send(const Channel&, const void* data, int64_t bytes) = 0;
  virtual void receive(const Channel&, void* data, int64_t bytes) = 0;
  // Whether all of that is done; never waits. What is begun after that is
  // another batch.
  virtual bool done() = 0;
  // The batch's receives, in their order.
  struct Receipt {
    int64_t from;   // the rank
    int64_t bytes;  // -1: it has not come
  };
  virtual std::span<const Receipt> receipts() const = 0;
  // Lets go of what has not come, and of what nobody took. The run has failed.
  virtual void give_up() noexcept = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;
  virtual std::unique_ptr<PendingMessages> pending_messages() = 0;

  // Few words to another process, which never wait; and the next that came, in
  // the order in which each process sent them.
  struct Told {
    int from;
    std::string text;
  };
  virtual void tell(int process, std::string_view text) = 0;
  virtual std::optional<Told> told() = 0;

  // Sleeps until something comes, at most so long: for who waits where others
  // need the processor. False: it cannot, and returns at once.
  virtual bool rest(std::chrono::microseconds) { return false; }

  // A process that has ended, as far as that can be seen from here; -1: none.
  virtual int lost() { return -1; }
  // The cause, as far as lost() can tell.
  virtual std::string_view why_lost() const {
    return "its process has ended in the middle of the run (it was killed, or "
           "crashed)";
  }

  // The run went well everywhere: nothing is on its way. Called by all
  // processes together.
  virtual void close() = 0;
  // Ends the other processes of the job with `code`, when some of them do not
  // answer any more. The caller then ends this one, if it still runs.
  virtual void abort(int code) noexcept = 0;
};

}  // namespace dtensor
