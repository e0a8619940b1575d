#include "dtensor/runtime/runtime.h"

#include <dlfcn.h>

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/comm/backend.h"
#include "dtensor/runtime/comm/null.h"

namespace dtensor {
namespace {

// One thread per rank: the setting is the calling thread's own. Found at run
// time, since OpenMP is there only when oneDNN is linked.
void use_one_openmp_thread() {
  using Set = void (*)(int);
  static const Set set =
      reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set) set(1);
}

// How a rank left fn.
struct Outcome {
  std::exception_ptr error;
  bool own = false;  // not that of a peer
};

// What the ranks of a run share.
struct Shared {
  explicit Shared(const RunOptions& o) : options(o) {
    static std::atomic<uint64_t> runs{0};
    id = ++runs;
    if (options.dry_run)
      backend = null_backend(options.world);
    else if (options.backend)
      backend = options.backend(options.world);
    else
      backend = backend_named("threads")(options.world);
  }
  void failed(int64_t rank, std::string_view what) const noexcept {
    for (int lane = 0; lane < Backend::kLanes; ++lane)
      backend->failed(rank, lane, what);
  }

  const RunOptions& options;
  uint64_t id;
  std::shared_ptr<Backend> backend;
};

Outcome run_rank(const Shared& shared, int64_t rank,
                 const std::function<void(Runtime&)>& fn) {
  const RunOptions& options = shared.options;
  Outcome outcome;
  std::string what;
  std::unique_ptr<Watch> watch;
  RankContext context;
  try {
    use_one_openmp_thread();
    context.world_rank = rank;
    context.world_size = options.world;
    context.dry_run = options.dry_run;
    context.device = options.dry_run ? &no_device() : &cpu();
    context.allocator = Allocator::on(*context.device);
    context.planner = Planner(options.cost);
    context.mesh_text = options.mesh;
    context.run_id = shared.id;
    context.backend = shared.backend;
    if (options.watch) watch = options.watch(rank);
    context.watch = watch.get();
    Runtime runtime(context);
    context.runtime = &runtime;
    RankContext::set_current(&context);
    fn(runtime);
    if (context.async) context.async->finish();
  } catch (const PeerFailure& e) {
    outcome = {std::current_exception(), false};
    what = e.what();
  } catch (const Error& e) {
    outcome = {std::current_exception(), true};
    what = e.what();
  } catch (const std::exception& e) {
    what = fmt::format("[run] rank {} threw: {}", rank, e.what());
    outcome = {std::make_exception_ptr(Error(what)), true};
  } catch (...) {
    what = fmt::format("[run] rank {} threw what is no std::exception", rank);
    outcome = {std::make_exception_ptr(Error(what)), true};
  }
  RankContext::set_current(nullptr);
  if (outcome.error)
    shared.failed(rank, what);
  else
    shared.backend->left(rank);
  // Its other thread, which waits for nobody any more.
  context.async = nullptr;
  return outcome;
}

}  // namespace

Mesh Runtime::mesh(std::vector<MeshAxis> axes) {
  Mesh mesh(std::move(axes));
  DT_CHECK(mesh.num_ranks() <= world_size(), "mesh",
           "{} has {} ranks, but {} run; start more ranks, or make an axis "
           "smaller",
           mesh.to_string(), mesh.num_ranks(), world_size());
  return mesh;
}

Mesh Runtime::mesh() {
  if (context_.mesh_text.empty()) return mesh({{"ranks", world_size()}});
  Mesh mesh = Mesh::parse(context_.mesh_text);
  DT_CHECK(
      mesh.num_ranks() <= world_size(), "mesh",
      "--mesh {} has {} ranks, but {} run; start more ranks, or make an axis "
      "smaller",
      context_.mesh_text, mesh.num_ranks(), world_size());
  return mesh;
}

void run(const RunOptions& options, const std::function<void(Runtime&)>& fn) {
  DT_CHECK(options.world >= 1, "run", "{} ranks; a run has at least 1",
           options.world);
  if (!options.mesh.empty()) Mesh::parse(options.mesh);  // complain once
  if (options.dry_run) {
    // A thread of its own, as any rank: what fn leaves in thread-local memory
    // does not reach the caller.
    Outcome outcome;
    std::thread([&] {
      outcome = run_rank(Shared(options), options.world - 1, fn);
    }).join();
    if (outcome.error) std::rethrow_exception(outcome.error);
    return;
  }
  const Shared shared(options);
  std::vector<Outcome> outcomes(static_cast<size_t>(options.world));
  std::vector<std::thread> threads;
  threads.reserve(outcomes.size());
  std::exception_ptr no_thread;
  for (int64_t rank = 0; rank < options.world; ++rank) {
    try {
      threads.emplace_back([&, rank] {
        outcomes[static_cast<size_t>(rank)] = run_rank(shared, rank, fn);
      });
    } catch (const std::exception& e) {
      const std::string what = fmt::format(
          "[run] the system starts no thread for rank {} of {}: {}; run fewer "
          "ranks",
          rank, options.world, e.what());
      no_thread = std::make_exception_ptr(Error(what));
      for (int64_t r = rank; r < options.world; ++r) shared.failed(r, what);
      break;
    }
  }
  for (std::thread& t : threads) t.join();
  if (no_thread) std::rethrow_exception(no_thread);
  for (bool own : {true, false})
    for (const Outcome& o : outcomes)
      if (o.error && o.own == own) std::rethrow_exception(o.error);
}

void run(int64_t world, const std::function<void(Runtime&)>& fn) {
  RunOptions options;
  options.world = world;
  run(options, fn);
}

}  // namespace dtensor
