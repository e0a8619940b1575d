// Messages between the processes of a job, over one connection per pair.
//
// Messages are sent in pieces. The header of each piece names the run and the
// channel. Therefore a long message delays messages of other channels by one
// piece at most, and leftovers of a failed run are recognized. Data is read
// straight into the buffer of a pending receive, or kept until there is one.
//
// The mesh has no thread: threads that wait call progress(), as does the
// listening thread of each run. A thread of the mesh would have to wake up for
// each message and then wake the waiting thread, which has the processor
// already.
#pragma once
#include <poll.h>

#include <atomic>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/tcp/socket.h"
#include "dtensor/comm/transport.h"

namespace dtensor {

// The sends and receives of one thread. Must outlive them.
struct TcpBatch {
  std::atomic<int64_t> left = 0;  // sends and receives that are not done
  // The most bytes of a receive for which a longer message came; 0: none.
  std::atomic<int64_t> refused = 0;
  // The ranks from which nothing will come, because this process has given up
  // the channel or the run.
  std::vector<int64_t> never = {};
};

class TcpMesh {
 public:
  // Called with every text received, in order, by the thread that makes
  // progress.
  using Hears =
      std::function<void(int process, int64_t matter, std::string text)>;
  // Called with the exit code when another process ends the job.
  using Ends = std::function<void(int code)>;

  // The connections by process; the entry of this process is empty.
  TcpMesh(std::vector<Socket>, Hears, Ends);
  ~TcpMesh();

  void send(int process, int64_t run, const Channel&, const void* data,
            int64_t bytes, TcpBatch&);
  void receive(int process, int64_t run, const Channel&, void* data,
               int64_t bytes, TcpBatch&);
  // The ranks from which messages are still to come.
  std::vector<int64_t> awaited(const TcpBatch&) const;
  // Drops the batch: none of its memory is read or written afterwards.
  void give_up(TcpBatch&) noexcept;
  // Drops messages of earlier runs, those received and those still to come.
  void begin_run(int64_t run);

  void tell(int process, int64_t matter, std::string_view text);
  // Sends and receives as much as possible without waiting, unless another
  // thread is doing so.
  void progress();
  // Sleeps until something arrives, at most that long. If several threads rest,
  // one of them polls for all.
  void rest(std::chrono::microseconds most);

  // Whether the process has ended, or has said goodbye.
  bool leaves(int process) const;
  // Whether the process has ended without saying that it completed that run.
  bool lost_in(int process, int64_t run) const;
  // This process ends, having completed its runs up to `run`: says goodbye to
  // the others, and waits until they have said it too, or until `end`.
  void leave(int64_t run, Socket::Clock::time_point end);
  // Tells the other processes to end with `code`; waits until `end` at most.
  void abort(int code, Socket::Clock::time_point end) noexcept;

 private:
  struct Line;
  struct Key {
    int64_t run, from, to;
    int lane;
    auto operator<=>(const Key&) const = default;
  };

  Line& line(int process) const {
    return *lines_[static_cast<size_t>(process)];
  }
  void watch(std::vector<pollfd>&) const;
  void progress_locked();
  void read(Line&);
  void unpack(Line&);
  void close_piece(Line&);
  void say_locked(int process, uint32_t kind, int64_t matter,
                  std::string_view text);
  void flush_until(Socket::Clock::time_point end, bool goodbyes);

  const Hears hears_;
  const Ends ends_;
  mutable std::mutex mutex_;  // guards everything below, and the lines
  std::vector<std::unique_ptr<Line>> lines_;
  std::vector<pollfd> polled_;
  std::condition_variable looked_;  // one thread has polled for all
  std::atomic<int> resting_ = 0;    // threads that wait for looked_
  std::mutex looks_;                // held by the thread that polls
  std::vector<char> nowhere_;       // receives data that is to be dropped
  int64_t run_ = 0;
};

}  // namespace dtensor
