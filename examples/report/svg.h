// Pictures as SVG text: shapes, text that fits, and colours that differ.
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
  // `title` is what a reader who cannot see is told.
  Svg(double width, std::string_view title);

  // `tip` (here and below) is shown where the mouse rests; "" for none.
  void rect(double x, double y, double width, double height,
            std::string_view style, std::string_view tip = "");
  void circle(double x, double y, double radius, std::string_view style,
              std::string_view tip = "");
  void line(double x0, double y0, double x1, double y1, std::string_view style);
  // `points` as in "0,0 10,5": through or around them.
  void polyline(std::string_view points, std::string_view style);
  void polygon(std::string_view points, std::string_view style);
  // y is the baseline. `style` may set text-anchor and fill.
  void text(double x, double y, double size, std::string_view text,
            std::string_view style = "");
  // The same, upwards from the bottom.
  void text_up(double x, double y, double size, std::string_view text,
               std::string_view style = "");
  // As text(), smaller (and then cut) where it would be wider than `width`.
  void text_within(double width, double x, double y, double size,
                   std::string_view text, std::string_view style = "");
  // Stripes of these colours, side by side, at an angle: a value for `fill`.
  // Equal ones are one.
  std::string stripes(std::string_view colours, double width, double degrees);

  // The file's content.
  std::string finish(double height) const;

 private:
  double width_;
  std::string title_, definitions_, body_;
  std::vector<std::string> stripes_;  // what each is made of
};

// About the width of text in that size.
double text_width(std::string_view text, double size);

// The i-th of n colours that differ, light enough for black text: "#a0c4ff".
std::string colour(int64_t i, int64_t n);
// White at 0 to dark blue at 1; black or white text is readable on it.
std::string shade(double x);
std::string text_on_shade(double x);

// "1.5 KiB": short.
std::string short_bytes(int64_t);

}  // namespace dtensor::report
