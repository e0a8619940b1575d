// SPDX-License-Identifier: Apache-2.0
// Processes find each other, although strangers connect to their ports.
#include "dtensor/comm/tcp/tcp_rendezvous.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dtensor/comm/tcp.h"
#include "dtensor/io/checksum.h"
#include "dtensor/placement/hash.h"
#include "tests/dtensor/tcp_processes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using Clock = Socket::Clock;
using testing::free_port;
using testing::in_threads;

// A note as it is sent. Another layout needs another version.
struct Note {
  uint64_t magic = 0x31706374'736e6574ull;
  uint32_t version = 4;
  uint32_t kind = 0;  // 0: I join; 1: I meet you; 2: the table; 3: ready
  std::array<uint64_t, 2> token = {hash_text("job", 0),
                                   hash_text("job", ~0ull)};
  uint64_t facts = 0;  // hash of how the process was started
  int32_t process = 1, processes = 2;
  uint32_t port = 1, bytes = 0;
  uint64_t text_sum = checksum("", 0), sum = 0;
};
static_assert(sizeof(Note) == 72);

// The token of a process that meets another one: it proves that the process
// knows the addresses of all.
template <size_t n>
std::array<uint64_t, 2> key_of(const SocketAddress (&places)[n]) {
  const std::string_view table(reinterpret_cast<const char*>(places),
                               sizeof(places));
  const Note job;
  return {hash_text(table, job.token[0]), hash_text(table, job.token[1])};
}

SocketAddress at(uint16_t port, int last = 1) {
  return addresses_of("127.0.0." + std::to_string(last), port).at(0);
}

Socket connected(uint16_t port, int last = 1) {
  for (const auto end = Clock::now() + 5s; Clock::now() < end;
       std::this_thread::sleep_for(5ms))
    if (Socket s = connect_to(at(port, last), end)) return s;
  ADD_FAILURE() << "nobody listens at " << at(port, last).to_string();
  return {};
}
template <class T>
void say(const Socket& s, const T& what) {
  s.send(&what, sizeof(what), Clock::now() + 1s);
}
void say(const Socket& s, Note n) {
  n.sum = checksum(&n, offsetof(Note, sum));
  say<Note>(s, n);
}
bool hangs_up(const Socket& s, std::chrono::milliseconds within) {
  for (const auto end = Clock::now() + within; Clock::now() < end;
       std::this_thread::sleep_for(5ms))
    if (s.ended()) return true;
  return false;
}

TcpPlace place(int process, int processes, uint16_t port,
               std::chrono::milliseconds patience = 10s) {
  TcpPlace p;
  p.process = process;
  p.processes = processes;
  p.port = port;
  p.token = "job";
  p.patience = patience;
  return p;
}

// The results of processes that meet, each in a thread: "" or the text of its
// Error, and its sockets.
struct Met {
  std::vector<std::string> texts;
  std::vector<std::vector<Socket>> sockets;
  bool all() const {
    for (const std::string& t : texts)
      if (!t.empty()) return false;
    return true;
  }
};
Met meet(const std::vector<TcpPlace>& places) {
  Met met{std::vector<std::string>(places.size()), {}};
  met.sockets.resize(places.size());
  in_threads(static_cast<int>(places.size()), [&](int i) {
    const auto k = static_cast<size_t>(i);
    try {
      met.sockets[k] = tcp_rendezvous(places[k]);
    } catch (const NotMet& e) {
      met.texts[k] = e.what();
    }
  });
  return met;
}
std::vector<TcpPlace> places(int processes, uint16_t port) {
  std::vector<TcpPlace> all;
  for (int p = 0; p < processes; ++p) all.push_back(place(p, processes, port));
  return all;
}

