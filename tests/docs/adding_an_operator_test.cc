// What docs/adding_an_operator.md shows is what is compiled: each of its
// snippets stands word for word in the file that is named before it.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The source file in a line that ends with `path`: and introduces a snippet.
std::string named_in(const std::string& line) {
  const size_t to = line.rfind("`:");
  if (to == line.npos || to + 2 != line.size()) return "";
  const std::string path = line.substr(line.rfind('`', to - 1) + 1,
                                       to - line.rfind('`', to - 1) - 1);
  return path.ends_with(".h") || path.ends_with(".cc") ? path : "";
}

TEST(AddingAnOperator, ShowsWhatIsCompiled) {
  std::istringstream doc(read("docs/adding_an_operator.md"));
  std::string file, snippet;
  bool inside = false;
  int snippets = 0;
  for (std::string line; std::getline(doc, line);) {
    if (line == "```cpp") {
      inside = true;
      snippet.clear();
    } else if (inside && line == "```") {
      inside = false;
      ++snippets;
      ASSERT_FALSE(snippet.empty());
      EXPECT_NE(read(file).find(snippet), std::string::npos)
          << file << " has no\n"
          << snippet;
    } else if (inside) {
      snippet += line + "\n";
    } else if (const std::string named = named_in(line); !named.empty()) {
      file = named;
    }
  }
  EXPECT_FALSE(inside);
  EXPECT_GE(snippets, 15);
}

}  // namespace
