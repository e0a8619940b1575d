// SPDX-License-Identifier: Apache-2.0
#include "dtensor/runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "dtensor/allocator.h"
#include "dtensor/comm/backend.h"
#include "dtensor/device/out_of_memory.h"
#include "dtensor/environment.h"
#include "dtensor/flight.h"
#include "dtensor/flight_recorder.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/trace.h"
#include "dtensor/tracer.h"

namespace dtensor {
namespace {

// Limits OpenMP to one thread for work of the calling thread, which is a rank.
// Looks the function up at run time, because OpenMP is linked only with oneDNN.
void use_one_openmp_thread() {
  using Set = void (*)(int);
  static const Set set =
      reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set) set(1);
}

// The backend of the launcher that started this process, such as mpirun or
// torchrun: all processes of a job share one run. Without a launcher, the ranks
// are threads of this process.
BackendFactory default_backend() {
  const std::string_view name = backend_by_launcher();
  if (name == "threads") return backend_named(name);
  const char* given = std::getenv("DTENSOR_RANKS_PER_PROCESS");
  const std::string_view text = given ? given : "1";
  const auto ranks = number_in<int64_t>(text, 1);
  DT_CHECK(ranks, "run",
           "DTENSOR_RANKS_PER_PROCESS is '{}'; write a whole number of at "
           "least 1",
           text);
  return backend_named(name, *ranks);
}

// How a rank left fn.
struct Outcome {
  std::exception_ptr error;
  bool own = false;  // false: the rank only reports another rank's failure
  double waited_for_core = -1;  // seconds; as in RunReport
};

// How long the calling thread has been ready to run without a core, in seconds;
// -1 if the kernel does not count it.
double core_wait() noexcept {
  std::FILE* file = std::fopen("/proc/thread-self/schedstat", "re");
  long long ran = 0, waited = 0;  // nanoseconds
  const bool known = file && std::fscanf(file, "%lld %lld", &ran, &waited) == 2;
  if (file) std::fclose(file);
  return known ? static_cast<double>(waited) * 1e-9 : -1;
}

std::shared_ptr<Backend> backend_of(const RunOptions& options) {
  std::shared_ptr<Backend> made;
  if (options.dry_run)
    made = null_backend();
  else if (options.backend)
    made = options.backend(options.world);
  else
    made = default_backend()(options.world);
  made->set_timeout(options.timeout);
  made->set_checksum(options.checksum);
  return made;
}

// State shared by the ranks of a run in this process.
struct Shared {
  explicit Shared(const RunOptions& o)
      : options(o),
        backend(backend_of(o)),
        ranks(backend->local_ranks(o.world)),
        flights(o.dry_run ? 0 : ranks.first, o.dry_run ? 0 : ranks.second,
                o.world, *backend) {
    static std::atomic<uint64_t> runs{0};
    id = ++runs;
  }
  void failed(int64_t rank, std::string_view what) const noexcept {
    if (!options.dry_run) flights.of(rank).over(what);
    for (int lane = 0; lane < Backend::kLanes; ++lane)
      backend->failed(rank, lane, what);
  }
  // The first rank that fails by itself writes the files of the flight recorder
  // at once, because some rank may never return. If all ranks of this process
  // return, conclude() writes the files again.
  void write_flights() const noexcept {
    if (options.flight.empty() || wrote_flights.test_and_set()) return;
    try {
      flights.write(options.flight, "a failure");
    } catch (...) {  // conclude() tries again, and reports the error
    }
  }

  const RunOptions& options;
  uint64_t id;
  const std::shared_ptr<Backend> backend;
  const std::pair<int64_t, int64_t> ranks;  // this process's: [first, second)
  const FlightRecorders flights;
  mutable std::atomic_flag wrote_flights;
};

// Returns the exception that is being handled. If it is not an Error, returns
// an Error that names the rank instead (a bad_alloc if there is no memory for
// the text).
std::exception_ptr explained(int64_t rank) noexcept {
  try {
    try {
      throw;
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw Error(out_of_memory_text());
    } catch (const std::exception& e) {
      throw Error(fmt::format("[run] rank {} threw: {}", rank, e.what()));
    } catch (...) {
      throw Error(fmt::format(
          "[run] rank {} threw something that is not a std::exception; throw "
          "one, so that its text can be shown",
          rank));
    }
  } catch (...) {
    return std::current_exception();
  }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an unknown error";
  }
}

