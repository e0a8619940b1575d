// Aligned columns of text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor {

// Numbers are to be read from the right, words from the left: `align` has one
// letter per column, 'l' or 'r'.
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
  // A title line and a line per row, each ending in a newline, without spaces
  // at the end of a line.
  std::string to_string() const;

 private:
  std::string align_;
  std::vector<std::vector<std::string>> rows_;  // the titles first
};

// "1,234,567".
std::string grouped(int64_t);

}  // namespace dtensor
