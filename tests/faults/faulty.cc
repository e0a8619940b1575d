// SPDX-License-Identifier: Apache-2.0
// A program in which one rank goes wrong in one of many ways, for
// faults_test.cc: --case names the way, and --odd the rank. It has the flags of
// all programs (--mesh, --backend, --timeout), and FAULT_AT; see inject.h.
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <bit>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/comm/tcp/tcp_rendezvous.h"
#include "dtensor/interrupt.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/program/program.h"
#include "dtensor/rank_context.h"
#include "dtensor/replicas.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/faults/inject.h"
#include "tests/one_tensor.h"

namespace dtensor::testing {
namespace {

using Seconds = std::chrono::duration<double>;

int64_t odd_rank = 1;

void sleep(double seconds) { std::this_thread::sleep_for(Seconds(seconds)); }
bool odd(Runtime& rt) { return rt.rank() == odd_rank; }

Communicator& group(Runtime& rt, const std::vector<int64_t>& ranks) {
  return rt.context().communicator(ranks);
}
Communicator& everybody(Runtime& rt) {
  std::vector<int64_t> ranks(static_cast<size_t>(rt.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group(rt, ranks);
}
void barrier(Communicator& c, std::string_view op) {
  c.barrier({StepKind::kBarrier, op, 1});
}
void all_reduce(Communicator& c, float* x, std::string_view op = "matmul",
                int64_t n = 4, ReduceOp reduce = ReduceOp::kSum,
                DType type = DType::kF32) {
  c.all_reduce({StepKind::kAllReduce, op, 1}, {}, reduce, type, x, n);
}

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(numel(shape)));
  std::iota(values.begin(), values.end(), 0.f);
  return Tensor::from(shape, values.data());
}
DistTensor rows(const Mesh& mesh) {
  return DistTensor::from_global(counting({8, 4}), mesh, "S0");
}

// All ranks meet. Then the odd rank, which goes wrong next, says "fault".
void fault_now(Runtime& rt) {
  barrier(everybody(rt), "start");
  if (odd(rt)) say(rt.rank(), "fault");
}

// The collective that the other ranks call, and the one that the odd rank
// calls. The numbers that it gets must not change if it throws.
using Act = std::function<void(Communicator&, float*)>;
void different(Runtime& rt, const Act& right, const Act& wrong) {
  fault_now(rt);
  float x[16];
  std::fill_n(x, 16, 7.f);
  try {
    (odd(rt) ? wrong : right)(everybody(rt), x);
  } catch (...) {
    for (float v : x)
      if (v != 7) say(rt.rank(), "touched");
    throw;
  }
}

void right(Communicator& c, float* x) { all_reduce(c, x); }

void gather(Communicator& c, float* x) {
  std::vector<Region> parts;
  for (int64_t m = 0; m < c.size(); ++m)
    parts.push_back({IntervalList{{m, m + 1}}});
  const std::vector<Region> all(parts.size(),
                                Region{IntervalList{{0, c.size()}}});
  const size_t me = static_cast<size_t>(c.rank());
  float mine = 1;
  testing::exchange(c, {StepKind::kAllGather, "matmul", 1}, {}, DType::kF32,
                    {&mine, {1}, &parts[me]}, parts, {x, {1}, &all[me]}, all);
}

// Calls two collectives, in one order or in the other.
void in_order(Communicator& c, float* x, bool swapped) {
  all_reduce(c, x, swapped ? "second" : "first");
  all_reduce(c, x, swapped ? "first" : "second");
}

// Every rank waits for the next one, in three groups of two ranks.
void circle(Runtime& rt) {
  fault_now(rt);
  const std::vector<int64_t> groups[] = {{0, 1}, {1, 2}, {0, 2}};
  const int64_t first = rt.rank();  // 0: {0,1}, 1: {1,2}, 2: {0,2}
  const int64_t second = (rt.rank() + 2) % 3;
  for (const int64_t g : {first, second})
    barrier(group(rt, groups[g]), "circle");
}

// Makes one training step of a tiny model. Each rank says a hash of every bit
// of the loss and the parameters.
void step(Runtime& rt, int stage, int64_t bucket) {
  const Mesh mesh = rt.mesh();
  nn::ModelConfig config;
  config.name = "gpt";
  config.layers = 1;
  config.hidden = 8;
  config.heads = 2;
  config.seq = 4;
  config.vocab = 10;
  auto model = nn::make_model(
      config, mesh, nn::zero(nn::default_plan(config, mesh), stage), 1);
  nn::AdamW optimizer(model->parameters(), {});
  const DistTensor tokens =
      randint(0, config.vocab, {4, config.seq}, mesh,
              nn::batch_placements(mesh), DType::kI64, {2, 0});
  rt.context().gather_budget = 4096;
  const DistTensor loss = model->loss(tokens, tokens);
  optimizer.step(grad(loss, model->parameters(),
                      {.release_graph = true, .bucket_bytes = bucket}),
                 {.lr = 0.01});
  uint64_t bits = hash_mix(1, std::bit_cast<uint64_t>(loss.item()));
  for (const DistTensor& p : model->parameters()) {
    const Tensor full = p.full();
    for (int64_t i = 0; i < full.numel(); ++i)
      bits = hash_mix(bits, std::bit_cast<uint64_t>(full.at(i)));
  }
  say(rt.rank(), fmt::format("bits {:016x}", bits));
}

// Times barriers. main() leaves the program only two cores for this case.
void many_ranks(Runtime& rt) {
  Communicator& all = everybody(rt);
  const auto round = [&] {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) barrier(all, "many");
    return Seconds(std::chrono::steady_clock::now() - start).count() / 100;
  };
  double best = round();
  for (int i = 0; i < 20; ++i) best = std::min(best, round());
  if (rt.rank() == 0) say(0, fmt::format("barrier {:.1f} us", best * 1e6));
}

// Another thread makes calls while the rank's own thread waits in a barrier.
void two_threads(Runtime& rt) {
  Communicator& all = everybody(rt);
  const auto says = [&](const std::function<void()>& fn) {
    std::string what = "no error";
    try {
      fn();
    } catch (const Error& e) {
      what = e.what();
    }
    say(rt.rank(), what);
  };
  std::thread another([&] {
    sleep(0.2);
    if (!odd(rt)) says([&] { barrier(all, "another thread's"); });
    says([&] { rows(rt.mesh()); });
  });
  if (odd(rt)) sleep(0.6);
  barrier(all, "mine");
  another.join();
  barrier(all, "mine");  // the communicator still works
}

void check_columns(const DistTensor& y) {
  const Tensor whole = y.full();
  for (int64_t i = 0; i < whole.numel(); ++i)
    DT_CHECK(whole.at(i) == static_cast<double>(i), "faulty",
             "element {} is {}", i, whole.at(i));
}

// The source of an asynchronous move is destroyed, or written to, while the
// move is under way.
void freed_or_written(Runtime& rt) {
  for (int i = 0; i < 20; ++i) {
    DistTensor y;
    {
      const DistTensor x = rows(rt.mesh());
      if (odd(rt)) sleep(0.005);
      y = x.redistribute_async("S1");
    }
    DistTensor other = rows(rt.mesh());  // may get the memory that x had
    const DistTensor z = other.redistribute_async("S1");
    other.assign(Tensor::full(other.local().shape(), DType::kF32, -1));
    check_columns(y);
    check_columns(z);
  }
}

void dropped(Runtime& rt) {
  for (int i = 0; i < 20; ++i) {
    if (odd(rt)) sleep(0.005);
    rows(rt.mesh()).redistribute_async("S1");
  }
  fault_now(rt);
  rows(rt.mesh()).redistribute_async("S1");
  if (odd(rt)) throw std::runtime_error("no luck");
}

void replica(Runtime& rt) {
  std::vector<NamedTensor> all{
      {"weight", DistTensor::from_global(counting({5, 2}), rt.mesh(), "R")}};
  check_replicas(all);
  fault_now(rt);
  if (odd(rt)) {
    char* bytes = static_cast<char*>(all[0].tensor.local().mutable_data());
    bytes[13] ^= 4;
  }
  check_replicas(all);
}

// One rank has no memory for a tensor.
void memory(Runtime& rt) {
  fault_now(rt);
  if (odd(rt)) Tensor::empty({int64_t{1} << 58}, DType::kF32);
  rows(rt.mesh()).full();
}

void compute_on(Runtime& rt) {
  DistTensor x = rows(rt.mesh());
  for (;;) x = add(x, x);
}

void compute(Runtime& rt, bool waits) {
  fault_now(rt);
  if (waits && !odd(rt)) barrier(everybody(rt), "wait");
  compute_on(rt);
}

// A rank's process is killed while no rank waits for it or checks for signals.
void dies(Runtime& rt, bool others_compute) {
  fault_now(rt);
  sleep(0.3);
  if (odd(rt)) raise(SIGKILL);
  if (others_compute) compute_on(rt);
  sleep(30);
}

// Shuts down the connection to process 0, which has listened at MASTER_PORT.
void cut_from_the_first() {
  const int port = std::atoi(std::getenv("MASTER_PORT"));
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        ntohs(peer.sin_port) == port)
      shutdown(fd, SHUT_RDWR);
  }
}

