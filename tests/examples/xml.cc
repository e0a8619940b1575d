#include "tests/examples/xml.h"

#include <cctype>
#include <cstring>
#include <set>
#include <vector>

namespace dtensor::testing {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  std::string error() {
    if (skip("<?xml") && !skip_to("?>")) return wrong("an endless head");
    bool root = false;
    while (at_ < text_.size()) {
      if (text_[at_] != '<') {
        if (!characters("<")) return wrong("a bad character or entity");
      } else if (skip("</")) {
        const std::string name = word();
        if (open_.empty() || open_.back() != name || !skip(">"))
          return wrong("an end of " + name + " that is not open");
        open_.pop_back();
      } else {
        if (open_.empty() && root) return wrong("a second root");
        root = true;
        if (std::string e = element(); !e.empty()) return wrong(e);
      }
    }
    if (!open_.empty()) return wrong("no end of " + open_.back());
    return root ? "" : "no element";
  }

 private:
  std::string element() {
    ++at_;
    const std::string name = word();
    if (name.empty()) return "an element without a name";
    std::set<std::string> names;
    for (;;) {
      const bool space = spaces();
      if (skip("/>")) return "";
      if (skip(">")) {
        open_.push_back(name);
        return "";
      }
      const std::string attribute = word();
      if (!space || attribute.empty() || !skip("=\""))
        return "a bad attribute of " + name;
      if (!names.insert(attribute).second)
        return name + " has " + attribute + " twice";
      if (!characters("\"") || !skip("\""))
        return "a bad value of " + attribute;
    }
  }

  // Text up to one of `ends`; false at what may not be there.
  bool characters(const char* ends) {
    while (at_ < text_.size() && !std::strchr(ends, text_[at_])) {
      const char c = text_[at_];
      if (c == '<' || (static_cast<unsigned char>(c) < ' ' && c != '\n'))
        return false;
      if (c == '&' && !skip("&lt;") && !skip("&gt;") && !skip("&amp;") &&
          !skip("&quot;"))
        return false;
      if (c != '&') ++at_;
    }
    return true;
  }

  std::string word() {
    std::string w;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
            std::strchr("-:_", text_[at_])))
      w += text_[at_++];
    return w;
  }

  bool spaces() {
    const size_t start = at_;
    while (at_ < text_.size() && std::strchr(" \n", text_[at_])) ++at_;
    return at_ > start;
  }

  bool skip(const std::string& what) {
    if (text_.compare(at_, what.size(), what) != 0) return false;
    at_ += what.size();
    return true;
  }

  bool skip_to(const std::string& what) {
    at_ = text_.find(what, at_);
    if (at_ == text_.npos) return false;
    at_ += what.size();
    return true;
  }

  std::string wrong(const std::string& what) const {
    return what + " at " + std::to_string(at_) + ": " + text_.substr(at_, 80);
  }

  const std::string& text_;
  size_t at_ = 0;
  std::vector<std::string> open_;
};

}  // namespace

std::string xml_error(const std::string& text) { return Reader(text).error(); }

int occurrences(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != text.npos;
       at = text.find(part, at + part.size()))
    ++n;
  return n;
}

}  // namespace dtensor::testing
