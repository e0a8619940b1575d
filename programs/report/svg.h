// SPDX-License-Identifier: Apache-2.0
// Writes SVG pictures: shapes, text that fits, and distinguishable colours.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::report {

// Lengths are in pixels, y grows downwards. `style` is a list of attributes:
// R"(fill="#fff" stroke="#000")".
class Svg {
 public:
  // `title` is read aloud by screen readers.
  Svg(double width, std::string_view title);

  // `tip` (here and below) is shown under the mouse pointer; "" for none.
  void rect(double x, double y, double width, double height,
            std::string_view style, std::string_view tip = "");
  void circle(double x, double y, double radius, std::string_view style,
              std::string_view tip = "");
  void line(double x0, double y0, double x1, double y1, std::string_view style);
  // `points` is like "0,0 10,5"; the line goes through them, or around them.
  void polyline(std::string_view points, std::string_view style);
  void polygon(std::string_view points, std::string_view style);
  // y is the baseline. `style` may set text-anchor and fill.
  void text(double x, double y, double size, std::string_view text,
            std::string_view style = "");
  // Like text(), but written upwards.
  void text_up(double x, double y, double size, std::string_view text,
               std::string_view style = "");
  // Like text(), but made smaller, and then cut, if it would be wider than
  // `width`.
  void text_within(double width, double x, double y, double size,
                   std::string_view text, std::string_view style = "");
  // A value for `fill`: stripes of these colours, `width` wide, at an angle.
  // Equal calls share one definition.
  std::string stripes(std::string_view colours, double width, double degrees);

  // The file's content.
  std::string finish(double height) const;

 private:
  double width_;
  std::string title_, definitions_, body_;
  std::vector<std::string> stripes_;  // the arguments of each
};

// The approximate width of text in a size.
double text_width(std::string_view text, double size);

// Colour i of n distinguishable ones, light enough for black text: "#a0c4ff".
std::string colour(int64_t i, int64_t n);
// A shade from white at 0 to dark blue at 1, and the colour of text that is
// readable on it.
std::string shade(double x);
std::string text_on_shade(double x);

// A short text: "1.5 KiB".
std::string short_bytes(int64_t);

}  // namespace dtensor::report
