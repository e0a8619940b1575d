#include "dtensor/runtime/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/comm/backend.h"
#include "dtensor/runtime/comm_table.h"
#include "dtensor/runtime/device/cuda.h"
#include "dtensor/runtime/device_choice.h"
#include "dtensor/runtime/interrupt.h"
#include "dtensor/runtime/text_table.h"
#include "dtensor/version.h"

namespace dtensor {
namespace {

// More threads than this are a mistake rather than a mesh.
constexpr int64_t kMostThreads = 1024;
// Thirty years.
constexpr double kLongestTimeout = 1e9;

// Everything that is printed goes to standard error from now on; the result is
// a descriptor of what was standard output.
int take_stdout() {
  std::fflush(stdout);
  const int out = dup(STDOUT_FILENO);
  DT_CHECK(out >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0, "--json",
           "standard output cannot be used: {}; write --json FILE",
           std::strerror(errno));
  return out;
}

void write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    DT_CHECK(n > 0, "--json", "cannot write {}: {}", path,
             std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

std::string caller_path(const std::string& path) {
  const char* caller = std::getenv("BUILD_WORKING_DIRECTORY");
  if (!caller || path.empty() || path[0] == '/') return path;
  return (std::filesystem::path(caller) / path).string();
}

struct Program::State {
  ProgramOptions options;
  std::string name = "program";
  Flags flags;
  std::string mesh_text, json_path, device_text = "cpu", backend = "threads";
  DeviceChoice device;
  int64_t ranks_per_gpu = 1;
  double timeout = 60;  // seconds
  bool dry_run = false, tf32 = false;
  Mesh mesh;
  std::function<Device&(int64_t)> devices;
  int json_fd = -1;  // what was standard output
  nlohmann::ordered_json stragglers = nlohmann::ordered_json::array();

  // False when only a text was wanted.
  bool parse(int argc, char** argv) {
    if (argc > 0) name = std::filesystem::path(argv[0]).filename().string();
    switch (flags.parse(argc, argv)) {
      case Flags::Asked::kHelp:
        std::fputs(flags.help(name, options.about).c_str(), stdout);
        return false;
      case Flags::Asked::kVersion:
        fmt::print("{} (dtensor {})\n", name, version());
        return false;
      case Flags::Asked::kRun:
        break;
    }
    read_mesh();
    read_device();
    DT_CHECK(timeout <= kLongestTimeout, "--timeout",
             "{} s is more than {} s; write 0 for no limit", timeout,
             kLongestTimeout);
    if (flags.given("--json")) open_json();
    return true;
  }

  void read_mesh() {
    if (!flags.given("--mesh")) mesh_text = options.mesh;
    mesh = mesh_text.empty() && !flags.given("--mesh") ? Mesh({{"ranks", 1}})
                                                       : Mesh::parse(mesh_text);
    for (int a = 0; !options.axes.empty() && a < mesh.num_axes(); ++a)
      DT_CHECK(std::count(options.axes.begin(), options.axes.end(),
                          mesh.axis_name(a)) == 1,
               "--mesh", "{} has an axis {}; {} knows {}", mesh.to_string(),
               mesh.axis_name(a), name, joined(options.axes));
    for (const std::string& axis : options.axes)
      DT_CHECK(mesh.has_axis(axis), "--mesh",
               "{} has no axis {}; write --mesh {},{}=1", mesh.to_string(),
               axis, mesh.to_string(), axis);
    DT_CHECK(dry_run || options.always_dry || mesh.num_ranks() <= kMostThreads,
             "--mesh",
             "{} has {} ranks, but at most {} run as threads; add --dry-run",
             mesh.to_string(), mesh.num_ranks(), kMostThreads);
    DT_CHECK(options.any_ranks || mesh.smallest_world() <= mesh.num_ranks(),
             "--mesh",
             "{} has {} ranks, but one of them is rank {}; name those below {}",
             mesh.to_string(), mesh.num_ranks(), mesh.smallest_world() - 1,
             mesh.num_ranks());
  }

  void read_device() {
    device = parse_device(device_text);
    DT_CHECK(device.cuda || !flags.given("--ranks-per-gpu"), "--ranks-per-gpu",
             "it is for --device cuda, and this is --device cpu");
    DT_CHECK(device.cuda || !tf32, "--tf32",
             "it is for --device cuda, and this is --device cpu");
    device.ranks_per_gpu = ranks_per_gpu;
    DT_CHECK(device.cuda || backend != "nccl", "--backend",
             "nccl is for --device cuda, and this is --device cpu");
    DT_CHECK(backend != "nccl" || ranks_per_gpu == 1, "--backend",
             "nccl takes one rank per GPU, and this is --ranks-per-gpu {}; "
             "write --backend threads",
             ranks_per_gpu);
    // Better to hear of it now than from every rank.
    if (!dry_run && !options.always_dry)
      devices = devices_for(device, mesh.num_ranks());
    if (devices && tf32) cuda_allow_tf32(true);
  }

  void report(const RunReport& r) {
    const std::string text = straggler_text(r);
    if (text.empty()) return;
    fmt::print(stderr, "{}: {}\n", name, text);
    for (size_t i = 0; i < r.waited_for.size(); ++i)
      if (r.waited_for[i] > 1)
        stragglers.push_back({{"rank", i},
                              {"waited_for_seconds", r.waited_for[i]},
                              {"run_seconds", r.seconds}});
  }

  void open_json() {
    if (json_path.empty() || json_path == "-") {
      json_fd = take_stdout();
      return;
    }
    json_path = caller_path(json_path);
    // Better to hear of it now than after the run.
    const bool existed = access(json_path.c_str(), F_OK) == 0;
    const int fd = open(json_path.c_str(), O_WRONLY | O_CREAT, 0666);
    DT_CHECK(fd >= 0, "--json", "cannot write {}: {}; name another file",
             json_path, std::strerror(errno));
    close(fd);
    if (!existed) unlink(json_path.c_str());
  }
};

Program::Program(ProgramOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  State* s = state_.get();
  Flags::Flag& mesh =
      s->flags.add("--mesh", "axes and their sizes, or 2x4", "dp=2,tp=2");
  mesh.shown = s->options.mesh.empty() ? "one rank" : s->options.mesh;
  mesh.set = [s](const std::string& text) { s->mesh_text = text; };
  s->flags.add("--device", &s->device_text,
               "what the ranks compute on: cpu, cuda, or cuda:1 for the GPUs "
               "from that one on",
               TextKind::kText);
  s->flags.add("--ranks-per-gpu", &s->ranks_per_gpu,
               "how many ranks compute on one GPU", 1, kMostThreads);
  s->flags.add("--tf32", &s->tf32,
               "products of f32 on GPUs may round their operands to TF32");
  s->flags.add("--backend", &s->backend,
               "how ranks reach each other: as threads that read each other's "
               "memory, or through NCCL",
               {"threads", "nccl"});
  s->flags.add("--timeout", &s->timeout,
               "how long a rank waits for others in a collective, in seconds; "
               "0: as long as they take",
               0);
  Flags::Flag& dry = s->flags.add(
      "--dry-run", "no data: print the collectives and the peak memory", "");
  dry.values = 0;
  dry.set = [s](const std::string&) { s->dry_run = true; };
  Flags::Flag& json =
      s->flags.add("--json",
                   "write the result as JSON, to standard output "
                   "without FILE",
                   "FILE");
  json.optional_value = true;
  json.set = [s](const std::string& text) { s->json_path = text; };
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

int Program::main(int argc, char** argv, const std::function<void()>& check,
                  const std::function<void()>& body) {
  int code = 2;
  try {
    if (!state_->parse(argc, argv)) return 0;
    if (check) check();
    code = 1;
    body();
    code = 0;
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
      code = 1;
      fail(state_->name, "standard output cannot be written: {}",
           std::strerror(errno));
    }
  } catch (const std::bad_alloc&) {
    std::fflush(stdout);
    fmt::print(stderr,
               "{}: the system has no more memory; try a smaller size\n",
               state_->name);
  } catch (const std::exception& e) {
    std::fflush(stdout);
    fmt::print(stderr, "{}: {}\n", state_->name, one_line(e.what()));
  }
  if (code != 0 && interrupted()) code = 128 + interrupted();
  return code;
}

bool Program::given(std::string_view name) const {
  return state_->flags.given(name);
}
const Mesh& Program::mesh() const { return state_->mesh; }
bool Program::dry_run() const {
  return state_->dry_run || state_->options.always_dry;
}
bool Program::wants_json() const { return given("--json"); }

RunOptions Program::run_options() const {
  RunOptions o;
  o.world = state_->mesh.num_ranks();
  o.mesh = state_->mesh_text;
  o.dry_run = dry_run();
  o.device = state_->devices;
  o.timeout = std::chrono::milliseconds(
      static_cast<int64_t>(std::ceil(state_->timeout * 1000)));
  o.stop_on_signals = true;
  o.report = [s = state_.get()](const RunReport& r) { s->report(r); };
  o.backend = backend_named(state_->backend);
  return o;
}

void Program::write_json(const nlohmann::ordered_json& result) const {
  if (!wants_json()) return;
  auto whole = result;
  if (whole.is_object() && !state_->stragglers.empty())
    whole["stragglers"] = state_->stragglers;
  const std::string text =
      whole.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
      '\n';
  if (state_->json_fd >= 0)
    return write_all(state_->json_fd, text, "standard output");
  const std::string& path = state_->json_path;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  DT_CHECK(fd >= 0, "--json", "cannot write {}: {}", path,
           std::strerror(errno));
  try {
    write_all(fd, text, path);
  } catch (...) {
    close(fd);
    throw;
  }
  DT_CHECK(close(fd) == 0, "--json", "cannot write {}: {}", path,
           std::strerror(errno));
}

int run(int argc, char** argv, const std::function<void(Runtime&)>& fn,
        const ProgramOptions& options) {
  Program program(options);
  return program.main(argc, argv, nullptr, [&] {
    const RunOptions ranks = program.run_options();
    const bool record = ranks.dry_run || program.wants_json();
    const size_t slots = ranks.dry_run ? 1 : static_cast<size_t>(ranks.world);
    std::vector<std::vector<CommEvent>> events(slots);
    std::vector<int64_t> peaks(slots, 0);
    run(ranks, [&](Runtime& rt) {
      RankContext& context = rt.context();
      context.record = record;
      fn(rt);
      const size_t slot = ranks.dry_run ? 0 : static_cast<size_t>(rt.rank());
      events[slot] = std::move(context.events);
      peaks[slot] = context.allocator->stats().peak_bytes;
    });
    if (!record) return;
    const auto rows = comm_rows(merge_events(events));
    const int64_t peak = *std::max_element(peaks.begin(), peaks.end());
    if (ranks.dry_run)
      fmt::print("{}\npeak memory of a rank: {} bytes\n",
                 comm_table(rows, false), grouped(peak));
    program.write_json({{"collectives", comm_json(rows, !ranks.dry_run)},
                        {"peak_bytes", peak}});
  });
}

}  // namespace dtensor