// Checks that every connection leads to the right process.
void expect_connected(const Met& met) {
  ASSERT_TRUE(met.all()) << met.texts[0];
  const int n = static_cast<int>(met.sockets.size());
  const auto socket = [&](int from, int to) -> const Socket& {
    return met.sockets[static_cast<size_t>(from)][static_cast<size_t>(to)];
  };
  for (int p = 0; p < n; ++p)
    for (int q = 0; q < n; ++q) {
      ASSERT_EQ(bool(socket(p, q)), p != q);
      if (p != q) say(socket(p, q), 100 * p + q);
    }
  for (int p = 0; p < n; ++p)
    for (int q = 0; q < n; ++q) {
      int said = -1;
      if (p != q) {
        EXPECT_TRUE(
            socket(p, q).receive(&said, sizeof(said), Clock::now() + 1s));
        EXPECT_EQ(said, 100 * q + p);
      }
    }
}

TEST(TcpRendezvous, ConnectsEveryTwo) {
  for (int n = 1; n <= 6; ++n) {
    const uint16_t port = free_port();
    expect_connected(meet(places(n, port)));
    // Nobody listens any more.
    EXPECT_FALSE(connect_to(at(port), Clock::now() + 1s));
  }
}

TEST(TcpRendezvous, TheFirstMayBeLate) {
  const uint16_t port = free_port();
  Met others;
  std::jthread rest([&] {
    others = meet({place(1, 3, port), place(2, 3, port)});
  });
  std::this_thread::sleep_for(300ms);
  Met first = meet({place(0, 3, port)});
  rest.join();
  EXPECT_TRUE(first.all()) << first.texts[0];
  EXPECT_TRUE(others.all()) << others.texts[0];
}

// A process has all its patience to join, and again to reach the other
// processes.
TEST(TcpRendezvous, BothPartsMayTakeAsLong) {
  const uint16_t port = free_port();
  Met first;
  std::jthread rest([&] { first = meet({place(0, 2, port, 1s)}); });
  std::this_thread::sleep_for(600ms);
  const Socket other = connected(port);
  say(other, Note{});
  std::this_thread::sleep_for(600ms);
  say(other, Note{.kind = 3});
  rest.join();
  EXPECT_TRUE(first.all()) << first.texts[0];
}

TEST(Sockets, AddressesOfBothFamilies) {
  EXPECT_EQ(addresses_of("127.0.0.1", 29500).at(0).to_string(),
            "127.0.0.1:29500");
  EXPECT_EQ(addresses_of("::1", 29500).at(0).to_string(), "[::1]:29500");
}

// Strangers connect before and while the other processes join.
TEST(TcpRendezvous, StrangersHaveNoEffect) {
  const uint16_t port = free_port();
  Met first;
  std::jthread zero([&] { first = meet({place(0, 3, port)}); });
  std::vector<Socket> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connected(port));
  const Socket web = connected(port), garbage = connected(port),
               version = connected(port), token = connected(port),
               large = connected(port), kind = connected(port),
               damaged = connected(port);
  say(web, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string noise(100000, '\xff');
  garbage.send(noise.data(), std::ssize(noise), Clock::now() + 1s);
  Note n{.processes = 3};
  n.version = 2;
  say(version, n);
  n.version = 4;
  n.token[1] ^= 1;
  say(token, n);
  n.token[1] ^= 1;
  n.bytes = 0xffffffff;
  say(large, n);
  n.bytes = 0;
  n.kind = 1;
  say(kind, n);
  n.kind = 0;
  n.sum = checksum(&n, offsetof(Note, sum)) ^ 1;
  say<Note>(damaged, n);
  for (const Socket* s :
       {&web, &garbage, &version, &token, &large, &kind, &damaged})
    EXPECT_TRUE(hangs_up(*s, 500ms));
  // A stranger that sends part of a right note, and no more.
  const Socket loris = connected(port);
  const Note right{.processes = 3};
  loris.send(&right, 20, Clock::now() + 1s);
  const auto start = Clock::now();
  Met others = meet({place(1, 3, port), place(2, 3, port)});
  EXPECT_LT(Clock::now() - start, 1s);
  zero.join();
  EXPECT_TRUE(first.all()) << first.texts[0];
  EXPECT_TRUE(others.all()) << others.texts[0];
}

