#include "dtensor/comm/tcp/tcp_job.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using Clock = Socket::Clock;

// How long the others may take to say goodbye: in a job that has failed, and in
// one that has not.
constexpr auto kEnd = 1s, kPatientEnd = 10s;
// How long a process may take to end after another process ended the job.
constexpr auto kStop = 1s;
constexpr auto kTell = 200ms;

class TcpPendingMessages final : public PendingMessages {
 public:
  TcpPendingMessages(TcpMesh& mesh, int64_t run, int64_t ranks_per_process)
      : mesh_(mesh), run_(run), per_process_(ranks_per_process) {}
  ~TcpPendingMessages() override { TcpPendingMessages::give_up(); }

  void send(const Channel& c, const void* data, int64_t bytes) override {
    mesh_.send(process(c.to), run_, c, data, bytes, batch_);
  }
  void receive(const Channel& c, void* data, int64_t bytes) override {
    mesh_.receive(process(c.from), run_, c, data, bytes, batch_);
  }
  bool done() override {
    if (batch_.left.load(std::memory_order_acquire) > 0) mesh_.progress();
    const bool all = batch_.left.load(std::memory_order_acquire) == 0;
    const int64_t most = batch_.refused;
    DT_CHECK(most == 0, "tcp",
             "a message of more than {} bytes came for a buffer of {}", most,
             most);
    return all;
  }
  std::vector<int64_t> awaited() const override {
    return mesh_.awaited(batch_);
  }
  void give_up() noexcept override { mesh_.give_up(batch_); }

 private:
  int process(int64_t rank) const {
    return static_cast<int>(rank / per_process_);
  }

  TcpMesh& mesh_;
  const int64_t run_, per_process_;
  TcpBatch batch_;
};

}  // namespace

class TcpJob::RunTransport final : public Transport {
 public:
  RunTransport(TcpJob& job, int64_t run, int64_t ranks_per_process)
      : job_(job), run_(run), per_process_(ranks_per_process) {}
  ~RunTransport() override { job_.over_ = run_; }

  int process() const override { return job_.process(); }
  int processes() const override { return job_.processes(); }
  std::unique_ptr<PendingMessages> pending_messages() override {
    return std::make_unique<TcpPendingMessages>(job_.mesh_, run_, per_process_);
  }
  void tell(int process, std::string_view text) override {
    job_.tell(run_, process, text);
  }
  std::optional<Told> told() override { return job_.told(run_); }
  bool rest(std::chrono::microseconds most) override {
    job_.mesh_.rest(most);
    return true;
  }
  int lost() override {
    for (int p = 0; p < processes(); ++p)
      if (p != process() && job_.mesh_.lost_in(p, run_)) return p;
    return -1;
  }
  std::string_view why_lost() const override {
    return "the connection to its process has ended in the middle of the run "
           "(it was killed, it crashed, or the network was cut)";
  }
  void close() override {}
  void abort(int code) noexcept override {
    job_.mesh_.abort(code, Clock::now() + kTell);
  }

 private:
  TcpJob& job_;
  const int64_t run_, per_process_;
};

TcpJob::TcpJob(int process, std::vector<Socket> connections)
    : process_(process),
      processes_(static_cast<int>(connections.size())),
      mesh_(
          std::move(connections),
          [this](int from, int64_t matter, std::string text) {
            deliver(matter, {from, std::move(text)});
          },
          [this](int code) { end_with(code); }) {}

TcpJob::~TcpJob() {
  if (over_ == runs())
    mesh_.leave(over_, Clock::now() + (failed() ? kEnd : kPatientEnd));
}

std::string TcpJob::launcher(int64_t processes) const {
  return fmt::format("torchrun --nproc-per-node {} (WORLD_SIZE={})", processes,
                     processes);
}

void TcpJob::tell(int64_t matter, int process, std::string_view text) {
  mesh_.tell(process, matter, text);
}

bool TcpJob::lost(int process) {
  return process != process_ && mesh_.leaves(process);
}

std::unique_ptr<Transport> TcpJob::begin_run(int64_t ranks_per_process) {
  const int64_t run = next_run();
  mesh_.begin_run(run);
  return std::make_unique<RunTransport>(*this, run, ranks_per_process);
}

// As a launcher does: SIGTERM first, and _Exit after a while. Some ranks end by
// themselves when asked; others may not check in time.
void TcpJob::end_with(int code) {
  if (code_.exchange(code == 0 ? 1 : code) != 0) return;
  std::thread([code = code_.load()] {
    std::this_thread::sleep_for(kStop);
    std::fflush(stdout);
    std::_Exit(code);
  }).detach();
  kill(getpid(), SIGTERM);
}

}  // namespace dtensor