void late(Runtime& rt, double seconds) {
  fault_now(rt);
  for (double s = 0; odd(rt) && s < seconds && !interrupted(); s += 0.05)
    sleep(0.05);
  barrier(everybody(rt), "late");
}

// A process that meets others at the file MEET: rank --odd of MEET_WORLD.
void meet() {
  tcp_rendezvous({.process = static_cast<int>(odd_rank),
                  .processes = std::stoi(std::getenv("MEET_WORLD")),
                  .path = std::getenv("MEET"),
                  .patience = std::chrono::milliseconds(1500)});
  fmt::print("met\n");
}

const std::map<std::string, std::function<void(Runtime&)>>& cases() {
  using enum ReduceOp;
  static const std::map<std::string, std::function<void(Runtime&)>> all = {
      {"dtype",
       [](Runtime& rt) {
         different(rt, right, [](Communicator& c, float* x) {
           all_reduce(c, x, "matmul", 4, kSum, DType::kI32);
         });
       }},
      {"count",
       [](Runtime& rt) {
         different(rt, right, [](Communicator& c, float* x) {
           all_reduce(c, x, "matmul", 8);
         });
       }},
      {"shape",
       [](Runtime& rt) {
         fault_now(rt);
         DistTensor::from_global(counting({odd(rt) ? 12 : 8}), rt.mesh(), "S0")
             .redistribute("R");
       }},
      {"value",
       [](Runtime& rt) {
         const DistTensor x = rows(rt.mesh());
         fault_now(rt);
         const PathScope path("model.head");
         (odd(rt) ? exp(x) : neg(x)).redistribute("R");
       }},
      {"more",
       [](Runtime& rt) {
         const DistTensor x = rows(rt.mesh());
         fault_now(rt);
         const PathScope path("model.head");
         const DistTensor y = exp(x), z = neg(x);
         if (odd(rt)) y.redistribute("R");
         z.redistribute("R");
       }},
      {"op",
       [](Runtime& rt) {
         different(rt, right, [](Communicator& c, float* x) {
           all_reduce(c, x, "matmul", 4, kMax);
         });
       }},
      {"kind", [](Runtime& rt) { different(rt, right, gather); }},
      {"swapped",
       [](Runtime& rt) {
         different(
             rt, [](Communicator& c, float* x) { in_order(c, x, false); },
             [](Communicator& c, float* x) { in_order(c, x, true); });
       }},
      {"circle", circle},
      {"late", [](Runtime& rt) { late(rt, 2.5); }},
      // A rank that is a process is interrupted long before.
      {"later", [](Runtime& rt) { late(rt, 30); }},
      {"dies",
       [](Runtime& rt) {
         fault_now(rt);
         if (!odd(rt)) return;
         sleep(0.3);  // until the others are done
         raise(SIGKILL);
       }},
      {"dies-while-others-compute", [](Runtime& rt) { dies(rt, true); }},
      {"dies-while-others-sleep", [](Runtime& rt) { dies(rt, false); }},
      {"cut",
       [](Runtime& rt) {
         fault_now(rt);
         if (odd(rt)) cut_from_the_first();
         for (;;) barrier(everybody(rt), "cut");
       }},
      {"skips",
       [](Runtime& rt) {
         fault_now(rt);
         if (!odd(rt)) barrier(everybody(rt), "skipped");
         barrier(everybody(rt), "next");
       }},
      {"leaves",
       [](Runtime& rt) {
         fault_now(rt);
         if (odd(rt)) return;
         barrier(everybody(rt), "left");
       }},
      {"throws",
       [](Runtime& rt) {
         const DistTensor y = rows(rt.mesh()).redistribute_async("S1");
         fault_now(rt);
         if (odd(rt)) throw std::runtime_error("no luck");
         barrier(everybody(rt), "thrown");
       }},
      {"straggler",
       [](Runtime& rt) {
         fault_now(rt);
         if (odd(rt)) sleep(1.5);
         barrier(everybody(rt), "at last");
       }},
      // All ranks compute equally long, but the odd one hardly gets a core
      // until the others are done. (With a niceness of 19, it would hardly get
      // a core even then, on a machine with other work.)
      {"crowded",
       [](Runtime& rt) {
         fault_now(rt);
         if (odd(rt)) setpriority(PRIO_PROCESS, 0, 12);
         const auto computed = [] {
           timespec t{};
           clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
           return Seconds(std::chrono::seconds(t.tv_sec) +
                          std::chrono::nanoseconds(t.tv_nsec));
         };
         while (computed() < Seconds(1.5)) {
         }
         barrier(everybody(rt), "at last");
       }},
      // The test stops the process in the meantime.
      {"stopped",
       [](Runtime& rt) {
         fault_now(rt);
         const auto end = std::chrono::steady_clock::now() + Seconds(4);
         Communicator& all = everybody(rt);
         for (int go = 1; go;) {
           go = rt.rank() == 0 && std::chrono::steady_clock::now() < end;
           std::vector<int> of(static_cast<size_t>(all.size()));
           all.all_gather_bytes({StepKind::kAllGatherBytes, "go"}, &go,
                                sizeof(go), of.data());
           go = of[0];
         }
       }},
      // The test stops the process while the others wait for the odd rank.
      {"stopped-waiting",
       [](Runtime& rt) {
         fault_now(rt);
         for (int i = 0; i < 10 && odd(rt); ++i) sleep(0.1);
         barrier(everybody(rt), "stopped");
       }},
      {"many", many_ranks},
      {"two-threads", two_threads},
      {"freed", freed_or_written},
      {"dropped", dropped},
      {"placements",
       [](Runtime& rt) {
         fault_now(rt);
         const Tensor mine = Tensor::full({4, 4}, DType::kF32, 1);
         const int64_t p = rt.world_size();
         const Shape whole = odd(rt) ? Shape{4, 4 * p} : Shape{4 * p, 4};
         DistTensor::from_local(mine, rt.mesh(), odd(rt) ? "S1" : "S0", whole)
             .redistribute("R");
       }},
      {"meshes",
       [](Runtime& rt) {
         fault_now(rt);
         const int64_t p = rt.world_size();
         const Mesh mesh = odd(rt) ? rt.mesh({{"x", p}}) : rt.mesh({{"y", p}});
         rows(mesh).redistribute("R");
       }},
      {"two-meshes",
       [](Runtime& rt) {
         fault_now(rt);
         const int64_t p = rt.world_size();
         add(rows(rt.mesh({{"x", p}})), rows(rt.mesh({{"y", p}})));
       }},
      {"memory", memory},
      {"replica", replica},
      {"step", [](Runtime& rt) { step(rt, 0, 0); }},
      {"step3", [](Runtime& rt) { step(rt, 3, 0); }},
      {"step3-buckets", [](Runtime& rt) { step(rt, 3, 512); }},
      {"compute", [](Runtime& rt) { compute(rt, false); }},
      {"compute-and-wait", [](Runtime& rt) { compute(rt, true); }},
      {"talk",
       [](Runtime& rt) {
         fault_now(rt);
         for (;;) barrier(everybody(rt), "talk");
       }},
      {"deaf",
       [](Runtime& rt) {
         fault_now(rt);
         sleep(30);
       }},
      {"meet", nullptr},
  };
  return all;
}