TEST(TcpRendezvous, WhoIsSilentIsHungUpOn) {
  const uint16_t port = free_port();
  Met first;
  std::jthread zero([&] { first = meet({place(0, 2, port, 4s)}); });
  const Socket loris = connected(port);
  EXPECT_FALSE(hangs_up(loris, 1s));
  EXPECT_TRUE(hangs_up(loris, 3s));
  zero.join();
  EXPECT_NE(first.texts[0].find(
                "(turned away: 1 that sent something else, or nothing)"),
            std::string::npos)
      << first.texts[0];
}

// The other processes listen too, for processes with higher numbers.
TEST(TcpRendezvous, StrangersAtTheOtherDoors) {
  const uint16_t port = free_port();
  Met met;
  std::jthread rest([&] {
    met = meet({place(0, 4, port), place(1, 4, port), place(2, 4, port)});
  });
  // The test is process 3.
  const Socket first = connected(port);
  say(first, Note{.process = 3, .processes = 4});
  struct {
    Note note;
    SocketAddress places[4];
  } table;
  ASSERT_TRUE(first.receive(&table, sizeof(table), Clock::now() + 5s));
  EXPECT_EQ(table.note.kind, 2u);
  EXPECT_EQ(table.note.bytes, 4 * sizeof(SocketAddress));
  const std::array<uint64_t, 2> key = key_of(table.places);
  std::vector<Socket> silent, mine;
  for (const int p : {1, 2}) {
    const uint16_t door = table.places[p].port();
    for (int i = 0; i < 200; ++i) silent.push_back(connected(door));
    const Socket token = connected(door), below = connected(door);
    Note n{.kind = 1, .process = 3, .processes = 4};
    say(token, n);  // the job's token is not the key
    n.token = key;
    n.process = 0;
    say(below, n);
    EXPECT_TRUE(hangs_up(token, 500ms));
    EXPECT_TRUE(hangs_up(below, 500ms));
    mine.push_back(connected(door));
    n.process = 3;
    say(mine.back(), n);
    EXPECT_TRUE(mine.back().receive(&n, sizeof(n), Clock::now() + 5s));
    EXPECT_EQ(n.kind, 3u);
    EXPECT_EQ(n.token, key);
  }
  say(first, Note{.kind = 3, .process = 3, .processes = 4});
  Note go;
  EXPECT_TRUE(first.receive(&go, sizeof(go), Clock::now() + 5s));
  EXPECT_EQ(go.kind, 4u);
  rest.join();
  EXPECT_TRUE(met.all()) << met.texts[0] << met.texts[1] << met.texts[2];
}

// Something else answers where process 0 should be.
TEST(TcpRendezvous, AStrangerInsteadOfTheFirst) {
  const uint16_t port = free_port();
  Met other;
  std::jthread one;
  {
    const Socket listener = listen_at(at(port));
    one = std::jthread([&] { other = meet({place(1, 2, port)}); });
    Note answer;
    answer.kind = 2;
    for (const uint32_t bytes : {0u, 5u, 0xffffffffu}) {
      Socket s;
      while (!(s = accept_from(listener))) std::this_thread::sleep_for(1ms);
      answer.bytes = bytes;
      answer.text_sum = checksum("12345", std::min(bytes, 5u));
      say(s, answer);
      say(s, "12345");
    }
    Socket s;
    while (!(s = accept_from(listener))) std::this_thread::sleep_for(1ms);
    say(s, "SSH-2.0-something of a version and a half\r\n");
  }
  const Met first = meet({place(0, 2, port)});
  one.join();
  EXPECT_TRUE(first.all()) << first.texts[0];
  EXPECT_TRUE(other.all()) << other.texts[0];
}

TEST(TcpRendezvous, WhoGoesMayComeAgain) {
  const uint16_t port = free_port();
  Met first;
  std::jthread zero([&] { first = meet({place(0, 3, port)}); });
  {
    const Socket gone = connected(port);
    say(gone, Note{.processes = 3});
    std::this_thread::sleep_for(100ms);
  }
  const Met others = meet({place(1, 3, port), place(2, 3, port)});
  zero.join();
  EXPECT_TRUE(first.all()) << first.texts[0];
  EXPECT_TRUE(others.all()) << others.texts[0];
}

