// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/program/json_text.h"
#include "dtensor/program/own_playground.h"
#include "dtensor/program/page/page.h"
#include "dtensor/text_file.h"
#include "dtensor/version.h"

namespace dtensor {
namespace {

using Json = nlohmann::ordered_json;

// The flags that command_text() leaves out: they only say where results go.
constexpr std::string_view kFlags[] = {"--json", "--record", "--html"};

// Redirects standard output to standard error. Returns a descriptor of the
// original standard output, to which the flag's result is written.
int take_stdout(std::string_view flag) {
  std::fflush(stdout);
  const int out = dup(STDOUT_FILENO);
  DT_CHECK(out >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0, flag,
           "standard output cannot be used: {}; write {} FILE",
           std::strerror(errno), flag);
  return out;
}

void write_all(std::string_view flag, int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    DT_CHECK(n > 0, flag,
             "standard output cannot be written: {}; write {} FILE",
             std::strerror(errno), flag);
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// The command line with its words quoted for a shell, without the flags in
// `without` and their values.
std::string command_text(const std::string& name, std::span<char* const> words,
                         std::span<const std::string_view> without) {
  std::string text = name;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const std::string_view flag = word.substr(0, word.find('='));
    if (std::count(without.begin(), without.end(), flag)) {
      if (flag == word && i + 1 < words.size() &&
          !std::string_view(words[i + 1]).starts_with("--"))
        ++i;
      continue;
    }
    text += ' ';
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST"
                               "UVWXYZ0123456789-_=,.:/+@%") == word.npos &&
        !word.empty()) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) c == '\'' ? text += "'\\''" : text += c;
    text += '\'';
  }
  return text;
}

// Writes to the file at `path` or, if `path` is "-", to the descriptor `fd`.
void write(std::string_view flag, const std::string& path, int fd,
           std::string_view text) {
  if (path == "-") return write_all(flag, fd, text);
  write_text_file(flag, path, text);
}

}  // namespace

void discard_stdout() {
  const int nowhere = ::open("/dev/null", O_WRONLY);
  if (nowhere < 0) return;
  std::fflush(stdout);
  dup2(nowhere, STDOUT_FILENO);
  close(nowhere);
}

void Outputs::add_flags(Flags& flags, bool has_ranks) {
  if (has_ranks) {
    flags.add(
        "--html", &html_,
        "write a page that shows what a run, or a dry run, does, operator "
        "by operator",
        TextKind::kFile);
    flags.add("--record", &record_, "the same as JSON, for other programs",
              TextKind::kFile);
  }
  Flags::Flag& json = flags.add(
      "--json", "write the result as JSON, to standard output without FILE",
      "FILE");
  json.optional_value = true;
  json.set = [this](const std::string& text) {
    json_ = text.empty() ? "-" : text;
  };
}

void Outputs::open(const std::string& program, std::span<char* const> words,
                   const std::string& cost) {
  program_ = program;
  machine_ = cost.empty() ? "CPU ranks" : cost;
  command_ = command_text(program, words, kFlags);
  DT_CHECK(html_ != "-", "--html",
           "a page cannot be written to standard output; name a file");
  DT_CHECK(json_ != "-" || record_ != "-", "--record",
           "standard output is for --json here; name a file for --record or "
           "for --json");
  const auto ready = [&](const char* flag, std::string& path) {
    if (path.empty()) return;
    if (path == "-") {
      stdout_ = take_stdout(flag);
      return;
    }
    path = caller_path(path);
    check_writable(flag, path);
  };
  ready("--json", json_);
  ready("--record", record_);
  ready("--html", html_);
}

std::shared_ptr<Record> Outputs::record(const Mesh& mesh,
                                        const CostTable& cost) {
  if (!records_.empty()) return records_.back();
  return another_record(fmt::format("{} on {}", program_, mesh.to_string()),
                        mesh, cost);
}

std::shared_ptr<Record> Outputs::another_record(std::string title,
                                                const Mesh& mesh,
                                                const CostTable& cost) {
  if (!wants_record()) return nullptr;
  auto record = std::make_shared<Record>(std::move(title), mesh, cost);
  if (const auto most = most_operators()) record->refuse_beyond(*most);
  return records_.emplace_back(std::move(record));
}

void Outputs::write_json(const Json& result) const {
  if (!json_.empty()) write("--json", json_, stdout_, json_text(result));
}

void Outputs::write_records() const {
  std::vector<Json> all;
  for (const auto& r : records_) {
    if (r->empty()) continue;
    Json& record = all.emplace_back(r->json());
    record["program"] = program_;
    record["command"] = command_;
    record["machine"] = machine_;
    record["library"] = version();
  }
  if (!html_.empty()) write_text_file("--html", html_, page(all));
  if (record_.empty()) return;
  const Json whole = all.size() == 1 ? all[0] : Json(all);
  write("--record", record_, stdout_,
        whole.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

}  // namespace dtensor