// Calls fn, and says how the rank ends.
void tell(Runtime& rt, const std::function<void(Runtime&)>& fn) {
  const int64_t me = rt.rank();
  try {
    fn(rt);
    say(me, "done");
  } catch (const Leave&) {
    say(me, "left");
  } catch (const PeerFailed& e) {
    say(me, fmt::format("PeerFailed {}: {}", e.rank(), e.what()));
    throw;
  } catch (const std::exception& e) {
    say(me, fmt::format("threw {}", e.what()));
    throw;
  }
  say(me, fmt::format("began {}", collectives_of(me)));
}

int main(int argc, char** argv) {
  Program program({.about = "A program that goes wrong.", .mesh = "ranks=4"});
  std::string what;
  std::vector<std::string> names;
  for (const auto& [name, fn] : cases()) names.push_back(name);
  program.add("--case", &what, "what goes wrong", names);
  program.add("--odd", &odd_rank, "the rank that does something else");
  return program.main(argc, argv, nullptr, [&] {
    if (what == "meet") return meet();
    if (what == "many") {
      cpu_set_t two;
      CPU_ZERO(&two);
      CPU_SET(0, &two), CPU_SET(1, &two);
      sched_setaffinity(0, sizeof(two), &two);  // fails if there are not two
    }
    RunOptions options = program.run_options();
    options.backend = with_fault(options.backend);
    run(options, [&](Runtime& rt) { tell(rt, cases().at(what)); });
    program.write_json(nlohmann::ordered_json{{"case", what}});
  });
}

}  // namespace
}  // namespace dtensor::testing

int main(int argc, char** argv) { return dtensor::testing::main(argc, argv); }
