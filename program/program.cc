// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/program.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "dtensor/comm/deadline.h"
#include "dtensor/comm/job.h"
#include "dtensor/comm/process_backend.h"
#include "dtensor/comm/rendezvous.h"
#include "dtensor/comm_table.h"
#include "dtensor/device/cuda.h"
#include "dtensor/device/out_of_memory.h"
#include "dtensor/flight.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/cost_file.h"
#include "dtensor/program/crowd.h"
#include "dtensor/program/device_choice.h"
#include "dtensor/program/flight_signal.h"
#include "dtensor/program/local_process.h"
#include "dtensor/program/outputs.h"
#include "dtensor/program/own_playground.h"
#include "dtensor/program/predicted.h"
#include "dtensor/rank_context.h"
#include "dtensor/text_file.h"
#include "dtensor/text_table.h"
#include "dtensor/trace.h"
#include "dtensor/version.h"

namespace dtensor {
namespace {

// A mesh with more threads than this is probably a mistake.
constexpr int64_t kMostThreads = 1024;
constexpr double kLongestTimeout = 1e9;  // seconds: about thirty years

// The caller_path() of a file that `flag` names. Throws Error now, rather than
// after the run, if the file cannot be written.
std::string writable(std::string_view flag, const std::string& given) {
  std::string path = caller_path(given);
  check_writable(flag, path);
  return path;
}

}  // namespace

struct Program::State {
  ProgramOptions options;
  std::string name = "program";
  Flags flags;
  std::string mesh_text, device_text = "cpu", backend = "threads", rendezvous;
  const DataBackend* data = data_backend("threads");
  const ProcessBackend* over = nullptr;  // null: threads of one process
  int64_t ranks_per_process = 1;
  int64_t process = 0, processes = 1;  // this process, and how many there are
  ProcessJob* job = nullptr;           // set once join() has connected it
  Crowd crowd;                         // of a job
  bool alone = false;  // prints an error of join(), as the main process cannot
  std::string flight, trace_path, cost;
  Outputs outputs;
  DeviceChoice device;
  int64_t ranks_per_gpu = 1;
  double timeout = 60;  // seconds
  bool checksum = false, check = false, reproducible = false;
  bool dry_run = false, explores = false;
  std::string explore_port;
  size_t own = 0;  // the index of the program's first own flag
  CudaOptions cuda_options;
  Mesh mesh;
  std::function<Device&(int64_t)> devices;
  std::shared_ptr<Trace> trace;
  bool gathered = false;  // the main process has the traces of all processes
  bool wrote_json = false;
  // The communication and memory of the body's runs; only in rank 0's process.
  bool ran = false;
  std::vector<CommEvent> events;                   // of all ranks
  std::vector<std::shared_ptr<WorkCounter>> work;  // of dry runs, one for each
  int64_t peak = 0;  // bytes, the largest peak of a rank
  nlohmann::ordered_json stragglers = nlohmann::ordered_json::array();

  bool uses_gpus() const { return !data->between_gpus.empty(); }
  // Whether this process belongs to a job.
  bool is_job() const { return over && !is_dry(); }
  bool is_dry() const {
    return dry_run || options.always_dry || options.no_ranks;
  }

  void add_rank_flags();

  // Returns false for --help or --version, whose text the main process prints.
  bool parse(int argc, char** argv) {
    for (const ProcessBackend& b : process_backends())
      if (process == 0) process = std::max<int64_t>(0, b.process());
    name = std::filesystem::path(argv[0]).filename().string();
    switch (flags.parse(argc, argv)) {
      case Flags::Asked::kHelp:
        if (process == 0)
          std::fputs(flags.help(name, options.about).c_str(), stdout);
        return false;
      case Flags::Asked::kVersion:
        if (process == 0) fmt::print("{} (dtensor {})\n", name, version());
        return false;
      case Flags::Asked::kRun:
        break;
    }
    read_backend();
    read_mesh();
    check_question(flags, mesh);
    prices(mesh);  // reports a bad --cost before the run
    read_device();
    read_records();
    if (process == 0) outputs.open(name, {argv + 1, argv + argc}, cost);
    return true;
  }

