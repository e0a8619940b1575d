// SPDX-License-Identifier: Apache-2.0
// A job over MPI.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/deadline.h"
#include "dtensor/comm/mpi.h"
#include "dtensor/comm/mpi/shared_rings.h"
#include "dtensor/environment.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;

using Milliseconds = std::chrono::milliseconds;

// How long other processes may take to reach the end after the job has failed.
constexpr auto kEnd = 1s;
// The least patience at the end of the program. All work is done by then, so a
// long wait does no harm, and the launcher may be stopped for a while.
constexpr auto kLeastEnd = 10s;
// MPI counts in int, so messages of more than this many bytes are sent in
// pieces. Both ends count the same number of pieces, because such a message has
// exactly the size of its receive buffer. Tests use smaller pieces:
// DTENSOR_MPI_PIECE bytes, the same in every process.
constexpr int64_t kPiece = int64_t{1} << 30;
// The smallest piece that can be set. Only a receive of up to this many bytes
// may get a shorter message, so such a receive has to be one piece.
constexpr int64_t kLeastPiece = 4096;
int64_t piece_bytes() {
  const char* text = std::getenv("DTENSOR_MPI_PIECE");
  return text ? std::clamp<int64_t>(std::atoll(text), kLeastPiece, kPiece)
              : kPiece;
}

// A communicator of all processes that returns errors instead of aborting.
MPI_Comm communicator_of_all() {
  MPI_Comm made;
  DT_MPI(MPI_Comm_dup, MPI_COMM_WORLD, &made);
  DT_MPI(MPI_Comm_set_errhandler, made, MPI_ERRORS_RETURN);
  return made;
}

class MpiPendingMessages final : public PendingMessages {
 public:
  MpiPendingMessages(MPI_Comm data, const SharedRings& rings,
                     int64_t ranks_per_process, const Patience& patience)
      : data_(data),
        rings_(rings),
        per_process_(ranks_per_process),
        patience_(patience) {}
  ~MpiPendingMessages() override { MpiPendingMessages::give_up(); }

