// SPDX-License-Identifier: Apache-2.0
// Writes SVG pictures: shapes, text that fits, and distinguishable colours.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::report {

// Builds one picture. Lengths are in pixels, and y grows downwards. `style` is
// a list of attributes: R"(fill="#fff" stroke="#000")".
class Svg {
 public:
  // Screen readers read `title` aloud.
  Svg(double width, std::string_view title);

  // `tip`, also of circle(), is shown under the mouse pointer; "": no tip.
  void rect(double x, double y, double width, double height,
            std::string_view style, std::string_view tip = "");
  void circle(double x, double y, double radius, std::string_view style,
              std::string_view tip = "");
  void line(double x0, double y0, double x1, double y1, std::string_view style);
  // `points` is like "0,0 10,5": the corners of a line or of an area.
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
  // Returns a value for `fill`: stripes of these colours, each `width` wide,
  // turned by so many degrees. Equal calls share one definition.
  std::string stripes(std::string_view colours, double width, double degrees);

  // Returns the file's content.
  std::string finish(double height) const;

 private:
  double width_;
  std::string title_, definitions_, body_;
  std::vector<std::string> stripes_;  // the arguments of each definition
};

// The approximate width of a text in a font of this size.
double text_width(std::string_view text, double size);

// Colour i of n colours that can be told apart, light enough for black text:
// "#a0c4ff".
std::string colour(int64_t i, int64_t n);
// A shade from white at 0 to dark blue at 1, and the colour of text that is
// readable on it.
std::string shade(double x);
std::string text_on_shade(double x);

// A number of bytes as a short text: "1.5 KiB".
std::string short_bytes(int64_t);

}  // namespace dtensor::report
