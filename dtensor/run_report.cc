// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "dtensor/runtime.h"

namespace dtensor {

std::string straggler_text(const RunReport& report) {
  constexpr size_t kMost = 8;
  std::vector<size_t> late;
  for (size_t r = 0; r < report.waited_for.size(); ++r)
    if (report.waited_for[r] > 1) late.push_back(r);
  std::stable_sort(late.begin(), late.end(), [&](size_t a, size_t b) {
    return report.waited_for[a] > report.waited_for[b];
  });
  std::string text;
  for (size_t i = 0; i < std::min(late.size(), kMost); ++i) {
    const double s = report.waited_for[late[i]];
    text += fmt::format("{}rank {} {}for {:.1f} s{} ({:.0f} %)", i ? ", " : "",
                        late[i], i ? "" : "was waited ", s,
                        i ? "" : fmt::format(" of {:.1f} s", report.seconds),
                        100 * s / report.seconds);
  }
  if (late.size() > kMost) text += fmt::format(", ... ({})", late.size());
  return text;
}

}  // namespace dtensor
