// SPDX-License-Identifier: Apache-2.0
// Messages over TCP, and what a process does when others are gone.
#include "dtensor/comm/tcp/tcp_job.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/comm/transport.h"
#include "dtensor/io/checksum.h"
#include "tests/dtensor/tcp_processes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::in_threads;
using Clock = std::chrono::steady_clock;

std::vector<char> bytes(int64_t n, int seed) {
  std::vector<char> all(static_cast<size_t>(n));
  uint32_t x = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (char& c : all)
    c = static_cast<char>((x = x * 1664525u + 1013904223u) >> 24);
  return all;
}

bool finish(PendingMessages& t, std::chrono::milliseconds within = 10s) {
  for (const auto end = Clock::now() + within; Clock::now() < end;
       std::this_thread::yield())
    if (t.done()) return true;
  return false;
}

// Two processes in a run.
struct Pair {
  std::vector<std::unique_ptr<TcpJob>> jobs = testing::tcp_jobs(2);
  int64_t run = 0;
  Pair() { begin(); }
  ~Pair() {
    for (const auto& j : jobs) j->end_run(false);
    testing::part(jobs);
  }
  void begin() {
    for (const auto& j : jobs) run = j->begin_run(1);
  }
  void tell(size_t from, std::string_view text) {
    jobs[from]->tell(run, from == 0 ? 1 : 0, text);
  }
  std::optional<ProcessJob::Told> told(size_t p) { return jobs[p]->told(run); }
  TcpJob& operator[](size_t p) { return *jobs[p]; }
};

const Channel kThere{0, 1, 0}, kBack{1, 0, 0}, kOtherLane{0, 1, 1};

// Messages of any size arrive in order, in both directions at once.
TEST(TcpTransport, SendsAnySize) {
  Pair pair;
  const int64_t sizes[] = {1,      47,     48,      4095,   4096, 16336,
                           16384,  131071, 131072,  131073, 7,    1000003,
                           262144, 1,      9000001, 65536,  3};
  in_threads(2, [&](int me) {
    const auto messages = pair[static_cast<size_t>(me)].pending_messages();
    const Channel out = me == 0 ? kThere : kBack, in = me == 0 ? kBack : kThere;
    for (const bool together : {false, true}) {
      std::vector<std::vector<char>> sent, received;
      int seed = 0;
      for (const int64_t n : sizes) {
        sent.push_back(bytes(n, 10 * ++seed + me));
        received.emplace_back(static_cast<size_t>(n + seed % 3));
      }
      for (size_t i = 0; i < sent.size(); ++i) {
        messages->receive(in, received[i].data(), std::ssize(received[i]));
        messages->send(out, sent[i].data(), std::ssize(sent[i]));
        if (!together) {
          ASSERT_TRUE(finish(*messages));
          EXPECT_TRUE(messages->awaited().empty());
        }
      }
      ASSERT_TRUE(finish(*messages));
      for (size_t i = 0; i < sent.size(); ++i) {
        received[i].resize(static_cast<size_t>(sizes[i]));
        EXPECT_EQ(received[i],
                  bytes(sizes[i], 10 * static_cast<int>(i + 1) + 1 - me));
      }
    }
  });
}

// A message that nobody receives yet does not hold up one in another lane.
TEST(TcpTransport, AnotherLaneIsNotHeldUp) {
  Pair pair;
  const auto lane0 = pair[0].pending_messages(),
             lane1 = pair[0].pending_messages(),
             in0 = pair[1].pending_messages(), in1 = pair[1].pending_messages();
  const std::vector<char> large = bytes(20 << 20, 1), small = bytes(100, 2);
  std::vector<char> got_large(large.size()), got_small(small.size());
  lane1->send(kOtherLane, large.data(), std::ssize(large));
  lane0->send(kThere, small.data(), std::ssize(small));
  in0->receive(kThere, got_small.data(), std::ssize(got_small));
  const auto both = [&](PendingMessages& a, PendingMessages& b) {
    for (const auto end = Clock::now() + 10s; Clock::now() < end;) {
      const bool one = a.done(), other = b.done();
      if (one && other) return true;
    }
    return false;
  };
  EXPECT_TRUE(both(*lane0, *in0));
  EXPECT_EQ(got_small, small);
  EXPECT_FALSE(in1->done() && got_large == large);
  // Part of the large message has come. The rest goes into the receiver's
  // buffer.
  in1->receive(kOtherLane, got_large.data(), std::ssize(got_large));
  EXPECT_TRUE(both(*lane1, *in1));
  EXPECT_EQ(got_large, large);
}

