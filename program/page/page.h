// SPDX-License-Identifier: Apache-2.0
// The page that shows records (docs/record.md).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace dtensor {

// Returns an HTML file that opens from disk and needs nothing else: its policy
// (CSP) forbids the browser to load anything. It can compare several records.
// No text in a record is read as HTML. Invalid UTF-8 is replaced.
std::string page(const std::vector<nlohmann::ordered_json>& records);

// Returns the page without records, but with a form (playground.js): `form`
// says what can be asked of the server that sent the page. The page can reach
// no other server.
std::string playground_page(const nlohmann::ordered_json& form);

}  // namespace dtensor
