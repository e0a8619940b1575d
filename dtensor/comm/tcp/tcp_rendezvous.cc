#include "dtensor/comm/tcp/tcp_rendezvous.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "dtensor/comm/rendezvous.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using Clock = Socket::Clock;
using Token = std::array<uint64_t, 2>;

// Compared as a number, so that it also detects another byte order.
constexpr uint64_t kMagic = 0x31706374'736e6574ull;
constexpr uint32_t kVersion = 2;
// How long a new connection may take to identify itself, and how many may be
// doing so; if there are more, the oldest one is closed.
constexpr auto kSilence = 3s;
constexpr size_t kMostSilent = 128;
// How long processes that arrive after an error are still told.
constexpr auto kTell = 2s;
// A port may be in use for a moment.
constexpr auto kBusy = 1s;
constexpr auto kRetry = 20ms;
// How often the first process checks whether doubt about a process has passed.
constexpr auto kLook = 100ms;
constexpr int64_t kMostText = 4096;
constexpr int kMostProcesses = 1 << 16;

enum class Kind : uint32_t {
  kJoin,    // to the first process: I am here
  kMeet,    // to another process, which answers kReady
  kTable,   // from the first process: all addresses
  kReady,   // to the first process: connected with all
  kGo,      // from the first process: everyone is connected
  kFailed,  // in both directions: why it failed
};

// The beginning of every message.
struct Note {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  Kind kind = Kind::kJoin;
  Token token = {};
  uint64_t facts = 0;
  int32_t process = 0, processes = 0;
  uint32_t port = 0;   // where the sender listens
  uint32_t bytes = 0;  // that follow
};
static_assert(sizeof(Note) == 56);

Token token_of(std::string_view text, uint64_t more = 0) {
  return {hash_text(text, more), hash_text(text, ~more)};
}

uint64_t random_bits() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) ^ random();
}

std::string joined(const std::vector<int>& list) {
  return fmt::format("{}", fmt::join(list, ","));
}

double seconds(std::chrono::milliseconds t) {
  return static_cast<double>(t.count()) / 1000;
}

// ---- Incoming connections ----

class Door {
 public:
  struct Arrival {
    Socket socket;
    Note note;
  };
  Door(Socket listener, Kind kind, const Token& token)
      : listener_(std::move(listener)), kind_(kind), token_(token) {}

  // The next identified connection; empty at `end`, or if `also` can be read.
  std::optional<Arrival> next(Clock::time_point end,
                              const Socket* also = nullptr) {
    for (;;) {
      check_interrupted();
      if (auto found = hear()) return found;
      accept();
      if (auto found = hear()) return found;
      if (Clock::now() >= end || (also && also->readable())) return {};
      wait(also);
    }
  }
  void turn_away(Socket) { ++others_; }
  // "", or " (turned away: 1 of another job or program, 1 of another version of
  // this library)".
  std::string turned_away() const {
    std::string who;
    for (const auto& [count, what] :
         {std::pair(others_, "of another job or program"),
          {versions_, "of another version of this library"},
          {strangers_, "that sent something else, or nothing"}})
      if (count > 0)
        who += fmt::format("{}{} {}", who.empty() ? "" : ", ", count, what);
    return who.empty() ? "" : fmt::format(" (turned away: {})", who);
  }

 private:
  struct Silent {
    Socket socket;
    Note note = {};
    size_t got = 0;
    Clock::time_point since = Clock::now();
  };

  // Only some at a time: no connection is closed before it was read.
  void accept() {
    errno = 0;
    for (size_t i = 0; i < kMostSilent / 2; ++i) {
      Socket s = accept_from(listener_);
      if (!s) break;
      if (silent_.size() >= kMostSilent) {
        silent_.pop_front();
        ++strangers_;
      }
      silent_.push_back({std::move(s)});
    }
    // Out of file descriptors: free that of the oldest silent connection.
    if ((errno == EMFILE || errno == ENFILE) && !silent_.empty())
      silent_.pop_front();
  }

