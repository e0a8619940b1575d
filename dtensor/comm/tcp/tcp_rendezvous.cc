// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/tcp/tcp_rendezvous.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <numeric>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "dtensor/comm/agreement.h"
#include "dtensor/interrupt.h"
#include "dtensor/io/checksum.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using Clock = Socket::Clock;
using Token = std::array<uint64_t, 2>;

// The first bytes of every message: a number in the sender's byte order, so
// that a machine with another byte order is detected, too.
constexpr uint64_t kMagic = 0x31706374'736e6574ull;
constexpr uint32_t kVersion = 4;
// How long a new connection may take to identify itself, and how many
// connections may be doing so at once; if there are more, the oldest one is
// closed.
constexpr auto kSilence = 3s;
constexpr size_t kMostSilent = 128;
// For how long after an error the first process still waits for others, to tell
// them about it.
constexpr auto kTell = 2s;
// How long, at most, to try again to listen at a port that is in use.
constexpr auto kBusy = 1s;
constexpr auto kRetry = 20ms;
// How often connections are checked.
constexpr auto kLook = 1ms;
constexpr int64_t kMostText = 4096;
constexpr int kMostProcesses = 1 << 16;

enum class Kind : uint32_t {
  kJoin,    // to the first process: the sender is here
  kMeet,    // to another process, which answers kReady
  kTable,   // from the first process: all addresses
  kReady,   // to the first process: the sender is connected to all others;
            // to another process: the answer to kMeet
  kGo,      // from the first process: everyone is connected
  kFailed,  // in both directions: why the processes cannot meet
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
  uint32_t bytes = 0;  // size of the text that follows
  // Checksums of that text, and of all fields before `sum`.
  uint64_t text_sum = checksum("", 0), sum = 0;
  uint64_t sum_now() const { return checksum(this, offsetof(Note, sum)); }
};
static_assert(sizeof(Note) == 72);

Token token_of(std::string_view text, uint64_t more = 0) {
  return {hash_text(text, more), hash_text(text, ~more)};
}

// The token of kMeet and its answer. It shows that the sender knows the table
// of all addresses.
Token key_of(std::string_view table, const Token& job) {
  return {hash_text(table, job[0]), hash_text(table, job[1])};
}

// The numbers of the processes, at most 16 of them, so that the text about them
// fits into kMostText.
std::string some(const std::vector<int>& all) {
  return ranks_to_string(std::vector<int64_t>(all.begin(), all.end()));
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

  // Waits for the next connection that sends a valid note. Returns nothing at
  // `end`, or if `also` can be read.
  std::optional<Arrival> next(Clock::time_point end, const Socket& also = {}) {
    for (;;) {
      check_interrupted();
      for (auto it = silent_.begin(); it != silent_.end();) {
        Note note;
        const Guest guest = judge(*it, note);
        if (guest == kSilent) {
          ++it;
          continue;
        }
        Socket s = std::move(it->socket);
        it = silent_.erase(it);
        if (guest == kExpected && s.receive(&note, sizeof(note), end))
          return Arrival{std::move(s), note};
        turn_away(guest);
      }
      if (Clock::now() >= end || (also && also.readable())) return {};
      accept();
      std::this_thread::sleep_for(kLook);
    }
  }

  enum Guest { kOther, kVersioned, kStranger, kExpected, kSilent };
  void turn_away(Guest guest) { ++turned_away_[guest]; }
  // "", or " (turned away: 1 of another job or program, 1 of another version of
  // this library)".
  std::string turned_away() const {
    constexpr const char* kWhat[] = {"of another job or program",
                                     "of another version of this library",
                                     "that sent something else, or nothing"};
    std::vector<std::string> guests;
    for (size_t i = 0; i < std::size(kWhat); ++i)
      if (turned_away_[i] > 0)
        guests.push_back(fmt::format("{} {}", turned_away_[i], kWhat[i]));
    if (guests.empty()) return "";
    return fmt::format(" (turned away: {})", fmt::join(guests, ", "));
  }

 private:
  struct Silent {
    Socket socket;
    Clock::time_point since = Clock::now();
  };

  // Accepts at most kMostSilent / 2 connections, and closes the oldest if there
  // are too many. Call it when none of silent_ has sent a note.
  void accept() {
    errno = 0;
    for (size_t i = 0; i < kMostSilent / 2; ++i) {
      Socket s = accept_from(listener_);
      if (!s) break;
      if (silent_.size() >= kMostSilent) {
        silent_.pop_front();
        turn_away(kStranger);
      }
      silent_.push_back({std::move(s)});
    }
    // Out of file descriptors: free that of the oldest silent connection.
    if ((errno == EMFILE || errno == ENFILE) && !silent_.empty())
      silent_.pop_front();
  }

  // Reads the note of a connection into n, as far as it has come, and judges
  // the connection by it.
  Guest judge(const Silent& s, Note& n) const {
    const ssize_t got =
        recv(s.socket.fd(), &n, sizeof(n), MSG_PEEK | MSG_DONTWAIT);
    const bool open =
        got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
    const size_t some = static_cast<size_t>(std::max<ssize_t>(got, 0));
    if (!open || std::memcmp(&n, &kMagic, std::min(some, sizeof(kMagic))) != 0)
      return kStranger;
    if (some < sizeof(n))
      return Clock::now() - s.since < kSilence ? kSilent : kStranger;
    if (n.version != kVersion) return kVersioned;
    if (n.sum != n.sum_now()) return kStranger;
    if (n.token != token_) return kOther;
    return n.kind == kind_ && n.bytes == 0 && n.port <= 65535 ? kExpected
                                                              : kStranger;
  }

  const Socket listener_;
  const Kind kind_;
  const Token token_;
  std::list<Silent> silent_;
  int64_t turned_away_[kSilent] = {};
};

