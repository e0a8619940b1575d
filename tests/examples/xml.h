// Is a text XML? Of the kind that pictures are: elements, attributes, text.
#pragma once
#include <string>

namespace dtensor::testing {

// "" when it is well-formed, else what is wrong and where.
std::string xml_error(const std::string& text);

// How often `part` occurs.
int occurrences(const std::string& text, const std::string& part);

}  // namespace dtensor::testing