  std::optional<Arrival> hear() {
    for (auto it = silent_.begin(); it != silent_.end();) {
      switch (hear(*it)) {
        case Heard::kMore:
          ++it;
          break;
        case Heard::kNothing:
          it = silent_.erase(it);
          break;
        case Heard::kAll: {
          Arrival a{std::move(it->socket), it->note};
          silent_.erase(it);
          return a;
        }
      }
    }
    return {};
  }

  enum class Heard { kMore, kNothing, kAll };
  Heard hear(Silent& s) {
    char* const to = reinterpret_cast<char*>(&s.note);
    bool closed = false;
    while (s.got < sizeof(Note)) {
      const ssize_t n =
          recv(s.socket.fd(), to + s.got, sizeof(Note) - s.got, MSG_DONTWAIT);
      if (n <= 0) {
        closed = n == 0 || (errno != EAGAIN && errno != EINTR);
        break;
      }
      s.got += static_cast<size_t>(n);
    }
    if (s.got < sizeof(Note)) {
      const size_t some = std::min(s.got, sizeof(kMagic));
      const bool wrong = std::memcmp(to, &kMagic, some) != 0;
      if (!wrong && !closed && Clock::now() - s.since < kSilence)
        return Heard::kMore;
      ++strangers_;
      return Heard::kNothing;
    }
    if (s.note.magic == kMagic && s.note.version != kVersion)
      ++versions_;
    else if (s.note.magic == kMagic && s.note.token != token_)
      ++others_;
    else if (s.note.magic != kMagic || s.note.kind != kind_ ||
             s.note.bytes != 0 || s.note.port > 65535)
      ++strangers_;
    else
      return Heard::kAll;
    return Heard::kNothing;
  }

  void wait(const Socket* also) const {
    std::vector<pollfd> all = {{listener_.fd(), POLLIN, 0}};
    if (also) all.push_back({also->fd(), POLLIN, 0});
    for (const Silent& s : silent_) all.push_back({s.socket.fd(), POLLIN, 0});
    poll(all.data(), all.size(), static_cast<int>(kRetry / 1ms));
  }

  const Socket listener_;
  const Kind kind_;
  const Token token_;
  std::list<Silent> silent_;
  int64_t strangers_ = 0, others_ = 0, versions_ = 0;
};

// ---- Messages between processes that know each other ----

void say(const Socket& s, const Note& about, Kind kind, std::string_view text,
         Clock::time_point end) {
  Note n = about;
  n.kind = kind;
  n.bytes = static_cast<uint32_t>(text.size());
  // A failure is ignored: a process that can no longer receive does not answer
  // either, and the caller notices that.
  if (s.send(&n, sizeof(n), end))
    s.send(text.data(), static_cast<int64_t>(text.size()), end);
}

struct Said {
  Kind kind;
  std::string text;
};
// Empty if the connection ended, `end` passed, or the message makes no sense.
std::optional<Said> hear(const Socket& s, const Token& token, int64_t most,
                         Clock::time_point end) {
  Note n;
  if (!s.receive(&n, sizeof(n), end)) return {};
  if (n.magic != kMagic || n.version != kVersion || n.token != token ||
      static_cast<int64_t>(n.bytes) > most)
    return {};
  Said said{n.kind, std::string(n.bytes, 0)};
  if (!s.receive(said.text.data(), n.bytes, end)) return {};
  return said;
}

// Sent to all processes: a random key that only they know, and their addresses.
struct Table {
  Token key;
  std::vector<SocketAddress> places;

  std::string text() const {
    std::string t(reinterpret_cast<const char*>(&key), sizeof(key));
    t.append(reinterpret_cast<const char*>(places.data()),
             places.size() * sizeof(SocketAddress));
    return t;
  }
  static int64_t size(int processes) {
    return static_cast<int64_t>(sizeof(Token)) +
           processes * static_cast<int64_t>(sizeof(SocketAddress));
  }
  explicit Table(std::string_view text)
      : places((text.size() - sizeof(Token)) / sizeof(SocketAddress)) {
    std::memcpy(&key, text.data(), sizeof(key));
    std::memcpy(places.data(), text.data() + sizeof(key),
                text.size() - sizeof(key));
  }
  explicit Table(int processes)
      : key{random_bits(), random_bits()},
        places(static_cast<size_t>(processes)) {}
};

