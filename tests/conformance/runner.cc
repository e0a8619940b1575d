// SPDX-License-Identifier: Apache-2.0
// Runs operators on cases with known answers, on one rank and on meshes.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "dtensor/text_file.h"
#include "tests/command_line.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/walk.h"
#include "tests/dtensor/device/late_device.h"

namespace dtensor::conformance {
namespace {

struct Options {
  std::string json, device = "cpu";
  std::vector<std::string> folder, ops, meshes{"2,3,4,2x2,2x3,2x2x2"};
  int64_t tier = 0, layouts = 12, seed = 0;
  bool no_grad = false, strict = false, reproducible = false, verbose = false;
};

struct Row {
  int64_t cases = 0, skipped = 0, layouts = 0, passed = 0, failed = 0,
          native = 0, refused = 0;
};

// The verdict on a case, from all of its attempts.
struct Verdict {
  bool failed = false;
  std::string not_here;
};

std::vector<std::string> split(const std::vector<std::string>& lists) {
  std::vector<std::string> all;
  for (const std::string& list : lists)
    for (size_t at = 0; at <= list.size();) {
      size_t end = std::min(list.find(',', at), list.size());
      if (end > at) all.push_back(list.substr(at, end - at));
      at = end + 1;
    }
  return all;
}

class Report {
 public:
  explicit Report(const Options& options) : options_(options) {}

  void skip(const Case& c, const std::string& why) {
    Row& row = rows_[c.op];
    ++row.cases;
    ++row.skipped;
    why_[c.op].insert(why);
    skipped_[c.id] = why;
  }
  void expect(const Case& c) {
    ++rows_[c.op].cases;
    verdicts_[&c];
  }
  void add(const std::vector<Attempt>& attempts) {
    for (const Attempt& a : attempts) {
      Row& row = rows_[a.of->op];
      Verdict& verdict = verdicts_[a.of];
      if (!a.not_here.empty()) {
        verdict.not_here = a.not_here;
        continue;
      }
      ++row.layouts;
      row.refused += a.refused;
      row.native += a.native && !a.refused && a.failure.empty();
      if (a.failure.empty()) continue;
      verdict.failed = true;
      fail_layouts_.push_back(a);
      if (++shown_[a.of->id] <= (options_.verbose ? 1000 : 1))
        std::printf("FAILED %s on %s with %s: %s\n", a.of->id.c_str(),
                    a.mesh.to_string().c_str(),
                    fmt::format("{}", fmt::join(a.layouts, " ")).c_str(),
                    a.failure.c_str());
    }
    std::fflush(stdout);
  }
  bool skipped(const Case& c) const {
    auto it = verdicts_.find(&c);
    return it != verdicts_.end() && !it->second.not_here.empty();
  }

  // Prints the table and writes --json. Returns the exit code.
  int finish(const std::vector<Mesh>& meshes) {
    for (const auto& [c, verdict] : verdicts_) {
      Row& row = rows_[c->op];
      if (verdict.failed) {
        ++row.failed;
      } else if (!verdict.not_here.empty()) {
        ++row.skipped;
        why_[c->op].insert(verdict.not_here + " (" + c->id + ")");
        skipped_[c->id] = verdict.not_here;
      } else {
        ++row.passed;
      }
    }
    Row sum;
    std::printf("%-32s %6s %8s %7s %7s %7s%s\n", "operator", "cases", "layouts",
                "passed", "failed", "native",
                options_.strict || options_.reproducible ? " refused" : "");
    for (const auto& [op, row] : rows_) {
      sum.passed += row.passed;
      sum.failed += row.failed;
      sum.skipped += row.skipped;
      sum.layouts += row.layouts;
      sum.native += row.native;
      if (row.skipped == row.cases && !options_.verbose) continue;
      std::printf("%-32s %6ld %8ld %7ld %7ld %7ld", op.c_str(), row.cases,
                  row.layouts, row.passed, row.failed, row.native);
      if (options_.strict || options_.reproducible)
        std::printf(" %7ld", row.refused);
      std::printf("\n");
    }
    if (sum.skipped > 0) print_skipped();
    std::printf("%ld layouts, %ld of them native\n", sum.layouts, sum.native);
    if (!options_.json.empty()) write_json(meshes, sum);
    std::printf("%ld passed, %ld failed, %ld skipped\n", sum.passed, sum.failed,
                sum.skipped);
    return sum.failed > 0 ? 1 : 0;
  }

