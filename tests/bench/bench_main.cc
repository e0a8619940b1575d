// SPDX-License-Identifier: Apache-2.0
// main() of the benches that use Google Benchmark.
//
// Debian compiles that library with -O2 and without NDEBUG, so its console
// report warns of a debug build. But the timed code is in the bench, which is
// compiled with the options of .bazelrc, so the warning is left out.
#include <benchmark/benchmark.h>

#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

namespace {

class Report : public benchmark::ConsoleReporter {
 public:
  bool ReportContext(const Context& context) override {
    std::ostringstream text;
    SetErrorStream(&text);
    const bool goes_on = ConsoleReporter::ReportContext(context);
    SetErrorStream(&std::cerr);
    std::istringstream lines(text.str());
    for (std::string line; std::getline(lines, line);)
      if (line.find("Library was built as DEBUG") == line.npos)
        std::cerr << line << '\n';
    return goes_on;
  }
};

}  // namespace

int main(int argc, char** argv) {
  bool console = true;
  for (int i = 1; i < argc; ++i)
    console &= !std::string_view(argv[i]).starts_with("--benchmark_format=");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  Report report;
  if (console)
    benchmark::RunSpecifiedBenchmarks(&report);
  else
    benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
