// SPDX-License-Identifier: Apache-2.0
// The page that shows records (docs/record.md).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace dtensor {

// Returns an HTML file that needs no other file and opens from disk. Its
// Content-Security-Policy forbids the browser to load anything else. The page
// can compare several records. No text in a record is read as HTML. Replaces
// invalid UTF-8.
std::string page(const std::vector<nlohmann::ordered_json>& records);

// Returns the page without records, but with a form (playground.js). `form`
// says what can be asked of the server that sends the page (form_of()). The
// page can reach only that server.
std::string playground_page(const nlohmann::ordered_json& form);

}  // namespace dtensor