// However many messages another channel has to send, the channels take turns.
TEST(TcpTransport, ManyMessagesHoldUpAnotherLaneNoMoreThanOne) {
  Pair pair;
  const auto lane0 = pair[0].pending_messages(),
             lane1 = pair[0].pending_messages(),
             in0 = pair[1].pending_messages(), in1 = pair[1].pending_messages();
  const std::vector<char> one = bytes(2 << 20, 1);
  std::vector<std::vector<char>> got(21, std::vector<char>(one.size()));
  for (int i = 0; i < 20; ++i) {
    in1->receive(kOtherLane, got[static_cast<size_t>(i)].data(), 2 << 20);
    lane1->send(kOtherLane, one.data(), 2 << 20);
  }
  in0->receive(kThere, got[20].data(), 2 << 20);
  lane0->send(kThere, one.data(), 2 << 20);
  const auto end = Clock::now() + 10s;
  while (!in0->done() && Clock::now() < end) lane0->done();
  EXPECT_TRUE(in0->done());
  // The other lane has sent about as much.
  EXPECT_GE(in1->awaited().size(), 15u);
  while (!in1->done() && Clock::now() < end) lane1->done();
  for (const std::vector<char>& g : got) EXPECT_EQ(g, one);
}

TEST(TcpTransport, AMessageThatIsTooLong) {
  for (const bool first : {false, true}) {
    Pair pair;
    const auto out = pair[0].pending_messages(),
               in = pair[1].pending_messages();
    const std::vector<char> sent = bytes(100000, 1);
    std::vector<char> got(99999, 'x'), as_it_was = got;
    if (first) {
      in->receive(kThere, got.data(), std::ssize(got));
      EXPECT_FALSE(in->done());  // it waits for the message
    }
    out->send(kThere, sent.data(), std::ssize(sent));
    EXPECT_TRUE(finish(*out));
    std::this_thread::sleep_for(20ms);
    pair.told(1);  // reads from the socket
    if (!first) in->receive(kThere, got.data(), std::ssize(got));
    EXPECT_EQ(error_of([&] { finish(*in, 1s); }),
              "[tcp] a message of more than 99999 bytes came for a buffer of "
              "99999, which is an error in dtensor; report it");
    EXPECT_EQ(got, as_it_was);
  }
}

// Messages of a failed run that are still on their way do not reach the next
// run.
TEST(TcpTransport, AFailedRunLeavesNothing) {
  Pair pair;
  for (int round = 0; round < 6; ++round) {
    const auto out = pair[0].pending_messages(),
               in = pair[1].pending_messages();
    std::vector<char> got(30 << 20, 'x');
    {
      const std::vector<char> lost = bytes(30 << 20, round);
      out->send(kThere, lost.data(), std::ssize(lost));
      out->send(kOtherLane, lost.data(), 5);
      if (round % 3 > 0) in->receive(kThere, got.data(), std::ssize(got));
      if (round % 3 > 1)
        for (int i = 0; i < 5; ++i) in->done(), out->done();
      EXPECT_FALSE(out->done());
      out->give_up();
      if (round % 2) in->give_up();
    }
    in->give_up();
    const std::vector<char> as_it_is = got;
    pair.begin();
    const auto out2 = pair[0].pending_messages(),
               in2 = pair[1].pending_messages();
    const std::vector<char> sent = bytes(300000, 7 * round);
    std::vector<char> next(sent.size());
    out2->send(kThere, sent.data(), std::ssize(sent));
    in2->receive(kThere, next.data(), std::ssize(next));
    bool done = false;
    for (const auto end = Clock::now() + 10s; !done && Clock::now() < end;) {
      const bool o = out2->done();
      done = in2->done() && o;
    }
    ASSERT_TRUE(done) << round;
    EXPECT_EQ(next, sent) << round;
    EXPECT_EQ(got, as_it_is) << round;
  }
}

