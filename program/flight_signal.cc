// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/flight_signal.h"

#include <pthread.h>
#include <signal.h>

#include <cstdio>

#include "dtensor/flight.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

sigset_t the_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return set;
}

void write_and_say(const std::string& folder, const std::string& program) {
  try {
    make_flight_folder("flight", folder);
    const int64_t files = write_flights(folder, "SIGUSR1");
    if (files > 0)
      fmt::print(stderr,
                 "{}: the last collectives of {} ranks are in {}/rank-N.json\n",
                 program, files, folder);
    else
      fmt::print(stderr, "{}: no ranks are running\n", program);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", program, e.what());
  }
}

}  // namespace

FlightSignal::FlightSignal() {
  const sigset_t set = the_signal();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

FlightSignal::~FlightSignal() {
  if (!thread_.joinable()) return;
  stops_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

void FlightSignal::answer(const std::string& folder,
                          const std::string& program) {
  thread_ = std::thread([this, folder, program] {
    const sigset_t set = the_signal();
    for (int got; sigwait(&set, &got) == 0 && !stops_;)
      write_and_say(folder, program);
  });
}

}  // namespace dtensor
