// SPDX-License-Identifier: Apache-2.0
#include "programs/memory_report.h"

#include <vector>

#include "dtensor/text_table.h"

namespace dtensor::examples {
namespace {

// Calls fn(name, predicted, measured) for each row of the report.
template <class Fn>
void for_rows(const nn::MemoryUse& predicted, const nn::MemoryUse* measured,
              Fn&& fn) {
  for (const MemoryKind k :
       {MemoryKind::kParameters, MemoryKind::kGradients, MemoryKind::kState,
        MemoryKind::kActivations, MemoryKind::kGathered}) {
    const auto i = static_cast<size_t>(k);
    fn(std::string(name(k)), predicted.kinds[i],
       measured ? measured->kinds[i] : 0);
  }
  fn("peak", predicted.peak, measured ? measured->peak : 0);
  if (predicted.host || (measured && measured->host))
    fn("on the host", predicted.host, measured ? measured->host : 0);
}

}  // namespace

std::string memory_table(const nn::MemoryUse& predicted,
                         const nn::MemoryUse* measured) {
  std::vector<std::string> head = {"memory of a rank", "predicted"};
  if (measured) head.push_back("measured");
  TextTable table(measured ? "lrr" : "lr", head);
  for_rows(predicted, measured,
           [&](const std::string& row, int64_t expected, int64_t found) {
             std::vector<std::string> cells = {row, grouped(expected)};
             if (measured) cells.push_back(grouped(found));
             table.add(cells);
           });
  return table.to_string();
}

nlohmann::ordered_json memory_json(const nn::MemoryUse& predicted,
                                   const nn::MemoryUse* measured) {
  nlohmann::ordered_json json;
  for_rows(predicted, measured,
           [&](const std::string& row, int64_t expected, int64_t found) {
             json[row] = {{"predicted", expected}};
             if (measured) json[row]["measured"] = found;
           });
  return json;
}

}  // namespace dtensor::examples
