// SPDX-License-Identifier: Apache-2.0
#include "dtensor/all_or_none.h"

#include <new>
#include <string>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/comm/peer_failed.h"
#include "dtensor/device/out_of_memory.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

// Calls work(). Returns the error text for its exception, or "" if it threw
// none. Rethrows a PeerFailed.
std::string error_of(std::string_view op, int64_t rank,
                     const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const PeerFailed&) {
    throw;  // work() communicated, which it must not, and a peer has failed
  } catch (const Error& e) {
    return e.what();
  } catch (const std::bad_alloc&) {
    return out_of_memory_text();
  } catch (const std::exception& e) {
    return fmt::format("[{}] rank {} threw: {}", op, rank, e.what());
  } catch (...) {
    return fmt::format(
        "[{}] rank {} threw something that is not a std::exception; throw one, "
        "so that its text can be shown",
        op, rank);
  }
}

}  // namespace

void all_or_none(std::string_view op, uint64_t fingerprint,
                 const std::function<void()>& work) {
  RankContext& context = RankContext::current();
  const std::string mine = error_of(op, context.world_rank, work);
  if (context.dry_run) {
    if (!mine.empty()) throw Error(mine);
    return;
  }
  std::string first;
  int64_t failed = 0;
  for (const std::string& text : all_gather_bytes(op, fingerprint, mine))
    if (!text.empty() && failed++ == 0) first = text;
  if (failed == 0) return;
  if (failed > 1)
    first +=
        fmt::format(" ({} of {} ranks failed)", failed, context.world_size);
  throw Error(first);
}

}  // namespace dtensor
