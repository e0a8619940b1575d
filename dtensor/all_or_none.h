// SPDX-License-Identifier: Apache-2.0
// Work that each rank does by itself and that may fail on some ranks only, such
// as file I/O.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace dtensor {

// Calls work(), and returns when every rank has done so. If work() throws on
// some ranks, every rank throws an Error with the message of the lowest of
// these ranks and, if there are several, their number. work() must not
// communicate. Collective over all ranks of the run. `fingerprint` is a hash of
// the values on which the ranks have to agree: if two of these hashes differ,
// all ranks throw Error after the work.
void all_or_none(std::string_view op, uint64_t fingerprint,
                 const std::function<void()>& work);

}  // namespace dtensor
