// SPDX-License-Identifier: Apache-2.0
// A job of processes connected over TCP, with one connection per pair.
//
// Messages are sent in pieces, and the channels of a connection take turns.
// Therefore a long message delays messages of other channels by one piece at
// most. The first piece of a message names the run and the channel, so that
// leftovers of a failed run are recognized. Each header carries a checksum: one
// that is damaged, or makes no sense, ends what can be read of the connection.
// Data is read straight into the buffer of its receive, or kept until there is
// one.
//
// The job has no thread: threads that wait make progress, as does the listening
// thread of each run. A thread of its own would have to wake up for each
// message and then wake the waiting thread, which has the processor already.
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
  // Leaves, unless that is done.
  ~TcpJob() override;
  // Says goodbye, so that the others do not believe that this process has
  // crashed, and waits for the goodbyes of the others; does nothing in the
  // middle of a run. Throws NoAnswer if some do not come, unless the job has
  // failed before.
  void leave();

  std::string launcher(int64_t processes) const override;
  std::unique_ptr<PendingMessages> pending_messages() override;
  bool rest(std::chrono::microseconds most) override;
  // A process that has ended without saying that it completed this run.
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
  // Sends and receives as much as possible without waiting, unless another
  // thread is doing so.
  void listen() override;
  void progress();  // with the mutex held
  void watch(std::vector<pollfd>&) const;
  void say_all(uint32_t kind, int64_t matter, const std::string& text);
  // The processes for which `is_left` holds of their connections; makes
  // progress first.
  template <class IsLeft>
  std::vector<int> left(const IsLeft&);
  void end_with(int code);

  int64_t run_ = 0, over_ = 0;  // the last run, and the last one that is over
  int64_t per_process_ = 1;     // ranks of the run
  bool has_left_ = false;
  std::atomic<int> code_ = 0;  // with which another process ends all

  std::mutex mutex_;  // guards the connections, and polled_
  std::vector<std::unique_ptr<Connection>> all_;
  std::vector<pollfd> polled_;
  std::string damage_;              // that listen() has not reported yet
  std::condition_variable looked_;  // one thread has polled for all
  std::atomic<int> resting_ = 0;    // threads that wait for looked_
  std::mutex looks_;                // held by the thread that polls
};

}  // namespace dtensor