  void send(const Channel& c, const void* data, int64_t bytes) override {
    if (Ring* ring = rings_.ring(c, bytes)) {
      Pending p{.ring = ring, .out = data, .bytes = bytes};
      p.message = ring->sent++;
      if (!send_on_ring(p)) pending_.push_back(p);
      return;
    }
    for (int64_t at = 0; at < bytes; at += piece_)
      DT_MPI(MPI_Isend, static_cast<const char*>(data) + at,
             static_cast<int>(std::min(piece_, bytes - at)), MPI_BYTE,
             process(c.to), tag(c), data_, &pending_.emplace_back().request);
  }
  void receive(const Channel& c, void* data, int64_t bytes) override {
    if (Ring* ring = rings_.ring(c, bytes)) {
      pending_.push_back(
          {.from = c.from, .ring = ring, .in = data, .bytes = bytes});
      pending_.back().message = ring->received++;
      return;
    }
    for (int64_t at = 0; at < bytes; at += piece_)
      DT_MPI(MPI_Irecv, static_cast<char*>(data) + at,
             static_cast<int>(std::min(piece_, bytes - at)), MPI_BYTE,
             process(c.from), tag(c), data_,
             &pending_.emplace_back(Pending{.from = c.from}).request);
  }
  bool done() override {
    std::erase_if(pending_, [&](Pending& p) {
      if (p.ring) return p.in ? receive_on_ring(p) : send_on_ring(p);
      int done = 0;
      DT_MPI(MPI_Test, &p.request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
    return pending_.empty();
  }
  std::vector<int64_t> awaited() const override {
    std::vector<int64_t> ranks;
    for (const Pending& p : pending_)
      if (p.from >= 0) ranks.push_back(p.from);
    return ranks;
  }
  void give_up() noexcept override {
    std::optional<EndsInTime> clock;
    for (Pending& p : std::exchange(pending_, {})) {
      if (p.ring) continue;
      if (p.from < 0) {
        MPI_Request_free(&p.request);
        continue;
      }
      // If a message is already arriving, its receive still completes, unless
      // the sender is stopped.
      MPI_Cancel(&p.request);
      int done = 0;
      MPI_Test(&p.request, &done, MPI_STATUS_IGNORE);
      if (done) continue;
      // If there is no memory or thread for a clock, waits without a deadline.
      if (!clock) try {
          clock.emplace(processes_to_string({process(p.from)}),
                        "give up the messages of a failed run", patience_);
        } catch (const std::exception&) {
        }
      MPI_Wait(&p.request, MPI_STATUS_IGNORE);
    }
  }

 private:
  struct Pending {
    int64_t from = -1;  // the sender; -1: this is a send
    MPI_Request request = MPI_REQUEST_NULL;
    // For a message on a ring, which has no MPI request:
    Ring* ring = nullptr;
    const void* out = nullptr;  // for a send
    void* in = nullptr;         // for a receive
    int64_t bytes = 0;
    uint64_t message = 0;
    bool placed = false;
  };

  // Advance the message as far as possible without waiting. Return whether the
  // message is done.
  bool receive_on_ring(Pending& p) {
    Ring::Slot& s = p.ring->slot(p.message);
    if (s.turn.load(std::memory_order_acquire) != p.message + 1) return false;
    DT_CHECK(s.bytes <= p.bytes, "mpi",
             "a message of {} bytes came for a buffer of {}, which is an error "
             "in dtensor; report it",
             s.bytes, p.bytes);
    if (p.bytes <= Ring::kShort)
      std::memcpy(p.in, s.data, static_cast<size_t>(s.bytes));
    else
      rings_.read(p.from, p.in, s.there, s.bytes);
    s.turn.store(p.message + Ring::kSlots, std::memory_order_release);
    return true;
  }
  bool send_on_ring(Pending& p) {
    Ring::Slot& s = p.ring->slot(p.message);
    const uint64_t turn = s.turn.load(std::memory_order_acquire);
    // A long message is done when the receiver has read it from this memory.
    if (p.placed) return turn >= p.message + Ring::kSlots;
    if (turn != p.message) return false;
    const bool is_short = p.bytes <= Ring::kShort;
    s.bytes = p.bytes;
    s.there = p.out;
    if (is_short) std::memcpy(s.data, p.out, static_cast<size_t>(p.bytes));
    s.turn.store(p.message + 1, std::memory_order_release);
    p.placed = true;
    return is_short;
  }

  int process(int64_t rank) const {
    return static_cast<int>(rank / per_process_);
  }
  int tag(const Channel& c) const {
    return static_cast<int>(
        (c.from % per_process_ * per_process_ + c.to % per_process_) *
            Backend::kLanes +
        c.lane);
  }

  const MPI_Comm data_;
  const SharedRings& rings_;
  const int64_t per_process_, piece_ = piece_bytes();
  const Patience patience_;
  std::vector<Pending> pending_;
};

class MpiJob final : public ProcessJob {
 public:
  // Throws Error, on every call, if MPI cannot be used.
  static MpiJob& get() {
    // Never destroyed: MPI may end after static variables.
    static auto* const job = new MpiJob;
    return *job;
  }

  std::string launcher(int64_t processes) const override {
    return fmt::format("mpirun -n {}", processes);
  }
  std::unique_ptr<PendingMessages> pending_messages() override {
    return std::make_unique<MpiPendingMessages>(data_, *rings_, rings_for_,
                                                patience());
  }
  int lost_in_run() override { return rings_->lost(); }
  void end_run(bool clean) override { clean_ = clean; }
  void abort(int code) noexcept override { MPI_Abort(MPI_COMM_WORLD, code); }

 private:
  MpiJob();
  static void end();
  void end_in_time();
  void meet(int64_t matter, std::string_view phase);
  void send(int64_t matter, int process, std::string text) override;
  void open_run(int64_t run, int64_t ranks_per_process) override;
  void listen() override;

  MPI_Comm data_, control_;
  std::unique_ptr<SharedRings> rings_;
  int64_t rings_for_ = 0;  // the ranks per process for which rings_ was made
  bool clean_ = true;      // no message of an earlier run is under way

  struct Sent {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::mutex mutex_;  // guards control messages
  std::list<Sent> sent_;
};

MpiJob::MpiJob() {
  int begun = 0, ended = 0, threads = MPI_THREAD_SINGLE;
  DT_MPI(MPI_Finalized, &ended);
  const EndsInTime clock("the other processes", "initialize MPI", patience());
  DT_CHECK(!ended, "mpi",
           "MPI cannot be initialized again after MPI_Finalize; call "
           "MPI_Finalize after the last run()");
  DT_MPI(MPI_Initialized, &begun);
  if (begun)
    DT_MPI(MPI_Query_thread, &threads);
  else
    DT_MPI(MPI_Init_thread, nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads);
  DT_CHECK(threads == MPI_THREAD_MULTIPLE, "mpi",
           "{}, but ranks have several threads; {}",
           begun ? "MPI was initialized without MPI_THREAD_MULTIPLE"
                 : "this MPI does not support MPI_THREAD_MULTIPLE",
           begun ? "request it from MPI_Init_thread"
                 : "use one that does, such as Debian's Open MPI");
  DT_MPI(MPI_Comm_rank, MPI_COMM_WORLD, &process_);
  DT_MPI(MPI_Comm_size, MPI_COMM_WORLD, &processes_);
  control_ = communicator_of_all();
  data_ = communicator_of_all();
  // A program that initialized MPI itself also finalizes it.
  if (!begun) std::atexit(end);
}

// Called at the end of the program. The processes finalize MPI together; if the
// job has failed, some of them may not get here.
void MpiJob::end() {
  int ended = 0;
  if (MPI_Finalized(&ended) != MPI_SUCCESS || ended) return;
  const StopOnSignals signals;
  try {
    get().end_in_time();
  } catch (const std::exception& e) {
    end_process(interrupted() ? 128 + interrupted() : 1, e.what(),
                [] { MPI_Abort(MPI_COMM_WORLD, 1); });
  }
}

void MpiJob::end_in_time() {
  const char* const phase = "leave the program";
  const bool fails = failed();
  if (!fails) meet(kLeaves, phase);
  Patience last = patience();
  if (last.time > 0s) last.time = std::max(last.time, Milliseconds(kLeastEnd));
  // All processes have met by now, or the failure has been printed. mpirun may
  // then signal the processes that are left, which need not print another
  // error.
  const EndsInTime clock("the other processes", phase, last,
                         /*heeds_signals=*/false);
  MPI_Request all;
  if (MPI_Ibarrier(control_, &all) != MPI_SUCCESS) return;
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0; !done; std::this_thread::sleep_for(100us)) {
    MPI_Test(&all, &done, MPI_STATUS_IGNORE);
    if (!done && fails && std::chrono::steady_clock::now() - start > kEnd)
      MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}

// Waits for all processes before they call a collective of MPI, which cannot be
// interrupted and does not say which process is missing.
void MpiJob::meet(int64_t matter, std::string_view phase) {
  const JobVerdict all = settle(matter, {}, phase);
  if (all.code != 0) throw Error(all.text);
}

// Prepares a run so that messages left over from an earlier, failed run do not
// reach it.
void MpiJob::open_run(int64_t, int64_t ranks_per_process) {
  int* most = nullptr;
  int there = 0;
  DT_MPI(MPI_Comm_get_attr, data_, MPI_TAG_UB, &most, &there);
  DT_CHECK(
      there && ranks_per_process * ranks_per_process * Backend::kLanes <= *most,
      "mpi",
      "{} ranks in a process need tags up to {}, but this MPI allows tags up "
      "to {}; start more processes, with fewer ranks in each",
      ranks_per_process,
      ranks_per_process * ranks_per_process * Backend::kLanes,
      there ? *most : 0);
  const bool clean = std::exchange(clean_, false);
  if (clean && rings_for_ == ranks_per_process) return;
  const char* const phase = "begin a run";
  meet(kBegins, phase);
  const EndsInTime clock("the other processes", phase, patience());
  // The old communicator is not freed: messages are still under way on it.
  if (!clean) data_ = communicator_of_all();
  rings_ = std::make_unique<SharedRings>(data_, ranks_per_process);
  rings_for_ = ranks_per_process;
}

void MpiJob::send(int64_t matter, int process, std::string text) {
  std::lock_guard lock(mutex_);
  sent_.remove_if([](Sent& s) {
    int done = 0;
    return MPI_Test(&s.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
           done;
  });
  Sent& s = sent_.emplace_back(fmt::format("{} {}", matter, text));
  DT_MPI(MPI_Isend, s.text.data(), static_cast<int>(s.text.size()), MPI_CHAR,
         process, 0, control_, &s.request);
}

void MpiJob::listen() {
  std::lock_guard lock(mutex_);
  for (;;) {
    int come = 0, size = 0;
    MPI_Message message;
    MPI_Status status;
    DT_MPI(MPI_Improbe, MPI_ANY_SOURCE, 0, control_, &come, &message, &status);
    if (!come) return;
    DT_MPI(MPI_Get_count, &status, MPI_CHAR, &size);
    std::string text(static_cast<size_t>(size), 0);
    DT_MPI(MPI_Mrecv, text.data(), size, MPI_CHAR, &message, MPI_STATUS_IGNORE);
    const size_t space = text.find(' ');
    const auto matter = number_in<int64_t>(text.substr(0, space),
                                           std::numeric_limits<int64_t>::min());
    DT_CHECK(matter && space != text.npos, "mpi",
             "a control message of {} bytes from process {} to process {} is "
             "damaged, because it does not begin with a number; look for "
             "faulty memory or a faulty network between the two",
             size, status.MPI_SOURCE, process());
    deliver(*matter, {status.MPI_SOURCE, text.substr(space + 1)});
  }
}

}  // namespace

bool mpi_is_built() { return true; }

ProcessJob& mpi_job(const JobFacts& facts) {
  MpiJob& job = MpiJob::get();
  static const bool same = (job.compare(facts), true);
  static_cast<void>(same);
  return job;
}

}  // namespace dtensor
