// SPDX-License-Identifier: Apache-2.0
// The page that shows records (docs/record.md).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace dtensor {

// Returns an HTML file with everything in it: it opens from disk, and its
// policy forbids the browser to reach anything else. Several records can be
// compared. No text in a record is read as HTML. Invalid UTF-8 is replaced.
std::string page(const std::vector<nlohmann::ordered_json>& records);

// Returns the page without records and with a form (playground.js): `form` says
// what can be asked of the page's own server, which is all that it can reach.
std::string playground_page(const nlohmann::ordered_json& form);

}  // namespace dtensor