// One process is a run ahead of the other.
TEST(TcpTransport, WhatComesEarlyIsKept) {
  Pair pair;
  const std::vector<char> sent = bytes(50000, 3);
  EXPECT_EQ(pair[0].begin_run(1), 2);
  const auto out = pair[0].pending_messages();
  out->send(kThere, sent.data(), std::ssize(sent));
  pair[0].tell(2, 1, "of the second run");
  EXPECT_TRUE(finish(*out));
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(pair.told(1));
  pair[1].begin_run(1);
  std::vector<char> got(sent.size());
  const auto in = pair[1].pending_messages();
  in->receive(kThere, got.data(), std::ssize(got));
  EXPECT_TRUE(finish(*in));
  EXPECT_EQ(got, sent);
  const auto told = pair[1].told(2);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->text, "of the second run");
  EXPECT_EQ(told->from, 0);
}

TEST(TcpTransport, TellsInOrder) {
  Pair pair;
  std::vector<std::string> texts = {"", "a", std::string(3 << 20, 'b'), "",
                                    "c"};
  for (const std::string& t : texts) pair.tell(1, t);
  // (If a text does not fit, the sender has to call told() to send the rest.)
  for (const std::string& text : texts) {
    std::optional<ProcessJob::Told> told;
    for (const auto end = Clock::now() + 10s; !told && Clock::now() < end;) {
      pair.told(1);
      told = pair.told(0);
    }
    ASSERT_TRUE(told);
    EXPECT_EQ(told->from, 1);
    EXPECT_TRUE(told->text == text) << told->text.size();
  }
  EXPECT_FALSE(pair.told(0));
}

// All threads in rest() wake up when something comes, whichever it is for.
TEST(TcpTransport, RestsUntilSomethingComes) {
  Pair pair;
  const auto resting = [&] {
    const auto start = Clock::now();
    EXPECT_TRUE(pair[1].rest(800ms));
    return Clock::now() - start;
  };
  const Clock::duration alone = resting();
  EXPECT_GE(alone, 700ms);
  EXPECT_LT(alone, 1700ms);
  std::vector<Clock::duration> took(2);
  in_threads(3, [&](int i) {
    if (i < 2) {
      took[static_cast<size_t>(i)] = resting();
    } else {
      std::this_thread::sleep_for(100ms);
      pair.tell(0, "wake up");
    }
  });
  for (const Clock::duration t : took) {
    EXPECT_GE(t, 20ms);
    EXPECT_LT(t, 600ms);
  }
  EXPECT_EQ(pair.told(1)->text, "wake up");
}

// ---- Lost processes ----

// Process 0, which is connected to a socket of the test.
struct Half {
  Socket other;
  std::unique_ptr<TcpJob> job;
  Half() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    other = Socket(fds[0]);
    std::vector<Socket> sockets(2);
    sockets[1] = Socket(fds[1]);
    job = std::make_unique<TcpJob>(0, std::move(sockets));
  }
  void told() const { job->told(1); }
};

TEST(TcpTransport, AProcessThatDiesIsLost) {
  Half half;
  half.job->begin_run(1);
  half.told();
  EXPECT_EQ(half.job->lost_in_run(), -1);
  half.other.close();
  half.told();
  EXPECT_EQ(half.job->lost_in_run(), 1);
  EXPECT_TRUE(half.job->lost(1));
  EXPECT_FALSE(half.job->lost(0));
  // A message to a lost process is never done, and can be given up.
  const auto messages = half.job->pending_messages();
  char c = 0;
  messages->send(kThere, &c, 1);
  EXPECT_FALSE(messages->done());
  messages->give_up();
}

// The header of a message as it is sent.
struct Frame {
  int64_t run = 0, from = 0, to = 0, total = 0;
  int32_t lane = 0;
  uint32_t kind = 3;  // goodbye
  uint32_t message = 0, bytes = 0;
  uint64_t sum = 0;
};
static_assert(sizeof(Frame) == 56);

Frame sealed(Frame f) {
  f.sum = checksum(&f, offsetof(Frame, sum));
  return f;
}