// Checks that every process throws this text.
void expect_all(const Met& met, const std::string& text) {
  for (size_t i = 0; i < met.texts.size(); ++i)
    EXPECT_EQ(met.texts[i], text) << "the " << i << "th";
}

TEST(TcpRendezvous, TwoOfOneRank) {
  const uint16_t port = free_port();
  expect_all(meet({place(0, 4, port), place(1, 4, port), place(2, 4, port),
                   place(1, 4, port)}),
             "[tcp] two processes say that they are RANK 1 of WORLD_SIZE 4; "
             "give each one its own");
}

TEST(TcpRendezvous, ARankThatIsNone) {
  const uint16_t port = free_port();
  expect_all(meet({place(0, 3, port), place(5, 3, port), place(1, 3, port)}),
             "[tcp] a process says that it is RANK 5 of WORLD_SIZE 3; count "
             "ranks from 0 to 2");
}

TEST(TcpRendezvous, AnotherWorld) {
  const uint16_t port = free_port();
  expect_all(meet({place(0, 3, port), place(1, 4, port), place(2, 3, port)}),
             "[tcp] RANK 1 says that WORLD_SIZE is 4, and RANK 0 that it is 3; "
             "start all with the same one");
}

TEST(TcpRendezvous, WhoDoesNotComeIsNamed) {
  const uint16_t port = free_port();
  const auto start = Clock::now();
  expect_all(meet({place(0, 5, port, 500ms), place(3, 5, port, 500ms)}),
             "[tcp] RANK 1,2,4 of WORLD_SIZE 5 did not come to " +
                 at(port).to_string() +
                 " in 0.5 s; start all processes, with the same MASTER_ADDR "
                 "and MASTER_PORT (or --rendezvous), and the same WORLD_SIZE");
  EXPECT_LT(Clock::now() - start, 2s);
}

TEST(TcpRendezvous, TheFirstDoesNotCome) {
  const uint16_t port = free_port();
  expect_all(
      meet({place(2, 3, port, 300ms)}),
      "[tcp] RANK 2 of WORLD_SIZE 3 has waited 0.3 s for RANK 0 at " +
          at(port).to_string() +
          " (Connection refused); start it, with the same MASTER_ADDR and "
          "MASTER_PORT (or --rendezvous)");
}

// A job of another token does not get in, and both say why.
TEST(TcpRendezvous, AnotherJob) {
  const uint16_t port = free_port();
  TcpPlace other = place(1, 2, port, 700ms);
  other.token = "another job";
  const Met met = meet({place(0, 2, port, 500ms), other});
  EXPECT_NE(met.texts[0].find("RANK 1 of WORLD_SIZE 2 did not come"),
            std::string::npos)
      << met.texts[0];
  EXPECT_NE(met.texts[0].find("of another job or program)"), std::string::npos)
      << met.texts[0];
  EXPECT_NE(met.texts[1].find("has waited 0.7 s for RANK 0"), std::string::npos)
      << met.texts[1];
}

// A process with the same token, but started with other flags, counts as one of
// another job if the right process comes, and of this job if none comes.
TEST(TcpRendezvous, OtherFacts) {
  const uint16_t port = free_port();
  TcpPlace zero = place(0, 2, port), right = place(1, 2, port),
           other = place(1, 2, port, 1500ms);
  zero.doubt = 5s;
  other.facts = 1;
  Met first, turned_away;
  {
    std::jthread one([&] { first = meet({zero}); });
    std::jthread two([&] { turned_away = meet({other}); });
    std::this_thread::sleep_for(500ms);
    EXPECT_TRUE(meet({right}).all());
  }
  EXPECT_TRUE(first.all()) << first.texts[0];
  EXPECT_FALSE(turned_away.all());
  zero.doubt = 300ms;
  const auto start = Clock::now();
  expect_connected(meet({zero, other}));
  EXPECT_GE(Clock::now() - start, 300ms);
  EXPECT_LT(Clock::now() - start, 1500ms);
}

