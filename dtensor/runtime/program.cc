#include "dtensor/runtime/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/comm_table.h"
#include "dtensor/runtime/text_table.h"

namespace dtensor {
namespace {

// More threads than this are a mistake rather than a mesh.
constexpr int64_t kMostThreads = 1024;

struct Flag {
  std::string name, help, type, shown;  // shown: the default, "" for none
  bool repeats = false;
  int values = 1;  // per use; 0: a switch
  bool optional_value = false;
  std::function<void(const std::string&)> set;
  std::vector<std::string> given;  // as on the command line
  CLI::Option* option = nullptr;
};

template <class T>
T parse_number(const std::string& flag, const std::string& text) {
  T x{};
  const char* end = text.data() + text.size();
  auto [p, ec] = std::from_chars(text.data(), end, x);
  constexpr bool whole = std::is_integral_v<T>;
  DT_CHECK(ec != std::errc::result_out_of_range, flag,
           "{} is too large; write a number that fits into 64 bits", text);
  DT_CHECK(ec == std::errc() && p == end, flag,
           "'{}' is no {}; write one, like {} {}", text,
           whole ? "whole number" : "number", flag, whole ? "4" : "0.001");
  if constexpr (!whole)
    DT_CHECK(std::isfinite(x), flag, "{} is not finite; write a finite number",
             text);
  return x;
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& s : list) text += (text.empty() ? "" : ", ") + s;
  return text;
}

// The number of letters to change to get from a to b.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min(
          {row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

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
  std::vector<std::unique_ptr<Flag>> flags;
  std::string mesh_text, json_path;
  bool dry_run = false;
  Mesh mesh;
  int json_fd = -1;  // what was standard output

  Flag& add(std::string_view flag, std::string_view help,
            std::string_view type) {
    auto f = std::make_unique<Flag>();
    f->name = flag;
    f->help = help;
    f->type = type;
    flags.push_back(std::move(f));
    return *flags.back();
  }

  Flag* find(std::string_view flag) const {
    for (const auto& f : flags)
      if (f->name == flag) return f.get();
    return nullptr;
  }

  std::string help() const {
    std::string text = fmt::format("usage: {} [flags]\n", name);
    if (!options.about.empty()) text += "\n" + options.about + "\n";
    TextTable table("ll", {"flags:", ""});
    for (const auto& f : flags) {
      std::string left = "  " + f->name;
      if (!f->type.empty())
        left += f->optional_value ? " [" + f->type + "]" : " " + f->type;
      std::string right = f->help;
      if (!f->shown.empty()) right += " (default " + f->shown + ")";
      table.add({left, right});
    }
    table.add({"  --help", "this text"});
    return text + table.to_string();
  }

  [[noreturn]] void unexpected(const std::string& word) const {
    if (word.empty() || word[0] != '-')
      fail("flags", "'{}' belongs to no flag; --help lists the flags", word);
    const std::string flag = word.substr(0, word.find('='));
    const Flag* nearest = nullptr;
    for (const auto& f : flags)
      if (!nearest || distance(flag, f->name) < distance(flag, nearest->name))
        nearest = f.get();
    if (nearest && distance(flag, nearest->name) <= 2)
      fail("flags", "there is no flag {}; did you mean {}?", flag,
           nearest->name);
    fail("flags", "there is no flag {}; --help lists the flags", flag);
  }

  // False when only help was wanted.
  bool parse(int argc, char** argv) {
    if (argc > 0) name = std::filesystem::path(argv[0]).filename().string();
    CLI::App app;
    app.set_help_flag();
    app.allow_extras();
    bool wants_help = false;
    app.add_flag("-h,--help", wants_help);
    for (const auto& f : flags) {
      f->option = app.add_option(f->name, f->given);
      f->option->allow_extra_args(false);
      if (f->values == 0)
        f->option->expected(0);
      else if (f->optional_value)
        f->option->expected(0, 1);
      f->option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::ArgumentMismatch&) {
      const std::string last = argv[argc - 1];
      fail(last, "a value is missing; write {} {}", last,
           find(last) ? find(last)->type : "VALUE");
    } catch (const CLI::ParseError& e) {
      fail("flags", "{}; --help lists the flags", one_line(e.what()));
    }
    if (wants_help) {
      std::fputs(help().c_str(), stdout);
      return false;
    }
    if (auto extras = app.remaining(); !extras.empty()) unexpected(extras[0]);
    for (const auto& f : flags) {
      if (f->option->count() == 0) continue;
      if (f->values == 0 || f->given.empty()) f->given = {""};
      // The last one counts, as everywhere.
      if (!f->repeats) f->given = {f->given.back()};
      for (const std::string& text : f->given) f->set(text);
    }
    read_mesh();
    if (find("--json")->option->count()) open_json();
    return true;
  }

  void read_mesh() {
    if (find("--mesh")->option->count() == 0) mesh_text = options.mesh;
    mesh = mesh_text.empty() && find("--mesh")->option->count() == 0
               ? Mesh({{"ranks", 1}})
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
  Flag& mesh = s->add("--mesh", "axes and their sizes, or 2x4", "dp=2,tp=2");
  mesh.shown = s->options.mesh.empty() ? "one rank" : s->options.mesh;
  mesh.set = [s](const std::string& text) { s->mesh_text = text; };
  Flag& dry = s->add("--dry-run",
                     "no data: print the collectives and the peak memory", "");
  dry.values = 0;
  dry.set = [s](const std::string&) { s->dry_run = true; };
  Flag& json = s->add("--json",
                      "write the result as JSON, to standard output "
                      "without FILE",
                      "FILE");
  json.optional_value = true;
  json.set = [s](const std::string& text) { s->json_path = text; };
}

Program::~Program() = default;

void Program::add(std::string_view name, int64_t* value, std::string_view help,
                  int64_t min, int64_t max) {
  Flag& f = state_->add(name, help, "N");
  if (*value >= min && *value <= max) f.shown = std::to_string(*value);
  f.set = [flag = f.name, value, min, max](const std::string& text) {
    const int64_t x = parse_number<int64_t>(flag, text);
    DT_CHECK(x >= min, flag,
             "{} is too small; write a whole number of at least {}", x, min);
    DT_CHECK(x <= max, flag,
             "{} is too large; write a whole number of at most {}", x, max);
    *value = x;
  };
}

void Program::add(std::string_view name, double* value, std::string_view help,
                  double min) {
  Flag& f = state_->add(name, help, "X");
  if (*value >= min) f.shown = fmt::format("{:g}", *value);
  f.set = [flag = f.name, value, min](const std::string& text) {
    const double x = parse_number<double>(flag, text);
    DT_CHECK(x >= min, flag, "{} is too small; write a number of at least {}",
             text, min);
    *value = x;
  };
}

void Program::add(std::string_view name, std::string* value,
                  std::string_view help, std::vector<std::string> choices) {
  Flag& f = state_->add(name, help, "TEXT");
  if (!choices.empty()) {
    f.type.clear();
    for (const std::string& c : choices)
      f.type += (f.type.empty() ? "" : "|") + c;
  } else if (help.find("file") != help.npos) {
    f.type = "FILE";
  } else if (help.find("folder") != help.npos) {
    f.type = "DIR";
  }
  f.shown = *value;
  f.set = [flag = f.name, value, choices](const std::string& text) {
    if (choices.empty())
      DT_CHECK(!text.empty(), flag, "the text is empty; write {} TEXT", flag);
    else
      DT_CHECK(std::count(choices.begin(), choices.end(), text) == 1, flag,
               "there is no '{}'; write one of {}", text, joined(choices));
    *value = text;
  };
}

void Program::add(std::string_view name, std::vector<std::string>* values,
                  std::string_view help) {
  Flag& f = state_->add(name, help, "TEXT");
  f.repeats = true;
  f.set = [values](const std::string& text) { values->push_back(text); };
}

void Program::add(std::string_view name, bool* value, std::string_view help) {
  Flag& f = state_->add(name, help, "");
  f.values = 0;
  f.set = [value](const std::string&) { *value = true; };
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
  return code;
}

bool Program::given(std::string_view name) const {
  const Flag* f = state_->find(name);
  return f && !f->given.empty();
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
  return o;
}

void Program::write_json(const nlohmann::ordered_json& result) const {
  if (!wants_json()) return;
  const std::string text =
      result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
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
