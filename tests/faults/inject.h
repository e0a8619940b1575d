// SPDX-License-Identifier: Apache-2.0
// Ranks that do something else than the others at their n-th collective, on any
// backend. The environment says what:
//   FAULT_AT=n        of this rank's collectives, from 1, also of those of its
//                     second thread; without it there is no fault
//   FAULT=...         crash: throws, as without it; leave: returns from the
//                     run's function; stall: sleeps, and goes on; dtype,
//                     fingerprint: sends something else; kill, exit: the
//                     process ends, by SIGKILL or by itself
//   FAULT_RANK=r      1 unless set
//   FAULT_SECONDS=s   of stall, 0.8 unless set
#pragma once
#include <cstdint>

#include "dtensor/comm/backend.h"

namespace dtensor::testing {

// Thrown by `leave`: to be caught where the run's function can return.
struct Leave {};

// The backend, with the fault. The communicators are of more than one member.
BackendFactory with_fault(BackendFactory);

// How many collectives the rank has begun; of the last run.
int64_t collectives_of(int64_t rank);

// A line on standard error that a test reads: "@ SECONDS rank R: text", with
// the machine's monotonic clock.
void say(int64_t rank, std::string_view text);

}  // namespace dtensor::testing