// Reports the failure to the other ranks.
void tell(const Shared& shared, int64_t rank, const std::exception_ptr& error) {
  try {
    shared.failed(rank, text_of(error));
  } catch (...) {  // out of memory for the text
    shared.failed(rank, "no memory");
  }
}

// Does the whole work of a rank's thread. Any exception goes into the Outcome.
Outcome run_rank(const Shared& shared, int64_t rank,
                 std::shared_ptr<RankContext::Common> common,
                 const std::function<void(Runtime&)>& fn) noexcept {
  const RunOptions& options = shared.options;
  Outcome outcome;
  std::optional<RankContext> kept;
  try {
    use_one_openmp_thread();
    RankContext& context = kept.emplace();
    context.world_rank = rank;
    context.world_size = options.world;
    context.dry_run = options.dry_run;
    if (options.dry_run)
      context.device = &no_device();
    else if (options.device)
      context.device = &options.device(rank);
    context.stream = context.device->open_stream();
    context.allocator = Allocator::on(*context.device);
    if (common)
      context.planner = Planner(options.cost, {common, &common->plans});
    else
      context.planner = Planner(options.cost);
    context.common = std::move(common);
    context.mesh_text = options.mesh;
    using Check = RankContext::InputCheck;
    context.input_check = options.check    ? Check::kAll
                          : options.device ? Check::kNone
                                           : Check::kSample;
    context.reproducible = options.reproducible;
    context.run_id = shared.id;
    context.record = options.record;
    context.backend = shared.backend;
    if (options.dry_run || rank == 0)
      for (const auto& o : options.observers) context.observers.add(*o);
    if (!options.dry_run && options.trace)
      context.observers.add(options.trace->open(context));
    Runtime runtime(context);
    context.runtime = &runtime;
    RankContext::set_current(&context);
    fn(runtime);
    context.services.finish();
    for (Observer* o : context.observers) o->ended(context);
    if (options.finish) options.finish(runtime);
    shared.backend->check();
  } catch (const PeerLeft&) {
    outcome = {.error = std::current_exception(), .own = true};
  } catch (const PeerFailed&) {
    outcome = {.error = std::current_exception()};
  } catch (...) {
    outcome = {.error = explained(rank), .own = true};
  }
  RankContext::set_current(nullptr);
  if (outcome.error) {
    tell(shared, rank, outcome.error);
    if (outcome.own) shared.write_flights();
  } else {
    shared.backend->left(rank);
    if (!options.dry_run) shared.flights.of(rank).over("");
  }
  // Stops the rank's other threads, which no longer wait for other ranks.
  if (kept) kept->services.clear();
  if (options.report && !options.dry_run) outcome.waited_for_core = core_wait();
  return outcome;
}

void report(const RunOptions& options, const Shared& shared,
            const std::vector<Outcome>& outcomes,
            std::chrono::steady_clock::time_point begun) {
  if (!options.report) return;
  const int64_t first = shared.ranks.first;
  RunReport r;
  r.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun)
          .count();
  for (int64_t rank = 0; rank < options.world; ++rank) {
    r.waited_for.push_back(
        std::chrono::duration<double>(shared.backend->waited_for(rank))
            .count());
    const int64_t slot = rank - first;
    r.waited_for_core.push_back(
        0 <= slot && slot < std::ssize(outcomes)
            ? outcomes[static_cast<size_t>(slot)].waited_for_core
            : -1);
  }
  options.report(r);
}

// Throws if a rank of the run failed. All processes report the same rank's
// error.
void conclude(const Shared& shared, const std::vector<Outcome>& outcomes) {
  const int64_t first = shared.ranks.first;
  std::optional<Backend::Failure> here;
  for (bool own : {true, false})
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const Outcome& o = outcomes[i];
      if (here || !o.error || o.own != own) continue;
      here = {first + static_cast<int64_t>(i), own, text_of(o.error)};
    }
  std::optional<Backend::Failure> all = shared.backend->conclude(here);
  if (!all) return;
  // All ranks of this process have stopped, so that their flight records are
  // final. Those of ranks that succeeded are written, too, because the program
  // //:flight compares the records of all ranks.
  if (!shared.options.flight.empty()) try {
      shared.flights.write(shared.options.flight, "a failure");
    } catch (const Error& e) {
      throw Error(fmt::format("{}; and {}", all->text, e.what()));
    }
  const int64_t slot = all->rank - first;
  if (0 <= slot && slot < std::ssize(outcomes)) {
    const std::exception_ptr& error = outcomes[static_cast<size_t>(slot)].error;
    if (error) std::rethrow_exception(error);
  }
  throw Error(all->text);
}