TEST(TcpTransport, WhoSaysGoodbyeIsLostToTheNextRun) {
  Half half;
  half.job->begin_run(1);
  const Frame goodbye = sealed({.run = 1});
  half.other.send(&goodbye, sizeof(goodbye), Clock::now() + 1s);
  half.other.close();
  for (int i = 0; i < 3; ++i) half.told();  // goodbye, and the end
  EXPECT_EQ(half.job->lost_in_run(), -1);
  EXPECT_TRUE(half.job->lost(1));
  half.job->end_run(true);
  half.job->begin_run(1);
  half.told();
  EXPECT_EQ(half.job->lost_in_run(), 1);
}

// This process reads a damaged header next, and then takes the other process
// for lost.
void expect_damage(const Half& half, const std::string& text) {
  const std::string error = error_of([&] { half.told(); });
  EXPECT_EQ(error.find("[tcp] from process 1 to process 0, the header of a "
                       "message is damaged: it says " +
                       text),
            0u)
      << error;
  half.told();  // does not throw again
  EXPECT_EQ(half.job->lost_in_run(), 1);
  EXPECT_NE(half.job->why_lost(1).find("is damaged"), std::string::npos);
  // The other process still gets what this one tells it.
  half.job->tell(1, 1, "damaged");
  Frame said;
  EXPECT_TRUE(half.other.receive(&said, sizeof(said), Clock::now() + 1s));
  EXPECT_EQ(said.kind, 2u);
}

TEST(TcpTransport, WhatMakesNoSenseIsAnEnd) {
  for (const bool huge : {false, true}) {
    Half half;
    half.job->begin_run(1);
    // The header of a piece of data with impossible sizes.
    const Frame piece =
        sealed({.run = 1, .total = -1, .kind = 1, .bytes = ~0u});
    if (huge) half.other.send(&piece, sizeof(piece), Clock::now() + 1s);
    const std::string garbage(8000, 'A');
    half.other.send(garbage.data(), std::ssize(garbage), Clock::now() + 1s);
    expect_damage(half, huge ? "4294967295 bytes of -1, " : "1094795585 bytes");
  }
}

// Each bit of a header and of a text, one after the other.
TEST(TcpTransport, EveryFlippedBitIsNoticed) {
  std::string text = "12345678go on";
  {
    // Check that `text` is what a process sends for "go on".
    Half half;
    half.job->begin_run(1);
    half.job->tell(1, 1, "go on");
    Frame said;
    ASSERT_TRUE(half.other.receive(&said, sizeof(said), Clock::now() + 1s));
    ASSERT_EQ(said.bytes, text.size());
    ASSERT_TRUE(
        half.other.receive(text.data(), std::ssize(text), Clock::now() + 1s));
  }
  const Frame frame = sealed({.run = 1,
                              .total = std::ssize(text),
                              .kind = 2,
                              .bytes = static_cast<uint32_t>(text.size())});
  std::string all(sizeof(frame), 0);
  std::memcpy(all.data(), &frame, sizeof(frame));
  all += text;
  for (size_t bit = 0; bit <= 8 * all.size(); ++bit) {
    Half half;
    half.job->begin_run(1);
    std::string sent = all;
    const bool flips = bit < 8 * all.size();
    if (flips) sent[bit / 8] ^= static_cast<char>(1 << bit % 8);
    half.other.send(sent.data(), std::ssize(sent), Clock::now() + 1s);
    std::optional<ProcessJob::Told> told;
    const std::string error = error_of([&] { told = half.job->told(1); });
    EXPECT_EQ(error.find("damaged") != error.npos, flips) << bit << error;
    EXPECT_EQ(told.has_value(), !flips) << bit;
  }
}

// ---- Agreement ----

std::vector<JobVerdict> agree(std::vector<std::unique_ptr<TcpJob>>& jobs,
                              const std::vector<JobVerdict>& fares) {
  std::vector<JobVerdict> all(jobs.size());
  in_threads(static_cast<int>(jobs.size()), [&](int p) {
    const auto k = static_cast<size_t>(p);
    if (jobs[k]) all[k] = jobs[k]->agree(fares[k]);
  });
  return all;
}