// ---- Messages between processes that know each other ----

void say(const Socket& s, Note n, Kind kind, std::string_view text,
         Clock::time_point end) {
  n.kind = kind;
  n.bytes = static_cast<uint32_t>(text.size());
  n.text_sum = checksum(text.data(), std::ssize(text));
  n.sum = n.sum_now();
  // A failure is ignored. If the caller needs an answer, it notices that none
  // comes: a process that can no longer receive does not answer either.
  if (s.send(&n, sizeof(n), end))
    s.send(text.data(), static_cast<int64_t>(text.size()), end);
}

struct Said {
  Kind kind;
  std::string text;
};
// Returns the next message, with a text of at most `most` bytes. Empty if the
// connection ended, `end` passed, or the message is damaged or makes no sense.
std::optional<Said> hear(const Socket& s, const Token& token, int64_t most,
                         Clock::time_point end) {
  Note n;
  if (!s.receive(&n, sizeof(n), end)) return {};
  if (n.magic != kMagic || n.version != kVersion || n.sum != n.sum_now() ||
      n.token != token || static_cast<int64_t>(n.bytes) > most)
    return {};
  Said said{n.kind, std::string(n.bytes, 0)};
  if (!s.receive(said.text.data(), n.bytes, end) ||
      checksum(said.text.data(), n.bytes) != n.text_sum)
    return {};
  return said;
}

// The contents of the rendezvous file: an address, and a number that makes the
// token unique.
struct Card {
  SocketAddress address;
  uint32_t unused = 0;
  uint64_t number = 0;
};

class Rendezvous {
 public:
  explicit Rendezvous(const TcpPlace& place)
      : place_(place),
        end_(Clock::now() + place.patience),
        peers_(static_cast<size_t>(place.processes)),
        table_(peers_.size()),
        note_{.token = token_of(place.token),
              .facts = place.facts,
              .process = place.process,
              .processes = place.processes},
        doubted_until_(peers_.size()) {
    if (!place.path.empty()) file_.emplace(place.path);
  }

  std::vector<Socket> meet() {
    if (place_.process == 0)
      gather();
    else
      join();
    // Connecting all to each other may take as long as gathering them.
    end_ = Clock::now() + place_.patience;
    if (place_.process == 0) {
      say_to_all(Kind::kTable, table_text(), end_);
      await_all();
      say_to_all(Kind::kGo, "", end_);
    } else {
      meet_others();
      say(peer(0), note_, Kind::kReady, "", end_);
      await_go();
    }
    return std::move(peers_);
  }

 private:
  Socket& peer(int p) { return peers_[static_cast<size_t>(p)]; }
  std::string_view table_text() const {
    return {reinterpret_cast<const char*>(table_.data()),
            table_.size() * sizeof(SocketAddress)};
  }
  std::string by_file() const {
    return file_ ? " (see " + place_.path + ")" : "";
  }