// The contents of the rendezvous file: an address, and a number that makes the
// token unique.
struct Card {
  SocketAddress address;
  uint32_t unused = 0;
  uint64_t number = 0;
};

// The common part of the first process and the others.
class Side {
 public:
  Side(const TcpPlace& place, const Token& token)
      : place_(place),
        end_(Clock::now() + place.patience),
        peers_(static_cast<size_t>(place.processes)) {
    note_.token = token;
    note_.facts = place.facts;
    note_.process = place.process;
    note_.processes = place.processes;
  }

 protected:
  [[noreturn]] void fail_with(const std::string& text, bool heard) const {
    throw NotMet(text.starts_with('[') ? text : "[tcp] " + text, heard);
  }
  Socket& peer(int p) { return peers_[static_cast<size_t>(p)]; }
  std::string by_file() const {
    return place_.path.empty() ? "" : " (see " + place_.path + ")";
  }

  // The second part may take as long as the first one.
  void begin_second_part() { end_ = Clock::now() + place_.patience; }

  const TcpPlace& place_;
  Clock::time_point end_;
  std::vector<Socket> peers_;
  Note note_;  // this process's
};

// ---- The first process ----

class First : public Side {
 public:
  First(const TcpPlace& place, const Token& token, Socket listener)
      : Side(place, token),
        where_(local_address(listener).to_string() + by_file()),
        door_(std::move(listener), Kind::kJoin, token),
        table_(place.processes),
        doubted_until_(static_cast<size_t>(place.processes)) {}

  std::vector<Socket> meet() {
    gather();
    begin_second_part();
    const std::string text = table_.text();
    for (int p = 1; p < place_.processes; ++p)
      say(peer(p), note_, Kind::kTable, text, end_);
    await_all();
    for (int p = 1; p < place_.processes; ++p)
      say(peer(p), note_, Kind::kGo, "", end_);
    return std::move(peers_);
  }

 private:
  void gather() {
    std::string wrong;
    std::vector<int> missing = absent();
    Clock::time_point end = end_;
    while (!missing.empty() && Clock::now() < end) {
      auto come = door_.next(std::min(end, Clock::now() + kLook));
      forget_ended();
      const std::string what = come ? admit(*come) : "";
      if (!what.empty() && wrong.empty()) {
        wrong = what;
        end = Clock::now() + kTell;
      }
      missing = absent();
    }
    if (!wrong.empty()) give_up(wrong);
    if (!missing.empty())
      give_up(fmt::format(
          "RANK {} of WORLD_SIZE {} did not come to {} in {} s{}; start them "
          "all, with the same MASTER_ADDR and MASTER_PORT (or --rendezvous), "
          "and the same WORLD_SIZE",
          joined(missing), place_.processes, where_, seconds(place_.patience),
          door_.turned_away()));
  }

  // Returns the error, or "".
  std::string admit(Door::Arrival& a) {
    const int p = a.note.process;
    std::string wrong;
    if (a.note.processes != place_.processes)
      wrong = fmt::format(
          "RANK {} says that WORLD_SIZE is {}, and RANK 0 that it is {}; start "
          "all with the same one",
          p, a.note.processes, place_.processes);
    else if (p < 0 || p >= place_.processes)
      wrong = fmt::format(
          "a process says that it is RANK {} of WORLD_SIZE {}; count ranks "
          "from 0 to {}",
          p, place_.processes, place_.processes - 1);
    else if (p > 0 && peer(p) && a.note.facts != place_.facts)
      return door_.turn_away(std::move(a.socket)), "";
    else if (p > 0 && peer(p) && doubted(p))
      door_.turn_away(std::move(peer(p)));
    else if (p == 0 || peer(p))
      wrong = fmt::format(
          "two processes say that they are RANK {} of WORLD_SIZE {}; give each "
          "one its own",
          p, place_.processes);
    if (!wrong.empty()) {
      odd_.push_back(std::move(a.socket));
      return wrong;
    }
    SocketAddress& at = table_.places[static_cast<size_t>(p)];
    at = peer_address(a.socket);
    at.port = static_cast<uint16_t>(a.note.port);
    peer(p) = std::move(a.socket);
    doubted_until_[static_cast<size_t>(p)] = a.note.facts == place_.facts
                                                 ? Clock::time_point()
                                                 : Clock::now() + place_.doubt;
    return "";
  }
  // Whether p was started with other facts, and the right one may still come.
  bool doubted(int p) const {
    return Clock::now() < doubted_until_[static_cast<size_t>(p)];
  }