 private:
  void print_skipped() const {
    size_t ops = 0, forms = 0;
    for (const auto& [op, reasons] : why_)
      (rows_.at(op).skipped == rows_.at(op).cases ? ops : forms) += 1;
    std::printf(
        "skipped: %zu operators that the library does not have, and forms of "
        "%zu others%s\n",
        ops, forms, options_.verbose ? ":" : " (--verbose names them)");
    if (!options_.verbose) return;
    for (const auto& [op, reasons] : why_)
      for (const std::string& why : reasons)
        std::printf("  %s: %s\n", op.c_str(), why.c_str());
  }

  void write_json(const std::vector<Mesh>& meshes, const Row& sum) const {
    nlohmann::ordered_json out;
    for (const Mesh& m : meshes) out["meshes"].push_back(m.to_string());
    out["seed"] = options_.seed;
    out["layouts_per_case_and_mesh"] = options_.layouts;
    out["operators"] = nlohmann::ordered_json::array();
    for (const auto& [op, row] : rows_)
      out["operators"].push_back({{"operator", op},
                                  {"cases", row.cases},
                                  {"layouts", row.layouts},
                                  {"passed", row.passed},
                                  {"failed", row.failed},
                                  {"skipped", row.skipped},
                                  {"native", row.native},
                                  {"refused", row.refused}});
    out["failures"] = nlohmann::ordered_json::array();
    for (const Attempt& a : fail_layouts_)
      out["failures"].push_back({{"id", a.of->id},
                                 {"mesh", a.mesh.to_string()},
                                 {"layouts", a.layouts},
                                 {"largest_error", a.worst},
                                 {"what", a.failure}});
    out["skipped_cases"] = skipped_;
    out["passed"] = sum.passed;
    out["failed"] = sum.failed;
    out["skipped"] = sum.skipped;
    std::ofstream file(caller_path(options_.json));
    file << out.dump(1) << "\n";
    DT_CHECK(file.good(), "conformance", "cannot write {}; name another file",
             options_.json);
  }

