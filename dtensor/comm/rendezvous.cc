#include "dtensor/comm/rendezvous.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/interrupt.h"
#include "dtensor/io/file.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{5};

std::optional<std::string> read(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) return {};
  DT_CHECK(std::filesystem::is_regular_file(status), "rendezvous",
           "{} is not a regular file; name a path where nothing exists", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Readers never see a part of the file, and other users cannot read it: a
// process that knows the number may join.
void write(const std::string& path, std::string_view text, int64_t number) {
  const std::string part = fmt::format("{}.{:x}.part", path, number);
  {
    const io::File file = io::File::create(part, 0600);
    file.write(text.data(), static_cast<int64_t>(text.size()), 0);
  }
  io::rename_file(part, path);
}

void remove(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

int64_t fresh_number() {
  std::random_device random;
  const auto bits = (static_cast<uint64_t>(random()) << 32) ^ random() ^
                    (static_cast<uint64_t>(getpid()) << 40);
  return static_cast<int64_t>(bits >> 1);
}

// The contents of a rank's file: the number of ranks, the number of the call,
// and the rank's random number.
struct Coming {
  int64_t world = 0, call = 0, number = 0;
};
std::optional<Coming> coming(const std::string& path) {
  const auto text = read(path);
  Coming c;
  if (!text || !(std::istringstream(*text) >> c.world >> c.call >> c.number))
    return {};
  return c;
}

}  // namespace

// One call of share().
class Rendezvous::Exchange {
 public:
  explicit Exchange(const Rendezvous& r)
      : r_(r), number_(fresh_number()), end_(Clock::now() + r.patience_) {}

  // Rank 0 writes for the numbers that it has seen, and again when one of them
  // changes. It is done when every rank has removed its own file.
  void give(std::string_view bytes) {
    const auto world = static_cast<size_t>(r_.world_);
    std::vector<Coming> seen(world);
    seen[0] = {r_.world_, r_.calls_, number_};
    for (;; std::this_thread::sleep_for(kPause)) {
      check_interrupted();
      bool changed = false, here = false;
      for (size_t m = 1; m < world; ++m) {
        const auto c = come(m);
        here = here || c;
        if (!c || c->number == seen[m].number) continue;
        seen[m] = *c;
        changed = true;
      }
      bool all = true;
      for (const Coming& c : seen) all = all && c.world == r_.world_;
      if (all && !here) break;
      if (all && changed) {
        std::string text;
        for (const Coming& c : seen) text += fmt::format("{} ", c.number);
        write(r_.path_, fmt::format("{}\n{}", text, bytes), number_);
      }
      if (Clock::now() > end_) too_late(seen);
    }
    remove(r_.path_);
  }

  std::string take() {
    const std::string mine = path_of(static_cast<size_t>(r_.rank_));
    write(mine, fmt::format("{} {} {}\n", r_.world_, r_.calls_, number_),
          number_);
    for (;; std::this_thread::sleep_for(kPause)) {
      check_interrupted();
      if (auto bytes = for_me()) {
        remove(mine);
        return *bytes;
      }
      // Its file stays, so that rank 0 does not believe that this rank has the
      // bytes.
      if (Clock::now() <= end_) continue;
      fail("rendezvous",
           "rank {} of {} has waited {} for the others at {}; start them all, "
           "with the same --rendezvous and the same number of ranks",
           r_.rank_, r_.world_, waited(), r_.path_);
    }
  }

 private:
  std::string path_of(size_t m) const {
    return fmt::format("{}.{}", r_.path_, m);
  }
  // Set if rank m has arrived and does not have the bytes yet.
  std::optional<Coming> come(size_t m) const {
    const auto c = coming(path_of(m));
    return c && c->call == r_.calls_ ? c : std::nullopt;
  }
  std::string waited() const {
    return fmt::format("{} s",
                       static_cast<double>(r_.patience_.count()) / 1000);
  }

  std::optional<std::string> for_me() const {
    const auto text = read(r_.path_);
    const size_t line = text ? text->find('\n') : std::string::npos;
    if (line == std::string::npos) return {};
    std::istringstream numbers(text->substr(0, line));
    std::vector<int64_t> all;
    for (int64_t n; numbers >> n;) all.push_back(n);
    if (std::ssize(all) != r_.world_ ||
        all[static_cast<size_t>(r_.rank_)] != number_)
      return {};
    return text->substr(line + 1);
  }

  [[noreturn]] void too_late(const std::vector<Coming>& seen) const {
    remove(r_.path_);
    std::string who;
    for (size_t m = 1; m < seen.size(); ++m) {
      if (seen[m].world == r_.world_ && !come(m)) continue;
      who += fmt::format("{}rank {}", who.empty() ? "" : ", ", m);
      if (seen[m].world && seen[m].world != r_.world_)
        who += fmt::format(" (it came as one of {})", seen[m].world);
    }
    fail("rendezvous",
         "rank 0 of {} has waited {} at {} for {}; start them all, with the "
         "same --rendezvous and the same number of ranks",
         r_.world_, waited(), r_.path_, who);
  }

  const Rendezvous& r_;
  const int64_t number_;
  const Clock::time_point end_;
};

Rendezvous::Rendezvous(std::string path, int64_t rank, int64_t world,
                       std::chrono::milliseconds patience)
    : path_(std::move(path)), rank_(rank), world_(world), patience_(patience) {
  DT_CHECK(!path_.empty() && 0 <= rank && rank < world, "rendezvous",
           "rank {} of {} at \"{}\"; name a path, and ranks from 0", rank,
           world, path_);
}

std::string Rendezvous::share(std::string_view bytes) {
  ++calls_;
  if (world_ == 1) return std::string(bytes);
  Exchange exchange(*this);
  if (rank_ > 0) return exchange.take();
  exchange.give(bytes);
  return std::string(bytes);
}

}  // namespace dtensor