  // ---- The first process ----

  Socket opened() const {
    const auto end =
        Clock::now() + std::min<Clock::duration>(kBusy, place_.patience);
    const std::vector<SocketAddress> all =
        addresses_of(place_.host, file_ ? 0 : place_.port);
    for (;; std::this_thread::sleep_for(kRetry)) {
      int why = 0;
      for (const SocketAddress& a : all) {
        if (Socket s = listen_at(a)) return s;
        if (why == 0 || errno == EADDRINUSE) why = errno;
      }
      const bool taken = why == EADDRINUSE;
      if (taken && Clock::now() < end) continue;
      fail("tcp", "RANK 0 cannot listen at {}: {}", all.front().to_string(),
           taken ? "the port is taken; set another MASTER_PORT for all "
                   "processes, or write --rendezvous PATH"
                 : fmt::format("{}; {}", std::strerror(why),
                               why == EACCES ? "set MASTER_PORT to 1024 or more"
                               : why == EMFILE || why == ENFILE
                                   ? "close files, or raise the limit of open "
                                     "files (ulimit -n)"
                                   : "set MASTER_ADDR to an address of the "
                                     "machine of RANK 0"));
    }
  }
  void write_card(const SocketAddress& where) {
    std::random_device random;
    const Card card{where, 0, (uint64_t{random()} << 32) ^ random()};
    file_->write({reinterpret_cast<const char*>(&card), sizeof(card)});
    note_.token = token_of(place_.token, card.number);
  }

  // Waits for the other processes. After an error, waits a little longer, to
  // tell processes that come soon about it, too.
  void gather() {
    Socket listener = opened();
    const SocketAddress where = local_address(listener);
    if (file_) write_card(where);
    Door door(std::move(listener), Kind::kJoin, note_.token);
    std::string wrong;
    std::vector<int> missing = absent();
    Clock::time_point end = end_;
    for (; !missing.empty() && Clock::now() < end; missing = absent()) {
      auto come = door.next(std::min(end, Clock::now() + kRetry));
      // A process that has ended may be started again, and may then come again.
      for (Socket& s : peers_)
        if (s && s.ended()) s.close();
      const std::string what = come ? admit(*come, door) : "";
      if (what.empty() || !wrong.empty()) continue;
      wrong = what;
      end = Clock::now() + kTell;
    }
    if (!wrong.empty()) give_up(wrong);
    if (!missing.empty())
      give_up(fmt::format(
          "RANK {} of WORLD_SIZE {} did not come to {} in {} s{}; start all "
          "processes, with the same MASTER_ADDR and MASTER_PORT (or "
          "--rendezvous), and the same WORLD_SIZE",
          some(missing), place_.processes, where.to_string() + by_file(),
          seconds(place_.patience), door.turned_away()));
  }

  // Admits a process that has connected. Returns the error, or "".
  std::string admit(Door::Arrival& a, Door& door) {
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
      return door.turn_away(Door::kOther), "";
    else if (p == 0 || (peer(p) && !doubted(p)))
      wrong = fmt::format(
          "two processes say that they are RANK {} of WORLD_SIZE {}; give each "
          "one its own",
          p, place_.processes);
    if (!wrong.empty()) {
      peers_.push_back(std::move(a.socket));  // so that give_up() tells it, too
      return wrong;
    }
    const auto i = static_cast<size_t>(p);
    if (peers_[i]) door.turn_away(Door::kOther);
    table_[i] = peer_address(a.socket);
    table_[i].v4.sin_port = htons(static_cast<uint16_t>(a.note.port));
    peers_[i] = std::move(a.socket);
    doubted_until_[i] = a.note.facts == place_.facts
                            ? Clock::time_point()
                            : Clock::now() + place_.doubt;
    return "";
  }
  // Whether the process that came as p was started with other facts than this
  // one, and a process p with the right facts may still come.
  bool doubted(int p) const {
    return Clock::now() < doubted_until_[static_cast<size_t>(p)];
  }
  std::vector<int> absent() const {
    std::vector<int> all;
    for (int p = 1; p < place_.processes; ++p)
      if (!peers_[static_cast<size_t>(p)] || doubted(p)) all.push_back(p);
    return all;
  }