// RANK 0 reads what all of them send, however many wait.
TEST(TcpRendezvous, ManyMayComeAtOnce) {
  constexpr int kProcesses = 300;
  const uint16_t port = free_port();
  Met first;
  std::jthread one([&] { first = meet({place(0, kProcesses + 1, port, 1s)}); });
  std::vector<Socket> all;
  for (int i = 1; i < kProcesses; ++i) {
    all.push_back(connected(port));
    say(all.back(), Note{.process = i, .processes = kProcesses + 1});
  }
  one.join();
  EXPECT_NE(first.texts[0].find("RANK 300 of WORLD_SIZE 301 did not come to " +
                                at(port).to_string() + " in 1 s; start all"),
            std::string::npos)
      << first.texts[0];
}

// The error counts whom RANK 0 turned away: a process of other facts when the
// right one comes, another one that comes later, and the oldest of too many
// silent connections.
TEST(TcpRendezvous, CountsWhomItTurnedAway) {
  const uint16_t port = free_port();
  TcpPlace zero = place(0, 3, port, 2s);
  zero.doubt = 5s;
  Met first;
  std::jthread one([&] { first = meet({zero}); });
  std::vector<Socket> all;
  for (uint64_t facts : {1, 0, 1}) {
    all.push_back(connected(port));
    say(all.back(), Note{.facts = facts, .processes = 3});
  }
  for (int i = 0; i < 150; ++i) all.push_back(connected(port));
  one.join();
  EXPECT_NE(
      first.texts[0].find(
          "RANK 2 of WORLD_SIZE 3 did not come to " + at(port).to_string() +
          " in 2 s (turned away: 2 of another job or program, 22 that "
          "sent something else, or nothing)"),
      std::string::npos)
      << first.texts[0];
}

TEST(TcpRendezvous, ThePortIsTaken) {
  const Socket taken = listen_at(at(0));
  const uint16_t port = local_address(taken).port();
  expect_all(meet({place(0, 2, port)}),
             "[tcp] RANK 0 cannot listen at " + at(port).to_string() +
                 ": the port is taken; set another MASTER_PORT for all "
                 "processes, or write --rendezvous PATH");
}

// The system keeps an ended connection of this port for a minute. The next run
// must still be able to listen there.
TEST(TcpRendezvous, ThePortOfTheLastRunIsNotTaken) {
  Socket listener = listen_at(at(0)), here;
  const SocketAddress place = local_address(listener);
  const auto end = Clock::now() + 5s;
  Socket there = connect_to(place, end);
  while (!here && Clock::now() < end) here = accept_from(listener);
  ASSERT_TRUE(here);
  here.close();  // the end that closes first is kept
  ASSERT_TRUE(hangs_up(there, 5s));
  there.close();
  listener.close();
  EXPECT_TRUE(listen_at(place)) << std::strerror(errno);
}

TEST(TcpRendezvous, AnAddressOfAnotherMachine) {
  TcpPlace p = place(0, 2, 12345);
  p.host = "192.0.2.1";  // of documentation (RFC 5737)
  expect_all(meet({p}),
             "[tcp] RANK 0 cannot listen at 192.0.2.1:12345: Cannot assign "
             "requested address; set MASTER_ADDR to an address of the machine "
             "of RANK 0");
}

// All of 127.0.0.0/8 is this machine.
TEST(TcpRendezvous, ListensThereAlone) {
  const uint16_t port = free_port();
  TcpPlace zero = place(0, 3, port), one = place(1, 3, port);
  zero.host = one.host = "127.0.0.2";
  Met met;
  std::jthread rest([&] { met = meet({zero, one}); });
  Socket first = connected(port, 2);
  EXPECT_FALSE(connect_to(at(port, 1), Clock::now() + 1s));
  EXPECT_FALSE(connect_to(at(port, 3), Clock::now() + 1s));
  say(first, Note{.process = 2, .processes = 3});
  struct {
    Note note;
    SocketAddress places[3];
  } table;
  ASSERT_TRUE(first.receive(&table, sizeof(Note) + sizeof(table.places),
                            Clock::now() + 5s));
  // Process 1 listens only at the address from which it has reached process 0.
  const SocketAddress door = table.places[1];
  const std::string where = door.to_string();
  for (const int last : {1, 2, 3}) {
    const bool there = where == at(door.port(), last).to_string();
    EXPECT_EQ(bool(connect_to(at(door.port(), last), Clock::now() + 1s)), there)
        << where;
  }
  first.close();
  rest.join();
  expect_all(met,
             "[tcp] the connection to RANK 2 of WORLD_SIZE 3 has broken before "
             "all had met; look for the error in its output");
}

