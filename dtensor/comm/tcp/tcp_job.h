// SPDX-License-Identifier: Apache-2.0
// A job of processes connected over TCP, with one connection per pair.
//
// Messages are sent in pieces, and the channels of a connection take turns.
// Therefore a long message delays the next message of another channel by one
// piece at most. Control messages overtake data and are not interrupted. The
// first piece of a message names the run and the channel, so that leftovers of
// a failed run are recognized. Each header carries a checksum. After a header
// that is damaged or makes no sense, nothing more is read from the connection.
// Most data of a long message is read straight into the buffer of its receive.
// Data that comes before its receive begins is kept until then.
//
// The job has no thread of its own for messages. The threads that wait move
// them, and so does the thread of each run's Membership. An additional thread
// would have to wake up for each message and then wake the waiting thread,
// which has the processor already.
#pragma once
#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/job.h"
#include "dtensor/comm/tcp/socket.h"

namespace dtensor {

class TcpJob final : public ProcessJob {
 public:
  // The connections to the other processes, by process; the entry of this
  // process is empty (tcp_rendezvous.h).
  TcpJob(int process, std::vector<Socket>);
  // Calls leave(), and ignores its Error.
  ~TcpJob() override;
  // Says goodbye to the other processes, so that they do not believe that this
  // one has crashed. Waits until each has said goodbye or its connection has
  // ended, or until another process ends the job. Does nothing in the middle of
  // a run, or when called again. Throws NoAnswer if the wait takes too long,
  // unless the job has failed before.
  void leave();

  std::string launcher(int64_t processes) const override;
  std::unique_ptr<PendingMessages> pending_messages() override;
  bool rest(std::chrono::microseconds most) override;
  // Returns a process that lost its connection before it said that it has
  // completed this run, or -1.
  int lost_in_run() override;
  std::string why_lost(int process) override;
  void end_run(bool) override { over_ = run_; }
  void abort(int code) noexcept override;
  bool lost(int process) override;
  int ended_with() override { return code_; }

 private:
  class Connection;
  class Messages;

  void open_run(int64_t run, int64_t ranks_per_process) override;
  void send(int64_t matter, int process, std::string text) override;
  // Sends and receives without waiting: per connection and direction, about
  // kMostAtOnce bytes at most. Does nothing if another thread holds the mutex.
  void listen() override;
  void progress();  // with the mutex held
  void watch(std::vector<pollfd>&) const;
  void say_all(uint32_t kind, int64_t matter, const std::string& text);
  // Makes progress, and then returns the processes with connections for which
  // `is_left` is true.
  template <class IsLeft>
  std::vector<int> left(const IsLeft&);
  void end_with(int code);

  int64_t run_ = 0, over_ = 0;  // the last run, and the last one that is over
  int64_t per_process_ = 1;     // how many ranks of the run a process has
  bool has_left_ = false;
  std::atomic<int> code_ = 0;  // exit code with which another process ends all

  std::mutex mutex_;  // guards all_, polled_ and damage_
  std::vector<std::unique_ptr<Connection>> all_;
  std::vector<pollfd> polled_;
  std::string damage_;              // an error that listen() has not thrown yet
  std::condition_variable looked_;  // notified after each poll of rest()
  std::atomic<int> resting_ = 0;    // threads that wait for looked_
  std::mutex looks_;                // held by the thread that polls in rest()
};

}  // namespace dtensor