  void await_all() {
    std::vector<int> late(peers_.size() - 1);
    std::iota(late.begin(), late.end(), 1);
    for (; !late.empty(); std::this_thread::sleep_for(kLook)) {
      check_interrupted();
      std::erase_if(late, [&](int p) {
        if (!peer(p).readable()) return false;
        const auto said = hear(peer(p), note_.token, kMostText, end_);
        if (!said)
          give_up(
              fmt::format("the connection to RANK {} of WORLD_SIZE {} has "
                          "broken before all had met; look for the error in "
                          "its output",
                          p, place_.processes));
        if (said->kind != Kind::kReady) give_up(said->text);
        return true;
      });
      if (!late.empty() && Clock::now() >= end_)
        give_up(fmt::format(
            "RANK {} of WORLD_SIZE {} did not reach the others in {} s; see "
            "that their machines reach each other at any port",
            some(late), place_.processes, seconds(place_.patience)));
    }
  }

  void say_to_all(Kind kind, std::string_view text, Clock::time_point end) {
    for (const Socket& s : peers_)
      if (s) say(s, note_, kind, text, end);
  }
  [[noreturn]] void give_up(const std::string& text) {
    const std::string part =
        ("[tcp] " + text).substr(0, static_cast<size_t>(kMostText));
    say_to_all(Kind::kFailed, part, Clock::now() + kTell);
    throw NotMet(part, true);
  }

  // ---- The others ----

  // Connects to the first process, and gets its table.
  void join() {
    if (!file_) first_ = addresses_of(place_.host, place_.port);
    for (;; std::this_thread::sleep_for(kRetry)) {
      check_interrupted();
      read_card();
      for (const SocketAddress& a : std::vector(first_)) {
        // Try only briefly if the address is from the file, since the file may
        // change meanwhile.
        Socket s = connect_to(
            a, file_ ? std::min(end_, Clock::now() + kSilence) : end_);
        if (!s && (last_.empty() || errno != ECONNREFUSED))
          last_ = std::strerror(errno);
        // If no process listens at a port of this machine, a socket may connect
        // to itself.
        if (!s || local_address(s) == peer_address(s)) continue;
        if (!ask(s)) continue;
        peer(0) = std::move(s);
        return;
      }
      DT_CHECK(
          Clock::now() < end_, "tcp",
          "RANK {} of WORLD_SIZE {} has waited {} s for RANK 0 at {} "
          "({}); start it, with the same MASTER_ADDR and MASTER_PORT (or "
          "--rendezvous)",
          place_.process, place_.processes, seconds(place_.patience),
          first_.empty() ? place_.path : first_.front().to_string() + by_file(),
          !last_.empty()   ? last_
          : first_.empty() ? "no address can be read there"
                           : "it does not listen");
    }
  }
  bool ask(const Socket& first) {
    SocketAddress here = local_address(first);
    here.v4.sin_port = 0;
    listener_ = listen_at(here);
    DT_CHECK(listener_, "tcp",
             "RANK {} cannot listen at {}: {}; check that programs may open a "
             "port at this address",
             place_.process, here.to_string(), std::strerror(errno));
    note_.port = local_address(listener_).port();
    say(first, note_, Kind::kJoin, "", end_);
    // Wait beyond end_: the first process may have started after this one. When
    // its own wait ends, it reports the processes that are missing.
    const auto end = end_ + place_.patience + kTell;
    // The card may have been that of an earlier job. If so, the file changes
    // when this job's first process writes its own.
    for (; file_ && !first.readable() && Clock::now() < end;
         std::this_thread::sleep_for(kRetry)) {
      check_interrupted();
      if (read_card()) return false;
    }
    const auto size = std::ssize(table_text());
    const auto said = hear(first, note_.token, std::max(kMostText, size), end);
    if (said && said->kind == Kind::kFailed) throw NotMet(said->text, true);
    if (said && said->kind == Kind::kTable && std::ssize(said->text) == size) {
      std::memcpy(table_.data(), said->text.data(), said->text.size());
      return true;
    }
    last_ = said                  ? "its answer makes no sense"
            : Clock::now() < end_ ? "it closes the connection: another job or "
                                    "version?"
                                  : "it does not answer";
    return false;
  }
  // Reads the file. Returns whether the file has another card than before.
  bool read_card() {
    const auto text = file_ ? file_->read() : std::nullopt;
    Card card;
    if (!text || text->size() != sizeof(card)) return false;
    std::memcpy(&card, text->data(), sizeof(card));
    const int family = card.address.any.sa_family;
    if ((family != AF_INET && family != AF_INET6) ||
        (!first_.empty() && card.number == card_))
      return false;
    card_ = card.number;
    first_ = {card.address};
    note_.token = token_of(place_.token, card_);
    return true;
  }

