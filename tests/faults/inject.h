// SPDX-License-Identifier: Apache-2.0
// Makes a rank do something else than the others at its n-th collective, on any
// backend. Environment variables say what:
//   FAULT_AT=n        n counts the rank's collectives from 1, on both of its
//                     threads; there is no fault if this is not set
//   FAULT=...         crash: the rank throws (the default); leave: it returns
//                     from the run's function; stall: it sleeps, and goes on;
//                     dtype, fingerprint: it sends another type or fingerprint;
//                     kill, exit: its process ends, by SIGKILL or by _exit()
//   FAULT_RANK=r      the rank; 1 if this is not set
//   FAULT_SECONDS=s   how long stall sleeps; 0.8 if this is not set
#pragma once
#include <cstdint>

#include "dtensor/comm/backend.h"

namespace dtensor::testing {

// The fault `leave` throws this. The function that run() calls must catch it
// and return.
struct Leave {};

// A backend that adds the fault to communicators of more than one member.
BackendFactory with_fault(BackendFactory);

// The number of collectives that the rank has begun in the last run.
int64_t collectives_of(int64_t rank);

// Writes a line to standard error for tests to read: "@ SECONDS rank R: text",
// with the time of the machine's monotonic clock.
void say(int64_t rank, std::string_view text);

}  // namespace dtensor::testing
