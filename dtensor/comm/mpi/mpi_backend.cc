// The transport of a run over MPI.
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "dtensor/comm/mpi.h"
#include "dtensor/comm/mpi/job.h"
#include "dtensor/comm/mpi/shared_rings.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// MPI counts in int, so longer messages are sent in pieces. Both ends count the
// same number of pieces, because such a message has exactly the size of its
// receive buffer. Tests use smaller pieces: DTENSOR_MPI_PIECE bytes, the same
// in every process.
constexpr int64_t kPiece = int64_t{1} << 30;
// A receive of "at most" this many bytes is one piece.
constexpr int64_t kLeastPiece = 4096;
int64_t piece_bytes() {
  const char* text = std::getenv("DTENSOR_MPI_PIECE");
  return text ? std::clamp<int64_t>(std::atoll(text), kLeastPiece, kPiece)
              : kPiece;
}

class MpiPendingMessages final : public PendingMessages {
 public:
  MpiPendingMessages(CommHandle data, const SharedRings& rings,
                     int64_t ranks_per_process)
      : data_(MPI_Comm_f2c(data)),
        rings_(rings),
        per_process_(ranks_per_process),
        piece_(piece_bytes()) {}
  ~MpiPendingMessages() override { MpiPendingMessages::give_up(); }

  void send(const Channel& c, const void* data, int64_t bytes) override {
    if (Ring* ring = rings_.to(c, bytes)) {
      OnRing& r = on_rings_.emplace_back();
      r.ring = ring;
      r.out = data;
      r.bytes = bytes;
      r.message = ring->sent++;
      step(r);
      if (r.done) on_rings_.pop_back();
      return;
    }
    for (int64_t at = 0; at < bytes; at += piece_) {
      Way& w = ways_.emplace_back();
      check_mpi(MPI_Isend(static_cast<const char*>(data) + at,
                          static_cast<int>(std::min(piece_, bytes - at)),
                          MPI_BYTE, process(c.to), tag(c), data_, &w.request),
                "MPI_Isend");
    }
  }
  void receive(const Channel& c, void* data, int64_t bytes) override {
    if (Ring* ring = rings_.from(c, bytes)) {
      OnRing& r = on_rings_.emplace_back();
      r.ring = ring;
      r.in = data;
      r.bytes = bytes;
      r.message = ring->received++;
      r.from = c.from;
      return;
    }
    for (int64_t at = 0; at < bytes; at += piece_) {
      Way& w = ways_.emplace_back();
      w.from = c.from;
      check_mpi(MPI_Irecv(static_cast<char*>(data) + at,
                          static_cast<int>(std::min(piece_, bytes - at)),
                          MPI_BYTE, process(c.from), tag(c), data_, &w.request),
                "MPI_Irecv");
    }
  }
  bool done() override {
    std::erase_if(on_rings_, [&](OnRing& r) {
      step(r);
      return r.done;
    });
    std::erase_if(ways_, [&](Way& w) {
      int done = 0;
      check_mpi(MPI_Test(&w.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done;
    });
    return ways_.empty() && on_rings_.empty();
  }
  std::vector<int64_t> awaited() const override {
    std::vector<int64_t> ranks;
    for (const OnRing& r : on_rings_)
      if (r.in) ranks.push_back(r.from);
    for (const Way& w : ways_)
      if (w.from >= 0) ranks.push_back(w.from);
    return ranks;
  }
  void give_up() noexcept override {
    for (Way& w : ways_) {
      if (w.from < 0) {
        MPI_Request_free(&w.request);
        continue;
      }
      // A receive that has already begun still completes.
      MPI_Cancel(&w.request);
      MPI_Wait(&w.request, MPI_STATUS_IGNORE);
    }
    ways_.clear();
    on_rings_.clear();
  }

 private:
  struct Way {
    MPI_Request request;
    int64_t from = -1;  // of a receive
  };
  struct OnRing {
    Ring* ring;
    const void* out = nullptr;  // for a send
    void* in = nullptr;         // for a receive
    int64_t bytes;
    uint64_t message;
    int64_t from = -1;
    bool placed = false, done = false;
  };

  // Advances the message as far as possible without waiting.
  void step(OnRing& r) {
    Ring::Slot& s = r.ring->slot(r.message);
    const uint64_t turn = s.turn.load(std::memory_order_acquire);
    const bool is_short = r.bytes <= Ring::kShort;
    if (r.in) {
      if (turn != r.message + 1) return;
      DT_CHECK(s.bytes <= r.bytes, "mpi",
               "a message of {} bytes came for a buffer of {}", s.bytes,
               r.bytes);
      if (is_short)
        std::memcpy(r.in, s.data, static_cast<size_t>(s.bytes));
      else
        rings_.read(r.from, r.in, s.there, s.bytes);
      s.turn.store(r.message + Ring::kSlots, std::memory_order_release);
      r.done = true;
      return;
    }
    if (r.placed) {  // a long message, which the receiver reads
      r.done = turn >= r.message + Ring::kSlots;
      return;
    }
    if (turn != r.message) return;
    s.bytes = r.bytes;
    s.there = r.out;
    if (is_short) std::memcpy(s.data, r.out, static_cast<size_t>(r.bytes));
    s.turn.store(r.message + 1, std::memory_order_release);
    r.placed = true;
    r.done = is_short;
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
  const int64_t per_process_, piece_;
  std::vector<Way> ways_;
  std::vector<OnRing> on_rings_;
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(int64_t ranks_per_process)
      : per_process_(ranks_per_process),
        run_(MpiJob::get().number_run(ranks_per_process)) {
    int* most = nullptr;
    int there = 0;
    check_mpi(MPI_Comm_get_attr(MPI_Comm_f2c(job().data()), MPI_TAG_UB, &most,
                                &there),
              "MPI_Comm_get_attr");
    DT_CHECK(there && per_process_ * per_process_ * Backend::kLanes <= *most,
             "mpi", "{} ranks in a process are too many for this MPI's tags",
             per_process_);
  }
  int process() const override { return job().process(); }
  int processes() const override { return job().processes(); }
  std::unique_ptr<PendingMessages> pending_messages() override {
    return std::make_unique<MpiPendingMessages>(job().data(), job().rings(),
                                                per_process_);
  }
  void tell(int process, std::string_view text) override {
    job().tell(run_, process, text);
  }
  std::optional<Told> told() override { return job().told(run_); }
  int lost() override { return job().rings().lost(); }
  void close() override { job().run_went_well(); }
  void abort(int code) noexcept override { MPI_Abort(MPI_COMM_WORLD, code); }

 private:
  static MpiJob& job() { return MpiJob::get(); }

  const int64_t per_process_, run_;
};

}  // namespace

bool mpi_is_built() { return true; }

ProcessJob& mpi_job(const JobFacts& facts) {
  MpiJob& job = MpiJob::get();
  static const bool same = (job.compare(facts), true);
  static_cast<void>(same);
  return job;
}

std::unique_ptr<Transport> MpiJob::begin_run(int64_t ranks_per_process) {
  return std::make_unique<MpiTransport>(ranks_per_process);
}

}  // namespace dtensor
