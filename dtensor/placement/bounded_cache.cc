#include "dtensor/placement/bounded_cache.h"

#include <fmt/format.h>

namespace dtensor {
namespace {

std::string thousands(int64_t n) {
  std::string text = std::to_string(n);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
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
