// SPDX-License-Identifier: Apache-2.0
// Checks XML of the kind that pictures consist of: elements, attributes, text.
#pragma once
#include <string>

namespace dtensor::testing {

// "" if the text is well-formed XML; otherwise what is wrong, and where.
std::string xml_error(const std::string& text);

// "" if an SVG file is well-formed, and has texts, which lie within it and do
// not overlap; otherwise what is wrong.
std::string picture_error(const std::string& svg);

// How many times `part` occurs in `text`.
int occurrences(const std::string& text, const std::string& part);

}  // namespace dtensor::testing
