// SPDX-License-Identifier: Apache-2.0
// Compares random programs on meshes of thread ranks with plain loops. If a
// program fails, makes it smaller as long as it fails, and prints it.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>

#include "dtensor/dtensor.h"
#include "tests/random_programs/reference.h"
#include "tests/random_programs/subject.h"

namespace dtensor::random_programs {
namespace {

using Subjects = std::vector<std::shared_ptr<const Subject>>;

struct Options {
  int64_t seed = 1, programs = 300;
  double timeout = 10;
  bool pipelines = false;
  Running running;
};

// Runs the subjects in a child process, so that a subject that crashes or never
// ends counts as a failure, too. Returns the failure of each ("": none). The
// list is shorter if a subject ended the process: it is then the last.
std::vector<std::string> failures_of(std::span<const Subjects::value_type> list,
                                     const Running& running) {
  int ends[2];
  DT_CHECK(pipe(ends) == 0, "random_programs", "no pipe: {}",
           std::strerror(errno));
  std::fflush(nullptr);
  const pid_t child = fork();
  DT_CHECK(child >= 0, "random_programs", "no child: {}", std::strerror(errno));
  if (child == 0) {
    close(ends[0]);
    for (const auto& subject : list) {
      std::string text;
      try {
        text = subject->failure(running);
      } catch (const Unfit&) {
      }
      text += '\0';
      if (write(ends[1], text.data(), text.size()) < 0) _exit(3);
    }
    _exit(0);
  }
  close(ends[1]);
  std::vector<std::string> failures;
  std::string text, end = "it ends its process";
  for (pollfd ready{ends[0], POLLIN, 0};;) {
    // A rank that computes for ever is not ended by the library's timeout.
    const auto patience = 3 * running.timeout + std::chrono::seconds(10);
    if (poll(&ready, 1, static_cast<int>(patience.count())) == 0) {
      end = "it does not end";
      kill(child, SIGKILL);
      break;
    }
    char bytes[4096];
    const ssize_t n = read(ends[0], bytes, sizeof bytes);
    if (n <= 0) break;
    for (char b : std::span(bytes, static_cast<size_t>(n)))
      if (b)
        text += b;
      else
        failures.push_back(std::exchange(text, ""));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (failures.size() < list.size()) {
    if (WIFSIGNALED(status))
      end += fmt::format(", by signal {} ({})", WTERMSIG(status),
                         strsignal(WTERMSIG(status)));
    failures.push_back(end);
  }
  return failures;
}

// Makes the subject of this seed, which has failed, as small as possible, and
// prints it.
void report(int64_t seed, Subjects::value_type subject, std::string failure,
            const Options& options) {
  std::fprintf(stderr, "seed %ld fails (%s), being made smaller\n", seed,
               failure.c_str());
  fmt::print("FAILED seed {}, {} operators: {}\n", seed, subject->operators(),
             failure);
  Running running = options.running;
  running.write.clear();
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(120);
  for (bool again = true; again;) {
    again = false;
    for (const auto& candidate : subject->smaller()) {
      if (std::chrono::steady_clock::now() > until) break;
      const std::string text = failures_of({&candidate, 1}, running)[0];
      if (text.empty() || text == Subject::kRefused) continue;
      subject = candidate;
      failure = text;
      again = true;
      break;
    }
  }
  fmt::print(
      "The smallest that fails, of {} operators:\n{}{}\nTo repeat it: bazel "
      "run //tests/random_programs -- --seed {} --programs 1{}{}\n",
      subject->operators(), subject->text(), failure, seed,
      options.pipelines ? " --pipelines" : "",
      running.wrong.empty() ? "" : " --wrong " + running.wrong);
  std::fflush(stdout);
}

// Runs the subjects of all seeds, up to kMostFailed failures. Returns how many
// failed.
int64_t run_all(const Options& options) {
  constexpr int64_t kBatch = 50, kMostFailed = 5;
  using Clock = std::chrono::steady_clock;
  int64_t failed = 0, refused = 0, done = 0, ops = 0;
  auto told = Clock::now();
  while (done < options.programs && failed < kMostFailed) {
    const int64_t count = std::min(kBatch, options.programs - done);
    Subjects subjects;
    for (int64_t i = 0; i < count; ++i) {
      const auto seed = static_cast<uint64_t>(options.seed + done + i);
      subjects.push_back(options.pipelines ? random_pipeline_of(seed)
                                           : random_program_of(seed));
    }
    for (std::span<const Subjects::value_type> rest = subjects;
         !rest.empty() && failed < kMostFailed;) {
      const auto texts = failures_of(rest, options.running);
      for (size_t i = 0; i < texts.size() && failed < kMostFailed; ++i) {
        ops += rest[i]->operators();
        const int64_t seed = options.seed + done++;
        const bool no = texts[i] == Subject::kRefused;
        refused += no;
        if (no || texts[i].empty()) continue;
        ++failed;
        report(seed, rest[i], texts[i], options);
      }
      rest = rest.subspan(texts.size());
    }
    if (Clock::now() - told < std::chrono::seconds(3)) continue;
    told = Clock::now();
    std::fprintf(stderr, "%ld of %ld, %ld failed\n", done, options.programs,
                 failed);
  }
  fmt::print("{} {} of {} operators, {} failed, {} refused\n", done,
             options.pipelines ? "pipelines" : "programs", ops, failed,
             refused);
  return failed;
}

int main_of(int argc, char** argv) {
  Options options;
  dtensor::Program program(
      {.about = "Runs random programs on meshes of thread ranks and compares "
                "values and gradients with plain loops. Program n of a seed S "
                "is the first of seed S + n. Makes one that fails as small as "
                "possible and prints it; stops at the fifth. Counts those in "
                "which an operator refuses to move a parameter.",
       .no_ranks = true});
  program.add("--seed", &options.seed, "of the first program");
  program.add("--programs", &options.programs, "how many", 1);
  program.add("--pipelines", &options.pipelines,
              "runs pipelines with random stages and schedules instead");
  program.add("--timeout", &options.timeout,
              "seconds that a rank waits for others");
  program.add("--wrong", &options.running.wrong,
              "supposes that this operator's values are wrong, to see that "
              "failures are noticed");
  program.add("--write", &options.running.write,
              "appends each program that passes, and its results, to this "
              "file, a line of JSON each, for with_torch.py");
  return program.main(
      argc, argv,
      [&] {
        DT_CHECK(options.running.write.empty() || !options.pipelines,
                 "random_programs",
                 "--write has no effect on --pipelines; leave one out");
        options.running.timeout = std::chrono::milliseconds(
            static_cast<int64_t>(options.timeout * 1000));
      },
      [&] {
        DT_CHECK(run_all(options) == 0, "random_programs",
                 "programs failed; the output says how to repeat each");
      });
}

}  // namespace
}  // namespace dtensor::random_programs

int main(int argc, char** argv) {
  return dtensor::random_programs::main_of(argc, argv);
}
