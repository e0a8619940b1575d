// SPDX-License-Identifier: Apache-2.0
// Is a text XML? Of the kind that pictures are: elements, attributes, text.
#pragma once
#include <string>

namespace dtensor::testing {

// "" when it is well-formed, else what is wrong and where.
std::string xml_error(const std::string& text);

// "" when an SVG file is well-formed, and its texts lie within it and on no
// other text; else what is wrong.
std::string picture_error(const std::string& svg);

// How often `part` occurs.
int occurrences(const std::string& text, const std::string& part);

}  // namespace dtensor::testing
