#include "dtensor/comm/mpi/job.h"

#define OMPI_SKIP_MPICXX  // the C interface will do
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <list>
#include <thread>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;

// How long other processes may take to reach the end after the job has failed.
constexpr auto kEnd = 1s;

// A communicator of all processes that returns errors instead of aborting.
MPI_Comm communicator_of_all() {
  MPI_Comm made;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &made), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN),
            "MPI_Comm_set_errhandler");
  return made;
}

}  // namespace

struct MpiJob::Mpi {
  MPI_Comm control = MPI_COMM_NULL;
  struct Sent {
    std::string text;
    MPI_Request request;
  };
  std::list<Sent> sent;
};

void check_mpi(int code, std::string_view function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int size = 0;
  MPI_Error_string(code, text, &size);
  fail("mpi", "{} failed: {}", function, std::string_view(text));
}

MpiJob& MpiJob::get() {
  static auto* const job =
      new MpiJob;  // never destroyed: MPI may end after static variables
  return *job;
}

MpiJob::MpiJob() : mpi_(std::make_unique<Mpi>()) {
  int begun = 0, ended = 0, threads = MPI_THREAD_SINGLE;
  check_mpi(MPI_Finalized(&ended), "MPI_Finalized");
  DT_CHECK(!ended, "mpi",
           "MPI cannot be initialized again after MPI_Finalize; call "
           "MPI_Finalize after the last run()");
  check_mpi(MPI_Initialized(&begun), "MPI_Initialized");
  if (begun) {
    check_mpi(MPI_Query_thread(&threads), "MPI_Query_thread");
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads),
              "MPI_Init_thread");
    ours_ = true;
  }
  DT_CHECK(threads == MPI_THREAD_MULTIPLE, "mpi",
           "{}, but ranks have several threads; {}",
           begun ? "MPI was initialized without MPI_THREAD_MULTIPLE"
                 : "this MPI does not support MPI_THREAD_MULTIPLE",
           begun ? "request it from MPI_Init_thread"
                 : "use one that does, such as Debian's Open MPI");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &process_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &processes_), "MPI_Comm_size");
  mpi_->control = communicator_of_all();
  data_ = MPI_Comm_c2f(communicator_of_all());
  if (ours_) std::atexit(end);
}

MpiJob::~MpiJob() = default;

// The processes finalize together. Not all processes of a job that has failed
// may get here.
void MpiJob::end() {
  MpiJob& job = get();
  int ended = 0;
  if (MPI_Finalized(&ended) != MPI_SUCCESS || ended) return;
  MPI_Request all;
  if (MPI_Ibarrier(job.mpi_->control, &all) != MPI_SUCCESS) return;
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0; !done; std::this_thread::sleep_for(100us)) {
    MPI_Test(&all, &done, MPI_STATUS_IGNORE);
    if (!done && job.failed() &&
        std::chrono::steady_clock::now() - start > kEnd)
      MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}

void MpiJob::tell(int64_t matter, int process, std::string_view text) {
  std::lock_guard lock(mutex_);
  mpi_->sent.remove_if([](Mpi::Sent& s) {
    int done = 0;
    return MPI_Test(&s.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
           done;
  });
  Mpi::Sent& s = mpi_->sent.emplace_back();
  s.text = fmt::format("{} {}", matter, text);
  check_mpi(MPI_Isend(s.text.data(), static_cast<int>(s.text.size()), MPI_CHAR,
                      process, 0, mpi_->control, &s.request),
            "MPI_Isend");
}

void MpiJob::listen() {
  std::lock_guard lock(mutex_);
  for (;;) {
    int come = 0;
    MPI_Message message;
    MPI_Status status;
    check_mpi(
        MPI_Improbe(MPI_ANY_SOURCE, 0, mpi_->control, &come, &message, &status),
        "MPI_Improbe");
    if (!come) return;
    int size = 0;
    check_mpi(MPI_Get_count(&status, MPI_CHAR, &size), "MPI_Get_count");
    std::string text(static_cast<size_t>(size), 0);
    check_mpi(
        MPI_Mrecv(text.data(), size, MPI_CHAR, &message, MPI_STATUS_IGNORE),
        "MPI_Mrecv");
    const size_t space = text.find(' ');
    deliver(std::stoll(text.substr(0, space)),
            {status.MPI_SOURCE, text.substr(space + 1)});
  }
}

int64_t MpiJob::number_run(int64_t ranks_per_process) {
  if (!clean_) {
    // The old communicator stays, with the messages still under way on it.
    data_ = MPI_Comm_c2f(communicator_of_all());
  }
  if (!clean_ || rings_for_ != ranks_per_process) {
    rings_ = std::make_unique<SharedRings>(data_, ranks_per_process);
    rings_for_ = ranks_per_process;
  }
  clean_ = false;
  return next_run();
}

std::string MpiJob::launcher(int64_t processes) const {
  return fmt::format("mpirun -n {}", processes);
}

}  // namespace dtensor
