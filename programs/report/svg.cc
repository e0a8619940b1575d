// SPDX-License-Identifier: Apache-2.0
#include "programs/report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace dtensor::report {
namespace {

// Whether a byte begins a UTF-8 character; continuation bytes do not.
bool begins_letter(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

std::string escape(std::string_view text) {
  std::string out;
  for (char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  return out;
}

std::string tooltip(std::string_view element, std::string_view tip) {
  if (tip.empty()) return "/>\n";
  return fmt::format("><title>{}</title></{}>\n", escape(tip), element);
}

// Encodes one channel of linear light for sRGB, from 0 to 255.
int channel(double light) {
  light = std::clamp(light, 0.0, 1.0);
  const double x = light <= 0.0031308
                       ? 12.92 * light
                       : 1.055 * std::pow(light, 1 / 2.4) - 0.055;
  return static_cast<int>(std::lround(255 * x));
}

// Converts OKLCH to "#rrggbb". In OKLCH, colours of equal lightness look
// equally light in every hue.
std::string oklch(double lightness, double chroma, double degrees) {
  const double hue = degrees * std::numbers::pi / 180;
  const double a = chroma * std::cos(hue), b = chroma * std::sin(hue);
  const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
  const double m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
  const double s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
  return fmt::format(
      "#{:02x}{:02x}{:02x}",
      channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
      channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
      channel(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s));
}

}  // namespace

Svg::Svg(double width, std::string_view title) : width_(width), title_(title) {}

void Svg::rect(double x, double y, double width, double height,
               std::string_view style, std::string_view tip) {
  body_ += fmt::format(
      R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" {})", x, y,
      width, height, style);
  body_ += tooltip("rect", tip);
}

void Svg::circle(double x, double y, double radius, std::string_view style,
                 std::string_view tip) {
  body_ += fmt::format(R"(<circle cx="{:.2f}" cy="{:.2f}" r="{:.2f}" {})", x, y,
                       radius, style);
  body_ += tooltip("circle", tip);
}

void Svg::line(double x0, double y0, double x1, double y1,
               std::string_view style) {
  body_ += fmt::format(
      R"(<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}" {}/>)"
      "\n",
      x0, y0, x1, y1, style);
}

void Svg::polyline(std::string_view points, std::string_view style) {
  body_ += fmt::format("<polyline points=\"{}\" fill=\"none\" {}/>\n", points,
                       style);
}

void Svg::polygon(std::string_view points, std::string_view style) {
  body_ += fmt::format("<polygon points=\"{}\" {}/>\n", points, style);
}

void Svg::text(double x, double y, double size, std::string_view text,
               std::string_view style) {
  body_ += fmt::format(
      R"(<text x="{:.2f}" y="{:.2f}" font-size="{:.2f}" {}>{}</text>)"
      "\n",
      x, y, size, style, escape(text));
}

void Svg::text_up(double x, double y, double size, std::string_view text,
                  std::string_view style) {
  this->text(
      0, 0, size, text,
      fmt::format("{} transform=\"translate({:.2f} {:.2f}) rotate(-90)\"",
                  style, x, y));
}

void Svg::text_within(double width, double x, double y, double size,
                      std::string_view text, std::string_view style) {
  constexpr double kSmallest = 8;
  const double full = text_width(text, 1);
  if (full * size > width) size = std::max(kSmallest, width / full);
  std::string shown(text);
  while (text_width(shown, size) > width && shown.size() > 4) {
    shown.resize(shown.size() - 4);
    while (!shown.empty() && !begins_letter(text[shown.size()]))
      shown.pop_back();
    shown += "...";
  }
  this->text(x, y, size, shown, style);
}

std::string Svg::stripes(std::string_view colours, double width,
                         double degrees) {
  std::string made_of = fmt::format("{} {} {}", colours, width, degrees);
  const auto known = std::find(stripes_.begin(), stripes_.end(), made_of);
  const std::string id = fmt::format("stripes{}", known - stripes_.begin());
  if (known != stripes_.end()) return "url(#" + id + ")";
  stripes_.push_back(std::move(made_of));
  std::string bars;
  double x = 0;
  for (size_t at = 0; at < colours.size(); x += width) {
    const size_t end = std::min(colours.find(' ', at), colours.size());
    bars += fmt::format(
        R"(<rect x="{:.2f}" y="0" width="{:.2f}" height="10" fill="{}"/>)", x,
        width + 0.3, colours.substr(at, end - at));
    at = end + 1;
  }
  definitions_ += fmt::format(
      "<pattern id=\"{}\" patternUnits=\"userSpaceOnUse\" width=\"{:.2f}\" "
      "height=\"10\" patternTransform=\"rotate({:g})\">{}</pattern>\n",
      id, x, degrees, bars);
  return "url(#" + id + ")";
}

std::string Svg::finish(double height) const {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" )"
      R"(height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" role="img" )"
      R"(font-family="DejaVu Sans, Verdana, sans-serif" fill="#1c2430">)"
      "\n<title>{2}</title>\n<defs>\n{3}</defs>\n"
      R"(<rect width="{0:.0f}" height="{1:.0f}" fill="#ffffff"/>)"
      "\n{4}</svg>\n",
      width_, height, escape(title_), definitions_, body_);
}

double text_width(std::string_view text, double size) {
  const auto letters = std::count_if(text.begin(), text.end(), begins_letter);
  return 0.62 * size * static_cast<double>(letters);
}

std::string colour(int64_t i, int64_t n) {
  // Neighbours in a long list differ in lightness as well.
  const double lightness = n <= 8 ? 0.8 : i % 2 ? 0.7 : 0.86;
  return oklch(lightness, 0.11,
               30 + 360.0 * static_cast<double>(i) / static_cast<double>(n));
}

std::string shade(double x) {
  const double t = std::clamp(x, 0.0, 1.0);
  return oklch(1 - 0.6 * t, 0.15 * std::min(1.0, 1.6 * t), 255);
}

std::string text_on_shade(double x) { return x > 0.5 ? "#ffffff" : "#1c2430"; }

std::string short_bytes(int64_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double x = static_cast<double>(bytes);
  size_t unit = 0;
  // {:.3g} would print 999.5 and more as 1e+03.
  for (; x >= 999.5 && unit + 1 < units.size(); ++unit) x /= 1024;
  return fmt::format("{:.3g} {}", x, units[unit]);
}

}  // namespace dtensor::report