TEST(TcpJob, AgreesOnTheLowestThatFails) {
  auto jobs = testing::tcp_jobs(4);
  for (const JobVerdict& v : agree(jobs, std::vector<JobVerdict>(4)))
    EXPECT_EQ(v.code, 0);
  for (const JobVerdict& v :
       agree(jobs, {{}, {3, "third"}, {}, {2, "another one"}})) {
    EXPECT_EQ(v.code, 3);
    EXPECT_EQ(v.text, "third");
  }
  EXPECT_TRUE(jobs[0]->is_main_process());
  EXPECT_FALSE(jobs[1]->is_main_process());
  EXPECT_EQ(jobs[2]->process(), 2);
  EXPECT_EQ(jobs[2]->processes(), 4);
  EXPECT_EQ(jobs[2]->launcher(8), "torchrun --nproc-per-node 8 (WORLD_SIZE=8)");
  testing::part(jobs);
}

// ---- Gathering ----

int64_t steady() { return Clock::now().time_since_epoch() / 1ns; }

// Process 0 gets texts, some longer than one message, and how far the other
// processes' clocks are from its own; twice.
TEST(TcpJob, Gathers) {
  auto jobs = testing::tcp_jobs(3);
  const int64_t sizes[][3] = {{7, 0, 5'000'001}, {0, 3 << 20, 1 << 20}};
  for (const auto& size : sizes) {
    const auto text = [&](int p) {
      const std::vector<char> all = bytes(size[p], p);
      return std::string(all.begin(), all.end());
    };
    std::vector<ProcessJob::Gathered> came;
    in_threads(3, [&](int p) {
      jobs[static_cast<size_t>(p)]->gather(
          "compare texts", text(p),
          [&](ProcessJob::Gathered g) {
            EXPECT_EQ(p, 0);
            came.push_back(std::move(g));
          },
          [p] { return steady() + p * 5'000'000'000; });
    });
    ASSERT_EQ(came.size(), 2u);
    for (int p = 1; p < 3; ++p) {
      const ProcessJob::Gathered& g = came[static_cast<size_t>(p - 1)];
      EXPECT_EQ(g.process, p);
      EXPECT_EQ(g.text, text(p));
      EXPECT_GE(g.within, 0);
      EXPECT_LT(g.within, 1'000'000'000);
      EXPECT_LE(std::abs(g.behind + p * 5'000'000'000), g.within);
    }
  }
  testing::part(jobs);
}

// A process that fails and does not gather tells the others why.
TEST(TcpJob, GathersNothingWhenOneHasFailed) {
  for (const int odd : {0, 1, 2}) {
    auto jobs = testing::tcp_jobs(3);
    std::vector<std::string> errors(3, "no error");
    in_threads(3, [&](int p) {
      ProcessJob& job = *jobs[static_cast<size_t>(p)];
      if (p == odd)
        job.not_gathering("no more disks");
      else
        errors[static_cast<size_t>(p)] = error_of([&] {
          job.gather("compare texts", "x", [](ProcessJob::Gathered) {});
        });
    });
    for (int p = 0; p < 3; ++p) {
      // (Those between process 0 and the odd one have sent all.)
      const bool waits = p != odd && (p == 0 || odd == 0 || p > odd);
      EXPECT_EQ(errors[static_cast<size_t>(p)],
                waits ? "no more disks" : "no error");
    }
    testing::part(jobs);
  }
}

// Process 0 may be in the next agreement when process 1 fails in gather().
TEST(TcpJob, AgreesThatAProcessCouldNotGather) {
  auto jobs = testing::tcp_jobs(2);
  jobs[0]->set_patience(run_patience(1s));
  jobs[0]->not_gathering("no more disks");
  EXPECT_EQ(error_of([&] {
              jobs[1]->gather("compare texts", "x",
                              [](ProcessJob::Gathered) {});
            }),
            "no more disks");
  const JobVerdict all = jobs[0]->agree({});
  EXPECT_EQ(all.code, 1);
  EXPECT_EQ(all.text, "no more disks");
  testing::part(jobs);
}

// Process 0 refuses what it gets; then a process is gone.
TEST(TcpJob, GathersNothingWithoutTheOthers) {
  {
    auto jobs = testing::tcp_jobs(3);
    std::vector<std::string> errors(3);
    in_threads(3, [&](int p) {
      errors[static_cast<size_t>(p)] = error_of([&] {
        jobs[static_cast<size_t>(p)]->gather(
            "compare texts", "x",
            [](ProcessJob::Gathered) { fail("test", "refused"); });
      });
    });
    EXPECT_EQ(errors, std::vector<std::string>(3, "[test] refused"));
    testing::part(jobs);
  }
  auto jobs = testing::tcp_jobs(2);
  std::jthread leaves([&] { jobs[1] = nullptr; });
  EXPECT_EQ(error_of([&] {
              jobs[0]->gather("compare texts", "x",
                              [](ProcessJob::Gathered) {});
            }),
            "[gather] process 1 does not answer, because it or another process "
            "has ended; look for the error in their output");
  jobs[0] = nullptr;
}

// Process 1 neither answers nor ends: the others name it, with the same words.
TEST(TcpJob, GathersNothingFromAProcessThatSaysNothing) {
  auto jobs = testing::tcp_jobs(3);
  std::vector<std::string> errors(3);
  for (const auto& job : jobs) job->set_patience(run_patience(300ms));
  in_threads(3, [&](int p) {
    if (p == 1) return;
    errors[static_cast<size_t>(p)] = error_of([&] {
      jobs[static_cast<size_t>(p)]->gather("compare texts", "x",
                                           [](ProcessJob::Gathered) {});
    });
  });
  EXPECT_EQ(errors[0].find("[run] nothing came from process 1 for 0.3 s, while "
                           "the processes compare texts; "),
            0u)
      << errors[0];
  EXPECT_EQ(errors[2], errors[0]);
  testing::part(jobs);
}

// Process 1 takes longer in all than process 2 would wait, but answers again
// and again. Process 0 tells process 2 that it is alive.
TEST(TcpJob, AProcessWaitsForItsTurn) {
  auto jobs = testing::tcp_jobs(3);
  std::vector<std::string> errors(3);
  for (const auto& job : jobs) job->set_patience(run_patience(1s));
  in_threads(3, [&](int p) {
    errors[static_cast<size_t>(p)] = error_of([&] {
      jobs[static_cast<size_t>(p)]->gather(
          "compare texts", "x", [](ProcessJob::Gathered) {},
          [p] {
            if (p == 1) std::this_thread::sleep_for(150ms);
            return steady();
          });
    });
  });
  EXPECT_EQ(errors, std::vector<std::string>(3, "no error"));
  testing::part(jobs);
}

TEST(TcpJob, LeavesAProcessThatSaysNothing) {
  Half half;
  half.job->set_patience(run_patience(50ms));
  EXPECT_EQ(error_of([&] { half.job->leave(); })
                .find("[run] nothing came from process 1 for 0.05 s, while the "
                      "processes leave the program; "),
            0u);
  half.job->leave();  // does not throw again
}

TEST(TcpJob, AgreesWithoutThoseThatAreGone) {
  for (const size_t gone : {0, 2}) {
    auto jobs = testing::tcp_jobs(3);
    std::jthread leaves([&] { jobs[gone] = nullptr; });
    std::this_thread::sleep_for(100ms);
    const auto start = Clock::now();
    std::vector<std::unique_ptr<TcpJob>> rest(3);
    for (size_t p = 0; p < 3; ++p)
      if (p != gone) rest[p] = std::move(jobs[p]);
    const auto all = agree(rest, std::vector<JobVerdict>(3));
    for (size_t p = 0; p < 3; ++p)
      if (p != gone) {
        EXPECT_EQ(all[p].code, 1);
        EXPECT_EQ(all[p].text,
                  "[run] process " + std::to_string(gone) +
                      " has ended before the others; look for the error in its "
                      "output, or for a signal that killed it");
      }
    EXPECT_LT(Clock::now() - start, 1s);
    EXPECT_TRUE(rest[gone == 0 ? 1 : 0]->is_main_process());
    testing::part(rest);
    leaves.join();
  }
}

}  // namespace
}  // namespace dtensor