  // A process that has ended may be started again.
  void forget_ended() {
    for (Socket& s : peers_)
      if (s && s.ended()) s.close();
  }
  std::vector<int> absent() const {
    std::vector<int> all;
    for (int p = 1; p < place_.processes; ++p)
      if (!peers_[static_cast<size_t>(p)] || doubted(p)) all.push_back(p);
    return all;
  }

  void await_all() {
    std::vector<bool> ready(peers_.size());
    ready[0] = true;
    while (std::count(ready.begin(), ready.end(), false) > 0) {
      std::vector<pollfd> all;
      for (size_t p = 1; p < ready.size(); ++p)
        all.push_back({ready[p] ? -1 : peers_[p].fd(), POLLIN, 0});
      poll(all.data(), all.size(), static_cast<int>(kRetry / 1ms));
      check_interrupted();
      for (size_t p = 1; p < ready.size(); ++p) {
        if (!all[p - 1].revents) continue;
        const auto said =
            dtensor::hear(peers_[p], note_.token, kMostText, end_);
        if (!said)
          give_up(fmt::format(
              "RANK {} of WORLD_SIZE {} has ended before all had met", p,
              place_.processes));
        if (said->kind != Kind::kReady) give_up(said->text);
        ready[p] = true;
      }
      if (Clock::now() < end_) continue;
      std::vector<int> late;
      for (size_t p = 1; p < ready.size(); ++p)
        if (!ready[p]) late.push_back(static_cast<int>(p));
      give_up(fmt::format(
          "RANK {} of WORLD_SIZE {} did not reach the others in {} s; see that "
          "their machines reach each other at any port",
          joined(late), place_.processes, seconds(place_.patience)));
    }
  }

  [[noreturn]] void give_up(const std::string& text) {
    const std::string_view part =
        std::string_view(text).substr(0, static_cast<size_t>(kMostText));
    for (auto* list : {&peers_, &odd_})
      for (const Socket& s : *list)
        if (s) say(s, note_, Kind::kFailed, part, Clock::now() + kTell);
    fail_with(std::string(part), true);
  }

  const std::string where_;
  Door door_;
  Table table_;
  std::vector<Clock::time_point> doubted_until_;
  std::vector<Socket> odd_;  // to be told what is wrong with them
};

// ---- The others ----

class Other : public Side {
 public:
  // Finds the first process at these addresses, or through the file.
  Other(const TcpPlace& place, std::vector<SocketAddress> first,
        const RendezvousFile* file)
      : Side(place, token_of(place.token)),
        first_(std::move(first)),
        file_(file) {}

  std::vector<Socket> meet() {
    for (;; std::this_thread::sleep_for(kRetry)) {
      Socket to_first = connected();
      SocketAddress here = local_address(to_first);
      here.port = 0;
      Socket listener = listen_at(here);
      if (!listener)
        fail_with(fmt::format("RANK {} cannot listen at {}: {}", place_.process,
                              here.to_string(), std::strerror(errno)),
                  false);
      note_.port = local_address(listener).port;
      say(to_first, note_, Kind::kJoin, "", end_);
      if (other_card(to_first)) continue;
      // The first process may have started later; it reports missing ones.
      const auto said = dtensor::hear(
          to_first, note_.token,
          std::max(kMostText, Table::size(place_.processes)), last_answer());
      if (said && said->kind == Kind::kFailed) fail_with(said->text, true);
      if (said && said->kind == Kind::kTable &&
          std::ssize(said->text) == Table::size(place_.processes)) {
        peer(0) = std::move(to_first);
        begin_second_part();
        meet_others(Table(said->text), std::move(listener));
        say(peer(0), note_, Kind::kReady, "", end_);
        await_go();
        return std::move(peers_);
      }
      last_ = said ? "its answer makes no sense"
              : Clock::now() < end_
                  ? "it closes the connection: another job or version?"
                  : "it does not answer";
      if (Clock::now() >= end_) too_late();
    }
  }