  void read_backend() {
    const bool given = flags.given("--backend");
    data = data_backend(backend);
    over = process_backend(backend);
    if (!is_dry() && (!given || uses_gpus())) choose_backend();
    if (given) process = over ? std::max<int64_t>(0, over->process()) : 0;
    if (process > 0) discard_stdout();
    DT_CHECK(
        over || !flags.given("--ranks-per-process"), "--ranks-per-process",
        "it is for a run of several processes (--backend {}), but this "
        "run, with --backend {}, is in one process; leave it out, or start "
        "several, but not of a dry run, with mpirun or torchrun",
        backend_names(" or "), backend);
    DT_CHECK((over && over->meets_by_file) || !flags.given("--rendezvous") ||
                 is_dry(),
             "--rendezvous",
             "it is for --backend tcp, but this is --backend {}; leave it out",
             over ? over->name : backend);
    if (is_job()) join();
  }

  // Chooses the backend by the launcher, --rendezvous or --ranks-per-process.
  void choose_backend() {
    const bool meets = flags.given("--rendezvous");
    for (const ProcessBackend& b : process_backends())
      if (!over && ((meets && b.meets_by_file) || b.started())) over = &b;
    DT_CHECK(!over || over->lacks.empty(), "--backend",
             "this is one of several processes, but the program is built "
             "without {}, or write --backend threads for a separate run in "
             "each process",
             over->lacks);
    if (flags.given("--ranks-per-process") && !uses_gpus())
      for (const ProcessBackend& b : process_backends())
        if (!over && b.alone && b.alone()) over = &b;
    if (over) return;
    if (const auto [tasks, task] = tasks_of_srun(); tasks > 1) {
      process = task;  // so that only one task prints the error
      fail("--backend",
           "srun has started {} tasks of this program, but nothing tells them "
           "how to reach each other; write srun --mpi=pmix, or set RANK, "
           "WORLD_SIZE, MASTER_ADDR and MASTER_PORT (as tools/train.sbatch "
           "does), or write --backend threads for a separate run in each task",
           tasks);
    }
  }

  // The facts of this process that have to equal those of the other processes.
  JobFacts facts() const {
    JobFacts facts = JobFacts::of_process();
    for (const auto& [flag, value] : flags.all_given())
      if (std::count(options.may_differ.begin(), options.may_differ.end(),
                     flag) == 0)
        facts.add(flag, value);
    return facts;
  }

  std::chrono::milliseconds timeout_ms() const {
    return std::chrono::milliseconds(
        static_cast<int64_t>(std::ceil(timeout * 1000)));
  }

  void join() {
    const StopOnSignals signals;  // a signal ends the waits for other processes
    try {
      job = &over->job(rendezvous.empty() ? "" : caller_path(rendezvous),
                       facts());
    } catch (const NotMet& e) {
      alone = !e.first_says_it();
      throw;
    } catch (const NoAnswer&) {
      alone = true;
      throw;
    }
    job->set_patience(run_patience(timeout_ms()));
    processes = job->processes();
    crowd = most_crowded(job, ranks_per_process);
    if (job->process() > 0 && process == 0) discard_stdout();
    process = job->process();
  }

  void read_mesh() {
    if (!flags.given("--mesh")) mesh_text = options.mesh;
    mesh = mesh_text.empty() && !flags.given("--mesh")
               ? Mesh({{"ranks", processes * ranks_per_process}})
               : Mesh::parse(mesh_text);
    const int64_t started = processes * ranks_per_process;
    DT_CHECK(
        !is_job() || mesh.num_ranks() == started, "--mesh",
        "{} has {}, but this run has {} (processes: {}, ranks in each: {}); "
        "write {}another --mesh or --ranks-per-process",
        mesh.to_string(), quantity(mesh.num_ranks(), "rank", "ranks"), started,
        processes, ranks_per_process,
        mesh.num_ranks() % ranks_per_process
            ? ""
            : job->launcher(mesh.num_ranks() / ranks_per_process) + ", or ");
    for (int a = 0; !options.axes.empty() && a < mesh.num_axes(); ++a)
      DT_CHECK(std::count(options.axes.begin(), options.axes.end(),
                          mesh.axis_name(a)) == 1,
               "--mesh", "{} has axis {}; {} knows only {}; write --mesh {}",
               mesh.to_string(), mesh.axis_name(a), name, joined(options.axes),
               options.mesh);
    for (const std::string& axis : options.axes)
      DT_CHECK(mesh.has_axis(axis), "--mesh",
               "{} has no axis {}; add {}=1 to its axes", mesh.to_string(),
               axis, axis);
    DT_CHECK(is_dry() || is_job() || mesh.num_ranks() <= kMostThreads, "--mesh",
             "{} has {} ranks, but at most {} run as threads; write a smaller "
             "mesh, or add --dry-run",
             mesh.to_string(), mesh.num_ranks(), kMostThreads);
    DT_CHECK(options.any_ranks || mesh.smallest_world() <= mesh.num_ranks(),
             "--mesh",
             "{} has {}, but one of them is rank {}; name ranks below {}",
             mesh.to_string(), quantity(mesh.num_ranks(), "rank", "ranks"),
             mesh.smallest_world() - 1, mesh.num_ranks());
  }

