// A job of processes connected over TCP, and the transports of its runs.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/job.h"
#include "dtensor/comm/tcp/socket.h"
#include "dtensor/comm/tcp/tcp_mesh.h"

namespace dtensor {

class TcpJob final : public ProcessJob {
 public:
  // `connections` are those to the other processes, by process
  // (tcp_rendezvous.h).
  TcpJob(int process, std::vector<Socket> connections);
  // Says goodbye, so that the others do not believe that this process has
  // crashed; says nothing in the middle of a run.
  ~TcpJob() override;

  int process() const override { return process_; }
  int processes() const override { return processes_; }
  std::unique_ptr<Transport> begin_run(int64_t ranks_per_process) override;
  std::string launcher(int64_t processes) const override;
  void tell(int64_t matter, int process, std::string_view text) override;
  bool lost(int process) override;
  int ended_with() override { return code_; }

 private:
  class RunTransport;
  void listen() override { mesh_.progress(); }
  void end_with(int code);

  const int process_, processes_;
  std::atomic<int64_t> over_ = 0;  // the last run that is over
  std::atomic<int> code_ = 0;      // with which another process ends all
  TcpMesh mesh_;
};

}  // namespace dtensor