 private:
  Clock::time_point last_answer() const {
    return end_ + place_.patience + kTell;
  }
  // Reads the file. Returns whether it has another card than before.
  bool read_card() {
    const auto text = file_ ? file_->read() : std::nullopt;
    Card card;
    if (!text || text->size() != sizeof(card)) return false;
    std::memcpy(&card, text->data(), sizeof(card));
    const int family = card.address.family;
    if ((family != 4 && family != 6) ||
        (!first_.empty() && card.number == card_))
      return false;
    card_ = card.number;
    first_ = {card.address};
    note_.token = token_of(place_.token, card_);
    return true;
  }
  // Waits for the first process's answer, unless the file says meanwhile that
  // the first process is somewhere else: the card was an earlier job's.
  bool other_card(const Socket& to_first) {
    while (file_ && !to_first.readable() && Clock::now() < last_answer()) {
      check_interrupted();
      if (read_card()) return true;
      std::this_thread::sleep_for(kRetry);
    }
    return false;
  }
  Socket connected() {
    for (;; std::this_thread::sleep_for(kRetry)) {
      check_interrupted();
      read_card();
      for (const SocketAddress& a : first_) {
        // The file may change meanwhile.
        Socket s = connect_to(
            a, file_ ? std::min(end_, Clock::now() + kSilence) : end_);
        // If nobody listens on this machine, a socket may connect to itself.
        if (s && std::memcmp(bytes(local_address(s)).data(),
                             bytes(peer_address(s)).data(),
                             sizeof(SocketAddress)) != 0)
          return s;
        if (!s && (last_.empty() || errno != ECONNREFUSED))
          last_ = std::strerror(errno);
      }
      if (Clock::now() >= end_) too_late();
    }
  }
  [[noreturn]] void too_late() const {
    fail_with(
        fmt::format(
            "RANK {} of WORLD_SIZE {} has waited {} s for RANK 0 at {} ({}); "
            "start it, with the same MASTER_ADDR and MASTER_PORT (or "
            "--rendezvous)",
            place_.process, place_.processes, seconds(place_.patience),
            first_.empty() ? place_.path
                           : first_.front().to_string() + by_file(),
            last_.empty() ? "there is no such file" : last_),
        false);
  }
  static std::array<char, sizeof(SocketAddress)> bytes(SocketAddress a) {
    std::array<char, sizeof(SocketAddress)> b;
    std::memcpy(b.data(), &a, sizeof(a));
    return b;
  }

  // Connects to processes with smaller numbers, and awaits the others.
  void meet_others(const Table& table, Socket listener) {
    Door door(std::move(listener), Kind::kMeet, table.key);
    Note mine = note_;
    mine.token = table.key;
    for (int p = 1; p < place_.process; ++p)
      peer(p) = met(p, table.places[static_cast<size_t>(p)], mine);
    for (int left = place_.processes - 1 - place_.process; left > 0;) {
      auto come = door.next(end_, &peer(0));
      if (!come && Clock::now() < end_) await_go();  // throws the reason
      if (!come)
        lament(fmt::format("{} ranks above RANK {} did not connect to it", left,
                           place_.process));
      const int p = come->note.process;
      if (p <= place_.process || p >= place_.processes || peer(p)) continue;
      say(come->socket, mine, Kind::kReady, "", end_);
      peer(p) = std::move(come->socket);
      --left;
    }
  }
  // Tries again if the connection was closed because of too many strangers.
  Socket met(int p, const SocketAddress& at, const Note& mine) {
    for (;; std::this_thread::sleep_for(kRetry)) {
      Socket s = connect_to(at, end_);
      const int why = errno;
      if (s) {
        say(s, mine, Kind::kMeet, "", end_);
        const auto said = dtensor::hear(s, mine.token, 0, end_);
        if (said && said->kind == Kind::kReady) return s;
      }
      if (peer(0).readable()) await_go();  // throws the reason
      if (Clock::now() >= end_)
        lament(
            fmt::format("RANK {} does not reach RANK {} at {}: {}; see that "
                        "their machines reach each other at any port",
                        place_.process, p, at.to_string(),
                        s ? "it does not answer" : std::strerror(why)));
    }
  }

