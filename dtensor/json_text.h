// JSON as files of results have it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dtensor {

// A member of an object, and an array's object or array, on a line of its own,
// indented by 2; an array of numbers, texts and the like on one line, however
// long. Bytes that are no UTF-8 are replaced. Ends in a newline.
std::string json_text(const nlohmann::ordered_json&);

}  // namespace dtensor
