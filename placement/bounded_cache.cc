// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/bounded_cache.h"

#include <fmt/format.h>

namespace dtensor {
namespace {

std::string thousands(int64_t n) {
  if (n < 1000) return std::to_string(n);
  return fmt::format("{},{:03}", thousands(n / 1000), n % 1000);
}

}  // namespace

std::string to_string(std::span<const CacheUse> caches) {
  std::string text;
  for (const CacheUse& c : caches)
    text += fmt::format("{}: {} entries, weight {} of {}; {} hits, {} misses\n",
                        c.name, thousands(static_cast<int64_t>(c.entries)),
                        thousands(static_cast<int64_t>(c.weight)),
                        thousands(static_cast<int64_t>(c.limit)),
                        thousands(c.hits), thousands(c.misses));
  return text;
}

}  // namespace dtensor
