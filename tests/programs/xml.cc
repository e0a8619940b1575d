// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/xml.h"

#include <cctype>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
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

  // Skips text up to one of `ends`. Returns false at a character that may not
  // be there.
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

struct Text {
  std::string text;
  double left, top, right, bottom;
};

// The value of an attribute of the element that begins at `at`.
std::string attribute(const std::string& svg, size_t at, const char* name) {
  const size_t end = svg.find('>', at);
  const std::string start = std::string(" ") + name + "=\"";
  const size_t found = svg.find(start, at);
  if (found > end) return "";
  const size_t begin = found + start.size();
  return svg.substr(begin, svg.find('"', begin) - begin);
}

double number(const std::string& svg, size_t at, const char* name) {
  const std::string text = attribute(svg, at, name);
  return text.empty() ? 0 : std::stod(text);
}

// A text of the picture, and a box around it. In any font, its letters take no
// more.
Text text_at(const std::string& svg, size_t at) {
  const size_t begin = svg.find('>', at) + 1;
  Text t{svg.substr(begin, svg.find('<', begin) - begin), 0, 0, 0, 0};
  double letters = 0;
  bool entity = false;
  for (const char c : t.text) {
    if (c == '&') entity = true;
    letters += !entity && (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    if (c == ';') entity = false;
  }
  const double size = number(svg, at, "font-size"), width = size / 2 * letters;
  const std::string anchor = attribute(svg, at, "text-anchor");
  const double before = anchor == "end"      ? width
                        : anchor == "middle" ? width / 2
                                             : 0;
  double x = number(svg, at, "x"), y = number(svg, at, "y");
  if (const std::string up = attribute(svg, at, "transform"); !up.empty()) {
    std::sscanf(up.c_str(), "translate(%lf %lf)", &x, &y);
    t.left = x - size * 0.7, t.right = x;
    t.top = y + before - width, t.bottom = y + before;
  } else {
    t.left = x - before, t.right = x - before + width;
    t.top = y - size * 0.7, t.bottom = y;
  }
  return t;
}

}  // namespace

std::string xml_error(const std::string& text) { return Reader(text).error(); }

std::string picture_error(const std::string& svg) {
  if (const std::string error = xml_error(svg); !error.empty()) return error;
  const size_t root = svg.find("<svg ");
  const double width = number(svg, root, "width"),
               height = number(svg, root, "height");
  std::vector<Text> texts;
  for (size_t at = svg.find("<text "); at != svg.npos;
       at = svg.find("<text ", at + 1)) {
    const Text t = text_at(svg, at);
    if (t.left < 0 || t.top < 0 || t.right > width || t.bottom > height)
      return "'" + t.text + "' lies outside";
    for (const Text& o : texts)
      if (t.left < o.right && o.left < t.right && t.top < o.bottom &&
          o.top < t.bottom)
        return "'" + t.text + "' lies on '" + o.text + "'";
    texts.push_back(t);
  }
  return texts.empty() ? "no text" : "";
}

int occurrences(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != text.npos;
       at = text.find(part, at + part.size()))
    ++n;
  return n;
}

}  // namespace dtensor::testing