  const Options& options_;
  std::map<std::string, Row> rows_;
  std::map<const Case*, Verdict> verdicts_;
  std::map<std::string, std::set<std::string>> why_;
  std::map<std::string, std::string> skipped_;  // by case: the reason
  std::map<std::string, int> shown_;
  std::vector<Attempt> fail_layouts_;
};

std::string not_known(const Cases& cases, const Case& c) {
  for (const auto* names : {&c.inputs, &c.outputs})
    for (const std::string& name : *names)
      if (!cases.known(name)) return "a type that the library does not have";
  return "";
}

int conform(const Options& options) {
  DT_CHECK(options.folder.size() == 1, "conformance",
           "{} folders are given; name one, with cases.jsonl and "
           "tensors.safetensors",
           options.folder.size());
  const Cases cases(caller_path(options.folder[0]));
  const CallTable table = all_calls();
  std::set<std::string> ops, known;
  for (const Case& c : cases.all()) known.insert(c.op);
  for (const std::string& op : split(options.ops)) {
    DT_CHECK(known.contains(op), "--ops",
             "no case is of \"{}\"; name operators as torch does, such as "
             "nn.functional.gelu",
             op);
    ops.insert(op);
  }
  std::vector<Mesh> meshes{Mesh({{"ranks", 1}})};
  for (const std::string& text : split(options.meshes)) {
    const Mesh mesh = Mesh::parse(text);
    // One rank is already the first mesh.
    if (mesh.num_ranks() > 1 || mesh.num_axes() > 1) meshes.push_back(mesh);
  }

  std::shared_ptr<Device> device;
  if (options.device == "late")
    device = make_device(LateDevice::kRecording);
  else if (options.device == "cuda")
    device = {std::shared_ptr<void>(), &cuda(0)};

  Report report(options);
  std::vector<const Case*> chosen;
  for (const Case& c : cases.all()) {
    if (!ops.empty() && !ops.contains(c.op)) continue;
    if (options.tier != 0 && c.tier != options.tier) continue;
    if (!table.contains(c.op)) {
      report.skip(c, "not in the library");
    } else if (const auto why = not_known(cases, c); !why.empty()) {
      report.skip(c, why + " (" + c.id + ")");
    } else {
      report.expect(c);
      chosen.push_back(&c);
    }
  }
  std::map<std::string, std::vector<double>> of_one_rank;
  for (const Mesh& mesh : meshes) {
    std::vector<Attempt> attempts;
    for (const Case* c : chosen)
      if (!report.skipped(*c))
        for (auto& layouts :
             combinations(cases, *c, mesh, options.layouts, options.seed)) {
          Attempt a;
          a.of = c;
          a.call = &table.find(c->op)->second;
          a.mesh = mesh;
          a.layouts = std::move(layouts);
          // A reproducible run does not split sums of floats.
          if (options.reproducible &&
              std::ranges::any_of(a.layouts, [](const std::string& l) {
                return l.find('P') != l.npos;
              }))
            continue;
          attempts.push_back(std::move(a));
        }
    size_t told = 0;
    walk(cases, attempts,
         {!options.no_grad, options.strict, device.get(),
          options.reproducible ? &of_one_rank : nullptr},
         [&](size_t done) {
           const size_t tenth = done * 10 / attempts.size();
           if (tenth == told) return;
           told = tenth;
           std::fprintf(stderr, "%s: %zu of %zu layouts\n",
                        mesh.to_string().c_str(), done, attempts.size());
         });
    report.add(attempts);
  }
  return report.finish(meshes);
}

}  // namespace
}  // namespace dtensor::conformance

int main(int argc, char** argv) {
  dtensor::Flags flags;
  dtensor::conformance::Options o;
  flags.add_words(&o.folder, "with cases.jsonl and tensors.safetensors", "DIR");
  flags.add("--ops", &o.ops, "only these operators: a,b");
  flags.add("--tier", &o.tier, "only those of this tier: 1 or 2", 1, 2);
  flags.add("--mesh", &o.meshes,
            "several, separated by commas; every case runs on one rank, too");
  flags.add("--layouts", &o.layouts,
            "at most so many layouts per case and mesh", 1, int64_t{1} << 40);
  flags.add("--seed", &o.seed, "of the draw of layouts", 0, INT64_MAX);
  flags.add("--no-grad", &o.no_grad, "values alone");
  flags.add("--strict", &o.strict,
            "forward under ExplicitOnly: an operator that has to communicate "
            "may refuse, which is counted apart");
  flags.add("--reproducible", &o.reproducible,
            "reproducible runs, in layouts without partial sums, f64 as f32: "
            "every mesh must give the bits of one rank, or refuse");
  flags.add("--device", &o.device,
            "what all ranks compute on: cpu; cuda: the first GPU; late: the "
            "host as a GPU would, and with what a GPU computes with",
            {"cpu", "cuda", "late"});
  flags.add("--json", &o.json, "writes the result to this file",
            dtensor::TextKind::kFile);
  flags.add("--verbose", &o.verbose,
            "every failing layout, and what was skipped, by name");
  const char* about =
      "Runs the library's operators on cases with a known answer: on one rank, "
      "then on\nmeshes of thread ranks in many layouts of the inputs, values "
      "and gradients. Ends\nwith \"N passed, N failed, N skipped\" in cases "
      "(skipped: an operator, or a form of\none, that the library does not "
      "have); exits with 1 when any failed, with 2 on bad\ninput.";
  if (const auto code = parse(flags, about, argc, argv)) return *code;
  try {
    return dtensor::conformance::conform(o);
  } catch (const std::exception& e) {
    dtensor::print_error(argv, e);
    return 2;
  }
}