  void read_device() {
    device = parse_device(device_text);
    for (const char* flag :
         {"--ranks-per-gpu", "--tf32", "--tune-gemm", "--deterministic"})
      DT_CHECK(device.cuda || !flags.given(flag), flag,
               "it is for --device cuda, but this is --device cpu; leave it "
               "out, or write --device cuda");
    device.ranks_per_gpu = ranks_per_gpu;
    DT_CHECK(device.cuda || !uses_gpus(), "--backend",
             "{} is for --device cuda, but this is --device cpu; add "
             "--device cuda",
             data->name);
    // A job sends only CPU memory between its processes.
    if (device.cuda && over && !uses_gpus()) data = &gpu_backend();
    DT_CHECK(!data->one_rank_per_gpu || ranks_per_gpu == 1, "--backend",
             "{}, which this run uses, takes one rank per GPU, not {}; write "
             "--ranks-per-gpu 1, or --backend threads in one process",
             data->name, ranks_per_gpu);
    // Report missing GPUs once, rather than from every rank.
    if (device.cuda && is_job())
      devices = devices_for(
          device,
          {.here = processes > 1 ? local_process(*over) : LocalProcess{0, 1},
           .first = process * ranks_per_process,
           .count = ranks_per_process});
    else if (!is_dry())
      devices = devices_for(device, mesh.num_ranks());
    if (devices) cuda_set_options(cuda_options);
  }

  CostTable prices(const Mesh& m) const {
    return cost.empty() ? CostTable() : read_cost(cost, m);
  }

  // Collects events and peaks at the end of a run. Collective over its ranks.
  void record(Runtime& rt) {
    RankContext& context = rt.context();
    // ~CommRecord() sums up the events, so that merge() gets equal lists from
    // all ranks. A dry run has one rank. It keeps the single events, because
    // their prices are exact and those of sums are not.
    if (!rt.dry_run()) CommRecord();
    context.record = false;
    const Totals all = merge(
        {.events = context.events, .memory = memory_use(*context.allocator)});
    if (rt.rank() > 0 && !rt.dry_run()) return;
    ran = true;
    events.insert(events.end(), all.events.begin(), all.events.end());
    peak = std::max(peak, all.memory.peak);
  }

  void report(RunReport r) {
    std::string text = straggler_text(r);
    if (text.empty() || process > 0) return;
    const std::string shared =
        crowd_text(job ? crowd : most_crowded(nullptr, mesh.num_ranks()));
    if (!shared.empty()) {
      r = without_core_waits(std::move(r));
      text = straggler_text(r);
    }
    fmt::print(stderr, "{}: {}\n", name, text.empty() ? shared : text);
    for (size_t i = 0; i < r.waited_for.size(); ++i)
      if (r.waited_for[i] > 1)
        stragglers.push_back({{"rank", i},
                              {"waited_for_seconds", r.waited_for[i]},
                              {"run_seconds", r.seconds}});
  }

  static JobVerdict attempt(int code, const std::function<void()>& fn);
  bool ends(JobVerdict& fared);

  void read_records() {
    const bool dry = is_dry();
    const char* const other = options.always_dry ? ""
                              : explores         ? " or --explore"
                                                 : " or --dry-run";
    DT_CHECK(!dry || flight.empty(), "--flight",
             "a dry run sends nothing to record; leave out --flight{}", other);
    DT_CHECK(!dry || trace_path.empty(), "--trace",
             "a dry run runs nothing that could be timed; leave out --trace{}",
             other);
    if (!flight.empty()) {
      flight = caller_path(flight);
      make_flight_folder("--flight", flight);
    }
    if (!trace_path.empty()) {
      // (Other processes write their own trace if the run fails.)
      if (process > 0) trace_path += fmt::format(".{}", process);
      trace_path = writable("--trace", trace_path);
      trace = std::make_shared<Trace>(Trace::kMostEvents / processes);
    }
  }

