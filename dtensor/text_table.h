// SPDX-License-Identifier: Apache-2.0
// Formats text in aligned columns.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor {

// `align` has one letter per column: 'l' aligns left (words), 'r' right
// (numbers).
//
//   TextTable t("lr", {"name", "bytes"});
//   t.add({"weight", "4096"});
//   std::fputs(t.to_string().c_str(), stdout);
class TextTable {
 public:
  // REQUIRES: one letter and one title per column.
  TextTable(std::string_view align, std::vector<std::string> titles);
  // REQUIRES: one text per column.
  void add(std::vector<std::string> row);
  // A title line and a line per row. Lines end in a newline, without trailing
  // spaces.
  std::string to_string() const;

 private:
  std::string align_;
  std::vector<std::vector<std::string>> rows_;  // the first row has the titles
};

// Returns the number with commas, such as "1,234,567".
std::string grouped(int64_t);

}  // namespace dtensor