TEST(TcpRendezvous, ByAFile) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(folder ? folder : "/tmp") + "/meet";
  std::ofstream(path, std::ios::binary) << "what was left there";
  std::vector<TcpPlace> all = places(4, 0);
  for (TcpPlace& p : all) p.path = path;
  expect_connected(meet(all));
  EXPECT_FALSE(std::ifstream(path)) << "it stays";
  all.pop_back();
  for (TcpPlace& p : all) p.patience = 300ms;
  const Met met = meet(all);
  const std::string& t0 = met.texts[0];
  EXPECT_EQ(t0.find("[tcp] RANK 3 of WORLD_SIZE 4 did not come to 127.0.0.1:"),
            0u)
      << t0;
  EXPECT_NE(t0.find("(see " + path + ") in 0.3 s"), t0.npos) << t0;
  expect_all(met, t0);
  // Without process 0, nobody writes the file.
  EXPECT_FALSE(std::ifstream(path)) << "it stays";
  EXPECT_EQ(meet({all[1]}).texts[0],
            "[tcp] RANK 1 of WORLD_SIZE 4 has waited 0.3 s for RANK 0 at " +
                path +
                " (no address can be read there); start it, with the same "
                "MASTER_ADDR and MASTER_PORT (or --rendezvous)");
}

// An earlier job has left the file, and something else listens there now, which
// does not answer.
TEST(TcpRendezvous, ByAFileThatLeadsElsewhere) {
  const Socket silent = listen_at(at(0));
  struct {
    SocketAddress address;
    uint32_t unused = 0;
    uint64_t number = 1;
  } const card{local_address(silent)};
  static_assert(sizeof(card) == 40);
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(folder ? folder : "/tmp") + "/meet";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(&card), sizeof(card));
  std::vector<TcpPlace> all = places(2, 0);
  for (TcpPlace& p : all) p.path = path;
  Met other, first;
  std::thread late([&] {
    std::this_thread::sleep_for(200ms);
    first = meet({all[0]});
  });
  other = meet({all[1]});
  late.join();
  EXPECT_EQ(first.texts[0], "");
  EXPECT_EQ(other.texts[0], "");
}

TEST(TcpRendezvous, NoPlace) {
  for (const auto& [process, processes] :
       {std::pair(-1, 2), {1, 1}, {0, 0}, {0, 1 << 20}})
    EXPECT_NE(testing::error_of([&] {
                tcp_rendezvous(place(process, processes, 1));
              }).find("[tcp] RANK is "),
              std::string::npos);
}

// ---- What the environment says ----

class TcpEnvironment : public ::testing::Test {
 protected:
  TcpEnvironment() { set({}); }
  ~TcpEnvironment() override { set({}); }
  static void set(
      const std::vector<std::pair<const char*, const char*>>& what) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "DTENSOR_JOB_TOKEN", "DTENSOR_JOIN_TIMEOUT", "TORCHELASTIC_RUN_ID",
          "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE"})
      unsetenv(name);
    for (const auto& [name, value] : what) setenv(name, value, 1);
  }
};

