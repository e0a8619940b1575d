// Messages over one connection between every two processes of a job.
//
// They go in pieces, each behind a header that names the run and the channel:
// a long one of one channel holds up others by a piece at most, and what a
// failed run has left on its way is known for what it is. What comes is read
// straight to where a receive wants it, or kept until there is one.
//
// There is no thread for it: whoever waits calls progress(), as does the thread
// that listens in each run. A thread of its own would wake up for each message,
// and wake another one, where the waiting one has the processor already.
#pragma once
#include <poll.h>

#include <atomic>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
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

// What one thread has on its way; it outlives that.
struct TcpBatch {
  // -1: it has not come; -2: it is longer than what was asked for.
  struct Came {
    std::atomic<int64_t> bytes = -1;
  };
  std::deque<Came> came;          // of its receives
  std::atomic<int64_t> left = 0;  // sends and receives that are not done
};

class TcpMesh {
 public:
  // Told of every text that has come, in order, by whoever makes progress.
  using Hears =
      std::function<void(int process, int64_t matter, std::string text)>;
  // Told of the code when another process ends the job.
  using Ends = std::function<void(int code)>;

  // By process; to itself there is no connection.
  TcpMesh(std::vector<Socket>, Hears, Ends);
  ~TcpMesh();

  void send(int process, int64_t run, const Channel&, const void* data,
            int64_t bytes, TcpBatch&);
  void receive(int process, int64_t run, const Channel&, void* data,
               int64_t bytes, TcpBatch&);
  // Of what the batch has on its way, nothing is read or written any more.
  void give_up(TcpBatch&) noexcept;
  // What came for runs before this one is let go of, and what will.
  void begin_run(int64_t run);

  void tell(int process, int64_t matter, std::string_view text);
  // Sends and receives what it can, unless another thread is at it.
  void progress();
  // Sleeps until something comes, at most so long. Of several threads one looks
  // for all of them.
  void rest(std::chrono::microseconds most);

  // Has the process ended, or said that it will?
  bool leaves(int process) const;
  // Has it ended, and not said that it had come to the end of that run?
  bool lost_in(int process, int64_t run) const;
  // The end of this process, which has ended its runs up to that one: tells the
  // others, and waits until they have said so too, or `end`.
  void leave(int64_t run, Socket::Clock::time_point end);
  // Tells the others to end, too.
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
  mutable std::mutex mutex_;  // guards what follows, and the lines
  std::vector<std::unique_ptr<Line>> lines_;
  std::vector<pollfd> polled_;
  std::condition_variable looked_;  // somebody has looked for all
  std::atomic<int> resting_ = 0;    // threads that wait for that
  std::mutex looks_;                // of who looks
  std::vector<char> nowhere_;       // what nobody wants goes there
  int64_t run_ = 0;
};

}  // namespace dtensor