  // Tells the first process, which tells all others.
  [[noreturn]] void lament(const std::string& text) {
    say(peer(0), note_, Kind::kFailed, "[tcp] " + text, Clock::now() + kTell);
    await_go();
    fail_with(text, false);
  }

  void await_go() {
    const auto said =
        dtensor::hear(peer(0), note_.token, kMostText, end_ + kTell);
    if (said && said->kind == Kind::kGo) return;
    if (said) fail_with(said->text, true);
    fail_with("RANK 0 has ended before all had met", false);
  }

  std::vector<SocketAddress> first_;
  const RendezvousFile* const file_;
  uint64_t card_ = 0;
  std::string last_;  // why the last attempt failed
};

// Opens the first process's listener.
Socket opened(const TcpPlace& place) {
  const auto end =
      Clock::now() + std::min<Clock::duration>(kBusy, place.patience);
  const std::vector<SocketAddress> all = addresses_of(place.host, place.port);
  for (;; std::this_thread::sleep_for(kRetry)) {
    int why = 0;
    for (const SocketAddress& a : all) {
      if (Socket s = listen_at(a)) return s;
      if (why == 0 || errno == EADDRINUSE) why = errno;
    }
    if (why == EADDRINUSE && Clock::now() < end) continue;
    const std::string at = all.front().to_string();
    if (why == EADDRINUSE)
      throw NotMet(fmt::format("[tcp] RANK 0 cannot listen at {}: the port is "
                               "taken; set another MASTER_PORT for all "
                               "processes, or write --rendezvous PATH",
                               at),
                   true);
    throw NotMet(
        fmt::format("[tcp] RANK 0 cannot listen at {}: {}; set MASTER_ADDR to "
                    "an address of the machine of RANK 0",
                    at, std::strerror(why)),
        true);
  }
}

std::vector<Socket> meet(TcpPlace place) {
  if (place.path.empty()) {
    if (place.process == 0)
      return First(place, token_of(place.token), opened(place)).meet();
    return Other(place, addresses_of(place.host, place.port), nullptr).meet();
  }
  place.port = 0;  // any free port
  RendezvousFile file(place.path);
  if (place.process > 0) return Other(place, {}, &file).meet();
  Socket listener = opened(place);
  const Card card{.address = local_address(listener), .number = random_bits()};
  file.write({reinterpret_cast<const char*>(&card), sizeof(card)});
  const Token token = token_of(place.token, card.number);
  return First(place, token, std::move(listener)).meet();
}

}  // namespace

std::vector<Socket> tcp_rendezvous(const TcpPlace& place) {
  // A RANK that is not below WORLD_SIZE is reported to all, by the rendezvous.
  DT_CHECK(place.process >= 0 && 1 <= place.processes &&
               place.processes <= kMostProcesses &&
               (place.process == 0 || place.processes > 1),
           "tcp",
           "RANK is {} and WORLD_SIZE {}; count ranks from 0 to below "
           "WORLD_SIZE, which is at most {}",
           place.process, place.processes, kMostProcesses);
  if (place.processes == 1) return std::vector<Socket>(1);
  try {
    return meet(place);
  } catch (const NotMet&) {
    throw;
  } catch (const Error& e) {
    throw NotMet(e.what(), place.process == 0);
  }
}

}  // namespace dtensor