TEST_F(TcpEnvironment, SaysWhoThisIs) {
  EXPECT_FALSE(tcp_backend().started());
  EXPECT_EQ(tcp_backend().process(), -1);
  set({{"RANK", "3"},
       {"WORLD_SIZE", "4"},
       {"MASTER_ADDR", "localhost"},
       {"MASTER_PORT", "29500"},
       {"TORCHELASTIC_RUN_ID", "run"},
       {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_TRUE(tcp_backend().started());
  EXPECT_EQ(tcp_backend().process(), 3);
  TcpPlace p = tcp_place_by_environment();
  EXPECT_EQ(p.process, 3);
  EXPECT_EQ(p.processes, 4);
  EXPECT_EQ(p.host, "localhost");
  EXPECT_EQ(p.port, 29500);
  EXPECT_EQ(p.token, "run/2");
  EXPECT_EQ(p.patience, 2min);
  EXPECT_EQ(p.doubt, 0ms);
  // Without a token the program's name keeps jobs apart.
  unsetenv("TORCHELASTIC_RUN_ID");
  p = tcp_place_by_environment();
  EXPECT_EQ(p.token, "program tcp_rendezvous_test");
  EXPECT_GT(p.doubt, 0ms);
  // torchrun has its own store at the port.
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  setenv("DTENSOR_JOB_TOKEN", "secret", 1);
  setenv("DTENSOR_JOIN_TIMEOUT", "0.25", 1);
  p = tcp_place_by_environment();
  EXPECT_EQ(p.port, 29501);
  EXPECT_EQ(p.token, "secret");
  EXPECT_EQ(p.patience, 250ms);
  setenv("RANK", "0", 1);
  EXPECT_EQ(tcp_backend().process(), 0);
  // One process is not one of several.
  setenv("WORLD_SIZE", "1", 1);
  EXPECT_FALSE(tcp_backend().started());
  EXPECT_EQ(tcp_backend().process(), -1);
}

TEST_F(TcpEnvironment, ByAFileNeedsNoAddress) {
  set({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  const TcpPlace p = tcp_place_by_environment("/tmp/meet");
  EXPECT_EQ(p.path, "/tmp/meet");
  EXPECT_EQ(p.host, "127.0.0.1");
  EXPECT_EQ(p.port, 0);
}

TEST_F(TcpEnvironment, APartIsAnError) {
  set({{"RANK", "1"}, {"MASTER_ADDR", "localhost"}});
  EXPECT_EQ(testing::error_of([] { tcp_backend().started(); }),
            "[--backend] the environment has RANK, MASTER_ADDR, but not "
            "WORLD_SIZE, MASTER_PORT; set all four for processes that connect "
            "over TCP, as torchrun does, or none, or write --backend threads "
            "(RunOptions::backend)");
  EXPECT_EQ(testing::error_of([] { tcp_place_by_environment(); }),
            "[--backend] for tcp the environment has to set RANK, WORLD_SIZE, "
            "MASTER_ADDR, MASTER_PORT, as torchrun does, but WORLD_SIZE, "
            "MASTER_PORT are missing; start the program with torchrun, set "
            "what is missing, or write --backend threads "
            "(RunOptions::backend)");
  EXPECT_EQ(tcp_backend().process(), -1);
}

TEST_F(TcpEnvironment, NumbersThatAreNone) {
  const auto says = [](const char* name, const char* value) {
    set({{"RANK", "1"},
         {"WORLD_SIZE", "2"},
         {"MASTER_ADDR", "localhost"},
         {"MASTER_PORT", "29500"}});
    setenv(name, value, 1);
    return testing::error_of([] { tcp_place_by_environment(); });
  };
  EXPECT_EQ(says("RANK", "one"),
            "[tcp] RANK is 'one'; write a whole number from 0 to 65536");
  EXPECT_EQ(says("RANK", "-1"),
            "[tcp] RANK is '-1'; write a whole number from 0 to 65536");
  EXPECT_EQ(says("WORLD_SIZE", "0"),
            "[tcp] WORLD_SIZE is '0'; write a whole number from 1 to 65536");
  EXPECT_EQ(says("MASTER_PORT", "99999"),
            "[tcp] MASTER_PORT is '99999'; write a whole number from 1 to "
            "65534");
  EXPECT_EQ(says("MASTER_PORT", "295oo"),
            "[tcp] MASTER_PORT is '295oo'; write a whole number from 1 to "
            "65534");
  EXPECT_EQ(says("DTENSOR_JOIN_TIMEOUT", "soon"),
            "[run] DTENSOR_JOIN_TIMEOUT is 'soon'; write seconds, from 0.001 "
            "to 1e6");
}

}  // namespace
}  // namespace dtensor