  void answer(FlightSignal& signal) const {
    namespace fs = std::filesystem;
    signal.answer(
        fs::weakly_canonical(flight.empty() ? caller_path(".") : flight), name);
  }

  // All processes call this after the run, or else ProcessJob::not_gathering().
  void gather_trace() {
    if (!trace || !job || gathered) return;
    const StopOnSignals signals;
    trace->gather(*job);
    gathered = true;
  }

  void finish_trace() {
    if (!trace) return;
    gather_trace();
    write_trace();
    fmt::print(
        "\nwaiting for the last rank of a collective, all ranks together:\n{}"
        "trace: {}\n",
        trace->waiting_table(), trace_path);
  }
  // Each process writes its own events, unless they were gathered.
  void write_trace() const {
    if (!trace || (gathered && process > 0)) return;
    trace->write(trace_path);
    if (trace->dropped() > 0)
      fmt::print(stderr,
                 "{}: {} has the first {} events, up to second {:.1f}; {} more "
                 "were dropped\n",
                 name, trace_path, grouped(trace->kept()),
                 trace->dropped_from(), grouped(trace->dropped()));
  }
};

void Program::State::add_rank_flags() {
  State* s = this;
  Flags::Flag& mesh =
      s->flags.add("--mesh", "axes and their sizes, or 2x4", "dp=2,tp=2");
  mesh.shown = s->options.mesh.empty() ? "one rank" : s->options.mesh;
  mesh.set = [s](const std::string& text) { s->mesh_text = text; };
  s->flags.add("--device", &s->device_text,
               "the devices of the ranks: cpu, cuda, or cuda:1 for the GPUs "
               "from number 1 on",
               TextKind::kText);
  s->flags.add("--ranks-per-gpu", &s->ranks_per_gpu,
               "the number of ranks that share a GPU", 1, kMostThreads);
  s->flags.add("--tf32", &s->cuda_options.tf32,
               "f32 products on GPUs may round their operands to TF32");
  s->flags.add("--tune-gemm", &s->cuda_options.tune_gemm,
               "time cuBLASLt's algorithms at the first product of each kind "
               "on a GPU, and keep the fastest for this and later runs");
  s->flags.add("--deterministic", &s->cuda_options.deterministic,
               "the gradient of attention in 16 bits on GPUs has the same bits "
               "in every run; slower, and takes up to 1 GiB more memory");
  std::vector<std::string> choices = {"threads"}, launched;
  for (const ProcessBackend& b : process_backends()) {
    choices.emplace_back(b.name);
    launched.emplace_back(b.launched);
  }
  for (const DataBackend& b : data_backends())
    if (!b.between_gpus.empty()) choices.emplace_back(b.name);
  s->flags.add(
      "--backend", &s->backend,
      fmt::format("how ranks communicate: as threads that read each other's "
                  "memory, as processes {0} (which use {1} between GPUs), "
                  "or through {1}, as threads or as such processes",
                  fmt::join(launched, " or, "), gpu_backend().between_gpus),
      choices);
  s->flags.add("--ranks-per-process", &s->ranks_per_process,
               fmt::format("with --backend {}: the number of ranks that are "
                           "threads of each process",
                           backend_names(" or ")),
               1, kMostThreads);
  s->flags.add("--rendezvous", &s->rendezvous,
               "with --backend tcp: a file through which processes with RANK "
               "and WORLD_SIZE find each other, instead of MASTER_ADDR and "
               "MASTER_PORT",
               TextKind::kFile);
  s->flags.add("--timeout", &s->timeout,
               "how long a rank waits for others in a collective, or a process "
               "for others between and after runs, in seconds; 0: no limit",
               0, kLongestTimeout);
  s->flags.add("--checksum", &s->checksum,
               "each message between processes carries a checksum, so that one "
               "that arrives damaged is an error; not between GPUs");
  Flags::Flag& explore = s->flags.add(
      "--explore",
      "serve a page on which the flags are changed, and which shows dry runs, "
      "at a free port without PORT",
      "PORT");
  explore.optional_value = true;
  explore.set = [s](const std::string& text) {
    s->explores = s->dry_run = true;
    s->explore_port = text;
  };
  Flags::Flag& dry = s->flags.add(
      "--dry-run", "no data: print the collectives and the peak memory", "");
  dry.values = 0;
  dry.set = [s](const std::string&) { s->dry_run = true; };
  s->flags.add("--check", &s->check,
               "compare the values that the ranks pass to from_global(), byte "
               "for byte, and the results of local_map() with one rank's, at "
               "each call");
  s->flags.add("--reproducible", &s->reproducible,
               "the same bits on every mesh, or an error (on the CPU)");
  s->flags.add("--cost", &s->cost, cost_help(), TextKind::kFile);
  s->flags.add("--flight", &s->flight,
               "write the last collectives of each rank to DIR/rank-N.json if "
               "the run fails or receives SIGUSR1; see //:flight",
               TextKind::kFolder);
  s->flags.add("--trace", &s->trace_path,
               "write a timeline of every rank for Perfetto and Chrome, and "
               "print which ranks waited",
               TextKind::kFile);
}

Program::Program(ProgramOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  State* s = state_.get();
  if (!s->options.no_ranks) s->add_rank_flags();
  s->outputs.add_flags(s->flags, !s->options.no_ranks);
  s->own = s->flags.all().size();
}

Program::~Program() = default;

void Program::add(std::string_view name, int64_t* value, std::string_view help,
                  int64_t min, int64_t max) {
  state_->flags.add(name, value, help, min, max);
}
void Program::add(std::string_view name, double* value, std::string_view help,
                  double min) {
  state_->flags.add(name, value, help, min);
}
void Program::add(std::string_view name, std::string* value,
                  std::string_view help, TextKind kind) {
  state_->flags.add(name, value, help, kind);
}
void Program::add(std::string_view name, std::string* value,
                  std::string_view help, std::vector<std::string> choices) {
  state_->flags.add(name, value, help, std::move(choices));
}
void Program::add(std::string_view name, std::vector<std::string>* values,
                  std::string_view help) {
  state_->flags.add(name, values, help);
}
void Program::add(std::string_view name, bool* value, std::string_view help) {
  state_->flags.add(name, value, help);
}
void Program::add_words(std::vector<std::string>* words, std::string_view help,
                        std::string_view type) {
  state_->flags.add_words(words, help, type);
}

// Calls fn(). If it throws, the verdict has `code` and the error's text.
JobVerdict Program::State::attempt(int code, const std::function<void()>& fn) {
  try {
    fn();
    return {};
  } catch (const std::bad_alloc&) {
    return {code, out_of_memory_text()};
  } catch (const std::exception& e) {
    return {code, one_line(e.what())};
  }
}

// Whether the program ends with an error. The processes of a job agree on one
// verdict, which replaces `fared`; the main process prints it.
bool Program::State::ends(JobVerdict& fared) {
  if (fared.code != 0 && interrupted()) fared.code = 128 + interrupted();
  if (job) {
    const StopOnSignals signals;
    fared = job->agree(fared);
  }
  std::fflush(stdout);
  const bool is_main = job ? job->is_main_process() : process == 0 || alone;
  if (fared.code != 0 && is_main)  // fmt::print() throws if it cannot write
    std::fputs(fmt::format("{}: {}\n", name, fared.text).c_str(), stderr);
  return fared.code != 0;
}

int Program::main(int argc, char** argv, const std::function<void()>& check,
                  const std::function<void()>& body) {
  State& s = *state_;
  // A write() past the size limit for files then fails, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  const MemoryReserve reserve;
  FlightSignal signal;  // before any other thread is started
  bool runs = true;
  JobVerdict fared = s.attempt(2, [&] {
    runs = s.parse(argc, argv);
    if (!runs) return;
    if (!dry_run()) s.answer(signal);
    if (s.explores)
      explore_program(s.name, s.flags, s.own, s.explore_port);
    else if (check)
      check();
  });
  if (!runs || s.ends(fared) || s.explores) return fared.code;
  s.ran = false;  // forget runs of check(); count those of the body
  s.events.clear();
  s.work.clear();
  s.peak = 0;
  fared = s.attempt(1, [&] {
    body();
    report_runs();
    if (is_main_process()) s.outputs.write_records();
  });
  if (fared.code != 0 && s.trace && s.job && !s.gathered)
    s.job->not_gathering(fared.text);
  // Write the trace, complete or not, also after an error.
  const JobVerdict traced = s.attempt(1, [&] {
    fared.code == 0 ? s.finish_trace() : s.write_trace();
    const bool flushed = std::fflush(stdout) == 0;
    DT_CHECK(flushed && !std::ferror(stdout), s.name,
             "standard output cannot be written{}; send it to another file",
             flushed ? "" : fmt::format(": {}", std::strerror(errno)));
  });
  if (traced.code != 0 && fared.code != 0)
    fared.text += fmt::format("; and {}", traced.text);
  else if (traced.code != 0)
    fared = traced;
  s.ends(fared);
  return fared.code;
}

// Prints the communication of a dry run. After any run, writes the
// communication as the result unless the program has written its own.
void Program::report_runs() const {
  const State& s = *state_;
  const CostTable prices = cost(s.mesh);
  int64_t work_ps = 0;
  for (const auto& run : s.work) work_ps += run->work_ps();
  const Predicted time = predicted({s.events, {}, work_ps}, prices);
  if (dry_run() && s.ran)
    fmt::print("{}\npeak memory of a rank: {} bytes\n{}\n",
               comm_table(s.events, false), grouped(s.peak),
               to_string(time, prices));
  if (s.wrote_json || s.options.no_ranks) return;
  nlohmann::ordered_json result{
      {"collectives", comm_json(comm_rows(s.events), !dry_run())},
      {"peak_bytes", s.peak}};
  if (dry_run()) result["time"] = to_json(time);
  write_json(result);
}

bool Program::given(std::string_view name) const {
  return state_->flags.given(name);
}
const Mesh& Program::mesh() const { return state_->mesh; }
CostTable Program::cost(const Mesh& mesh) const { return state_->prices(mesh); }
bool Program::dry_run() const { return state_->is_dry(); }
bool Program::is_main_process() const { return state_->process == 0; }
int64_t Program::ranks_here() const {
  const State& s = *state_;
  return s.is_job() ? s.ranks_per_process : s.mesh.num_ranks();
}
bool Program::wants_json() const { return given("--json"); }

RunOptions Program::run_options() const {
  RunOptions o;
  o.world = state_->mesh.num_ranks();
  o.mesh = state_->mesh_text;
  o.dry_run = dry_run();
  o.cost = cost(mesh());
  if (auto r = record()) o.observers.push_back(std::move(r));
  if (dry_run())
    o.observers.push_back(
        state_->work.emplace_back(std::make_shared<WorkCounter>()));
  o.record = wants_json() || !o.observers.empty();
  if (o.record) o.finish = [s = state_.get()](Runtime& rt) { s->record(rt); };
  o.device = state_->devices;
  o.timeout = state_->timeout_ms();
  o.checksum = state_->checksum;
  o.stop_on_signals = true;
  o.check = state_->check;
  o.reproducible = state_->reproducible;
  o.report = [s = state_.get()](const RunReport& r) { s->report(r); };
  o.flight = state_->flight;
  o.trace = state_->trace;
  o.backend = [data = state_->data, job = state_->job,
               ranks = state_->ranks_per_process](int64_t world) {
    return data->make(world, ranks, job);
  };
  return o;
}

std::shared_ptr<Record> Program::record() const {
  return state_->outputs.record(mesh(), cost(mesh()));
}
std::shared_ptr<Record> Program::another_record(std::string title,
                                                const Mesh& mesh) {
  return state_->outputs.another_record(std::move(title), mesh, cost(mesh));
}

void Program::write_json(const nlohmann::ordered_json& result) const {
  state_->wrote_json = true;
  if (!wants_json()) return;
  state_->gather_trace();
  if (!is_main_process()) return;
  auto whole = result;
  if (whole.is_object() && !state_->stragglers.empty())
    whole["stragglers"] = state_->stragglers;
  if (state_->trace) whole["waiting"] = state_->trace->waiting_json();
  state_->outputs.write_json(whole);
}

int run(int argc, char** argv, const std::function<void(Runtime&)>& fn,
        const ProgramOptions& options) {
  Program program(options);
  return program.main(argc, argv, nullptr,
                      [&] { run(program.run_options(), fn); });
}

}  // namespace dtensor