std::exception_ptr no_thread_for(int64_t rank, int64_t world) noexcept {
  try {
    try {
      throw;
    } catch (const std::exception& e) {
      throw Error(fmt::format(
          "[run] the system cannot start a thread for rank {} of {}: {}; run "
          "fewer ranks",
          rank, world, e.what()));
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

int64_t Runtime::rank() const { return context_.world_rank; }

int64_t Runtime::world_size() const { return context_.world_size; }

bool Runtime::dry_run() const { return context_.dry_run; }

Mesh Runtime::mesh(std::vector<MeshAxis> axes) {
  Mesh mesh(std::move(axes));
  DT_CHECK(mesh.num_ranks() <= world_size(), "mesh",
           "{} has {} ranks, but the run has {}; start more ranks, or make an "
           "axis smaller",
           mesh.to_string(), mesh.num_ranks(), world_size());
  return mesh;
}

Mesh Runtime::mesh() {
  if (context_.mesh_text.empty()) return mesh({{"ranks", world_size()}});
  Mesh mesh = Mesh::parse(context_.mesh_text);
  DT_CHECK(
      mesh.num_ranks() <= world_size(), "mesh",
      "mesh {} of the run's options has {} ranks, but the run has {}; start "
      "more ranks, or make an axis smaller",
      context_.mesh_text, mesh.num_ranks(), world_size());
  return mesh;
}

void run(const RunOptions& options, const std::function<void(Runtime&)>& fn) {
  DT_CHECK(options.world >= 1, "run",
           "the number of ranks is {}; write 1 or more", options.world);
  DT_CHECK(options.timeout.count() >= 0, "run",
           "the timeout is {} ms; write 0 for no limit, or a positive number",
           options.timeout.count());
  DT_CHECK(
      !options.reproducible || !options.device, "run",
      "a reproducible run computes on the CPU; leave --reproducible or the "
      "device out");
  if (!options.mesh.empty()) Mesh::parse(options.mesh);  // report errors once
  if (!options.flight.empty()) make_flight_folder("run", options.flight);
  std::optional<StopOnSignals> signals;
  if (options.stop_on_signals) signals.emplace();
  check_interrupted();
  if (options.dry_run) {
    // Use a new thread, as for any rank, so that thread-local state that fn
    // leaves does not reach the caller.
    Outcome outcome;
    std::thread([&] {
      outcome = run_rank(Shared(options), options.world - 1, nullptr, fn);
    }).join();
    if (outcome.error) std::rethrow_exception(outcome.error);
    return;
  }
  const auto begun = std::chrono::steady_clock::now();
  const Shared shared(options);
  const auto [begin, end] = shared.ranks;
  std::vector<Outcome> outcomes(static_cast<size_t>(end - begin));
  std::vector<std::thread> threads;
  threads.reserve(outcomes.size());
  // The ranks own this together, so the last rank's thread destroys it. That
  // thread, like any that ends, then frees the specs that nothing else holds.
  std::shared_ptr<RankContext::Common> common;
  if (outcomes.size() > 1) common = std::make_shared<RankContext::Common>();
  for (int64_t rank = begin; rank < end; ++rank) {
    try {
      threads.emplace_back([&, rank, common, slot = threads.size()]() mutable {
        outcomes[slot] = run_rank(shared, rank, std::move(common), fn);
      });
    } catch (...) {
      const std::exception_ptr no_thread = no_thread_for(rank, options.world);
      for (int64_t r = rank; r < end; ++r) tell(shared, r, no_thread);
      std::fill(outcomes.begin() + std::ssize(threads), outcomes.end(),
                Outcome{.error = no_thread, .own = true});
      break;
    }
  }
  common.reset();
  for (std::thread& t : threads) t.join();
  report(options, shared, outcomes, begun);
  conclude(shared, outcomes);
}

void run(int64_t world, const std::function<void(Runtime&)>& fn) {
  RunOptions options;
  options.world = world;
  run(options, fn);
}

}  // namespace dtensor
