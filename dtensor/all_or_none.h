// Work that each rank does by itself and that may fail on one alone, as files
// do.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace dtensor {

// Calls work(), which meets nobody, on every rank of the run; returns when all
// have. Where it throws on some ranks, all throw the sentence of the lowest of
// them, and how many more there were: nobody goes on alone, and nobody waits
// for one that failed. Collective over the run. `fingerprint`: of what the
// ranks have to agree on; where two differ, all throw the Error that says so,
// after the work.
void all_or_none(std::string_view op, uint64_t fingerprint,
                 const std::function<void()>& work);

}  // namespace dtensor