  // Connects to the processes with smaller numbers, and waits until those with
  // larger ones connect to this one.
  void meet_others() {
    Note mine = note_;
    mine.token = key_of(table_text(), note_.token);
    for (int p = 1; p < place_.process; ++p)
      peer(p) = met(p, table_[static_cast<size_t>(p)], mine);
    Door door(std::move(listener_), Kind::kMeet, mine.token);
    for (int left = place_.processes - 1 - place_.process; left > 0;) {
      auto come = door.next(end_, peer(0));
      if (!come && Clock::now() < end_) await_go();  // throws the reason
      if (!come)
        lament(
            fmt::format("{} of the ranks above RANK {} did not connect to it; "
                        "see that their machines reach each other at any port",
                        left, place_.process));
      const int p = come->note.process;
      if (p <= place_.process || p >= place_.processes || peer(p)) continue;
      say(come->socket, mine, Kind::kReady, "", end_);
      peer(p) = std::move(come->socket);
      --left;
    }
  }
  // Connects to process p. Tries again if that fails: p closes connections if
  // too many strangers connect to it.
  Socket met(int p, const SocketAddress& at, const Note& mine) {
    for (;; std::this_thread::sleep_for(kRetry)) {
      Socket s = connect_to(at, end_);
      const std::string why = s ? "it does not answer" : std::strerror(errno);
      if (s) {
        say(s, mine, Kind::kMeet, "", end_);
        const auto said = hear(s, mine.token, 0, end_);
        if (said && said->kind == Kind::kReady) return s;
      }
      if (peer(0).readable()) await_go();  // throws the reason
      if (Clock::now() >= end_)
        lament(
            fmt::format("RANK {} does not reach RANK {} at {}: {}; see that "
                        "their machines reach each other at any port",
                        place_.process, p, at.to_string(), why));
    }
  }

  // Reports an error to the first process, which tells all others. Throws.
  [[noreturn]] void lament(const std::string& text) {
    say(peer(0), note_, Kind::kFailed, text, Clock::now() + kTell);
    await_go();
    fail("tcp", "{}", text);
  }
  void await_go() {
    const auto said = hear(peer(0), note_.token, kMostText, end_ + kTell);
    DT_CHECK(said, "tcp",
             "RANK 0 has ended or does not answer, so the processes cannot "
             "meet; look for the error in its output");
    if (said->kind != Kind::kGo) throw NotMet(said->text, true);
  }

  const TcpPlace& place_;
  Clock::time_point end_;
  std::vector<Socket> peers_;
  std::vector<SocketAddress> table_;  // where each process listens
  Note note_;                         // this process's own
  std::optional<RendezvousFile> file_;
  // Used by the first process. If process p has other facts than this one, it
  // may belong to another job. Until doubted_until_[p], a process p with the
  // right facts may take its place.
  std::vector<Clock::time_point> doubted_until_;
  // Used by the others: where the first process may listen, the number of the
  // card that says so, why the last attempt failed, and where this process
  // listens.
  std::vector<SocketAddress> first_;
  uint64_t card_ = 0;
  std::string last_;
  Socket listener_;
};

}  // namespace

std::vector<Socket> tcp_rendezvous(const TcpPlace& place) {
  // If WORLD_SIZE is above 1, a RANK that is not below it is allowed here: the
  // rendezvous reports it to all processes.
  DT_CHECK(place.process >= 0 && 1 <= place.processes &&
               place.processes <= kMostProcesses &&
               (place.process == 0 || place.processes > 1),
           "tcp",
           "RANK is {} and WORLD_SIZE {}; number ranks from 0 to WORLD_SIZE - "
           "1, and let WORLD_SIZE be from 1 to {}",
           place.process, place.processes, kMostProcesses);
  if (place.processes == 1) return std::vector<Socket>(1);
  try {
    return Rendezvous(place).meet();
  } catch (const NotMet&) {
    throw;
  } catch (const Error& e) {
    throw NotMet(e.what(), place.process == 0);
  }
}

}  // namespace dtensor
