// SPDX-License-Identifier: Apache-2.0
#include "programs/report/plan_svg.h"

#include <fmt/format.h>

#include <algorithm>

#include "dtensor/text_table.h"
#include "programs/report/flow_matrix.h"
#include "programs/report/holding.h"
#include "programs/report/rank_groups.h"
#include "programs/report/svg.h"

namespace dtensor::report {
namespace {

constexpr double kWidth = 1180, kMargin = 30;
constexpr double kPanel = 250;  // a tensor's width, and its largest height
constexpr double kLeast = 56;   // a tensor's smallest height
constexpr double kTicks = 48, kArrow = 70;  // left of a tensor; between tensors
constexpr std::string_view kGrey = "#68727f";

std::string range(int dim, int64_t lo, int64_t hi) {
  return fmt::format("dimension {}: {} to {}", dim, lo, hi);
}

class Picture {
 public:
  explicit Picture(const PlanReport& report)
      : report_(report),
        view_(choose_view(report.from, report.to)),
        groups_(report.ranks),
        svg_(kWidth, "redistribution of " + report.from->to_string() + " to " +
                         report.to->to_string()) {}

  std::string draw() {
    header();
    legend();
    const std::vector<Step>& steps = report_.plan.steps;
    if (steps.empty())
      block("nothing to do", report_.from, "before", report_.to, "after", {});
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string before =
          i == 0 ? "before" : fmt::format("after step {}", i);
      const std::string after =
          i + 1 == steps.size() ? "after" : fmt::format("after step {}", i + 1);
      block(step_text(i), steps[i].from, before, steps[i].to, after, i);
    }
    notes();
    return svg_.finish(y_ + kMargin - 10);
  }

 private:
  bool across() const { return !(report_.from->mesh() == report_.to->mesh()); }

  void header() {
    const Spec *from = report_.from, *to = report_.to;
    y_ = kMargin + 14;
    svg_.text_within(kWidth - 2 * kMargin, kMargin, y_, 20,
                     fmt::format("{}{}: {} \xe2\x86\x92 {}",
                                 name(from->dtype()), to_string(from->shape()),
                                 from->layout().to_string(from->mesh()),
                                 to->layout().to_string(to->mesh())),
                     R"(font-weight="bold")");
    y_ += 24;
    svg_.text_within(kWidth - 2 * kMargin, kMargin, y_, 13,
                     "mesh " + from->mesh().to_string() +
                         (across() ? " \xe2\x86\x92 " + to->mesh().to_string()
                                   : std::string()),
                     fmt::format(R"(fill="{}")", kGrey));
    y_ += 20;
    std::string text = fmt::format("a rank receives at most {} bytes",
                                   grouped(report_.plan.bytes));
    if (report_.lower_bound && report_.plan.bytes != *report_.lower_bound)
      text += fmt::format(", {} of {}", ratio_to_bound(report_),
                          grouped(*report_.lower_bound));
    else if (report_.lower_bound)
      text += ", " + ratio_to_bound(report_);
    if (report_.bytes_sent)
      text +=
          fmt::format(", and sends at most {}", grouped(*report_.bytes_sent));
    text += fmt::format("; it holds at most {} bytes; {:.3f} us",
                        grouped(report_.plan.peak_bytes),
                        static_cast<double>(report_.plan.time_ps) / 1e6);
    svg_.text_within(kWidth - 2 * kMargin, kMargin, y_, 13, text);
    y_ += 26;
  }

  void legend() {
    const auto coordinates = [](const Mesh& mesh, int64_t world_rank) {
      const int64_t rank = mesh.mesh_rank_of(world_rank);
      if (rank < 0) return std::string("-");
      std::string text;
      for (int a = 0; a < mesh.num_axes(); ++a)
        text += (a ? "," : "") + std::to_string(mesh.coordinate(rank)[a]);
      return "(" + text + ")";
    };
    const auto names = [](const Mesh& mesh) {
      return "(" + mesh.axes_to_string(mesh.all_axes()) + ")";
    };
    const Mesh &from = report_.from->mesh(), &to = report_.to->mesh();
    std::vector<std::string> texts;
    for (size_t g = 0; g < groups_.size(); ++g) {
      texts.push_back(groups_.text(g));
      if (groups_.shared()) continue;
      const int64_t rank = report_.ranks[g];
      texts.back() += " " + coordinates(from, rank);
      if (across()) texts.back() += "\xe2\x86\x92" + coordinates(to, rank);
    }
    std::string title = "ranks";
    if (!groups_.shared())
      title += " " + names(from) + (across() ? "\xe2\x86\x92" + names(to) : "");
    double step = 0;
    for (const std::string& t : texts)
      step = std::max(step, text_width(t, 11) + 34);
    svg_.text(kMargin, y_, 11, title, fmt::format(R"(fill="{}")", kGrey));
    const double left = kMargin + text_width(title, 11) + 16;
    double x = left;
    for (size_t g = 0; g < groups_.size(); ++g, x += step) {
      if (x + step > kWidth - kMargin && x > left) {
        x = left;
        y_ += 18;
      }
      svg_.rect(x, y_ - 10, 12, 12,
                fmt::format(R"(rx="2" fill="{}")", groups_.colour(g)));
      svg_.text(x + 17, y_, 11, texts[g]);
    }
    y_ += 14;
  }

  std::string step_text(size_t i) const {
    const Step& s = report_.plan.steps[i];
    std::string text =
        report_.plan.steps.size() > 1
            ? fmt::format("step {} of {}: ", i + 1, report_.plan.steps.size())
            : std::string();
    text += name(s.kind);
    if (!sends(s.kind)) return text + ", nothing is sent";
    text += s.axes ? " over " + s.from->mesh().axes_to_string(s.axes)
                   : " between the meshes";
    return text + fmt::format(", at most {} bytes to a rank, {:.3f} us",
                              grouped(s.bytes),
                              static_cast<double>(report_.step_ps[i]) / 1e6);
  }

  // Draws a step; or the whole plan if it has no steps, and `step` is nullopt.
  void block(const std::string& title, const Spec* from,
             const std::string& before, const Spec* to,
             const std::string& after, std::optional<size_t> step) {
    y_ += 12;
    svg_.line(kMargin, y_, kWidth - kMargin, y_, R"(stroke="#d8dde3")");
    y_ += 22;
    svg_.text_within(kWidth - 2 * kMargin, kMargin, y_, 14, title,
                     R"(font-weight="bold")");
    y_ += 24;
    const double top = y_;
    const double first = kMargin + kTicks,
                 second = first + kPanel + kArrow + kTicks;
    const double height = tensor_height();
    tensor(first, top, height, from, before);
    tensor(second, top, height, to, after);
    const double arrow = first + kPanel + 14, middle = top + 34 + height / 2;
    svg_.line(arrow, middle, arrow + 44, middle,
              R"(stroke="#39424e" stroke-width="3")");
    svg_.polygon(
        fmt::format("{0:.1f},{1:.1f} {2:.1f},{3:.1f} {2:.1f},{4:.1f}",
                    arrow + 56, middle, arrow + 42, middle - 8, middle + 8),
        R"(fill="#39424e")");
    double bottom = top + 34 + height + 24;
    if (step && sends(report_.plan.steps[*step].kind)) {
      const double x = second + kPanel + 40;
      if (report_.has_flows)
        bottom = std::max(bottom, flow_matrix(x, top, report_.flows[*step]));
      else
        svg_.text(
            x, top + 40, 12,
            fmt::format("The bytes between ranks are not drawn for {} "
                        "ranks.",
                        grouped(static_cast<int64_t>(report_.ranks.size()))),
            fmt::format(R"(fill="{}")", kGrey));
    }
    y_ = bottom;
  }

  double tensor_height() const {
    if (view_.rows < 0) return kLeast;
    const auto rows = static_cast<double>(report_.from->shape()[view_.rows]);
    const auto columns =
        static_cast<double>(report_.from->shape()[view_.columns]);
    if (columns == 0) return kLeast;
    return std::clamp(kPanel * rows / columns, 2 * kLeast, kPanel);
  }

  // Calls at(position, text) for the numbers along a side. room(text) is the
  // length that a number takes. Leaves out numbers that would overlap others.
  template <class Room, class At>
  static void ticks(const std::vector<int64_t>& cuts, double length,
                    Room&& room, At&& at) {
    if (cuts.back() == 0) return;
    const auto place = [&](int64_t cut) {
      return length * static_cast<double>(cut) /
             static_cast<double>(cuts.back());
    };
    const std::string last = std::to_string(cuts.back());
    double taken = -1e9;
    for (int64_t cut : cuts) {
      const std::string text = std::to_string(cut);
      const double x = place(cut), half = room(text) / 2;
      if (x - half < taken) continue;
      if (cut != cuts.back() && x + half > length - room(last) / 2) continue;
      at(x, text);
      taken = x + half;
    }
  }

  void tensor(double x, double y, double height, const Spec* spec,
              const std::string& title) {
    svg_.text_within(kPanel + 40, x, y, 12,
                     title + ": " + spec->layout().to_string(spec->mesh()));
    y += 34;
    const Holding h = holding(spec, view_);
    const std::string grey =
        fmt::format(R"(fill="{}" text-anchor="middle")", kGrey);
    if (view_.columns >= 0) {
      ticks(
          h.columns, kPanel,
          [](const std::string& t) { return text_width(t, 9) + 5; },
          [&](double at, const std::string& t) {
            svg_.text(x + at, y - 5, 9, t, grey);
          });
      svg_.text(x + kPanel / 2, y + height + 15, 10,
                fmt::format("dimension {}", view_.columns), grey);
    }
    if (view_.rows >= 0) {
      ticks(
          h.rows, height, [](const std::string&) { return 12.0; },
          [&](double at, const std::string& t) {
            svg_.text(x - 5, y + at + 3, 9, t,
                      fmt::format(R"(fill="{}" text-anchor="end")", kGrey));
          });
      svg_.text_up(x - 38, y + height / 2, 10,
                   fmt::format("dimension {}", view_.rows), grey);
    }
    boxes(x, y, height, spec, h);
    sampled_ |= h.sampled;
    svg_.rect(x, y, kPanel, height,
              R"(fill="none" stroke="#39424e" stroke-width="1.2")");
    if (numel(spec->shape()) == 0)
      svg_.text(x + kPanel / 2, y + height / 2 + 4, 11, "no elements", grey);
  }

  void boxes(double x, double y, double height, const Spec* spec,
             const Holding& h) {
    if (h.holders.empty()) return;
    const auto place = [](const std::vector<int64_t>& cuts, size_t i,
                          double length) {
      return length * static_cast<double>(cuts[i]) /
             static_cast<double>(cuts.back());
    };
    for (size_t r = 0; r + 1 < h.rows.size(); ++r)
      for (size_t c = 0; c + 1 < h.columns.size(); ++c) {
        const std::vector<int64_t>& holders = h.at(r, c);
        const double left = x + place(h.columns, c, kPanel),
                     top = y + place(h.rows, r, height),
                     w = x + place(h.columns, c + 1, kPanel) - left,
                     tall = y + place(h.rows, r + 1, height) - top;
        const std::string text =
            holders.empty() ? "none" : holders_text(spec, holders);
        std::string tip = "ranks " + text;
        if (view_.columns >= 0)
          tip += "\n" + range(view_.columns, h.columns[c], h.columns[c + 1]);
        if (view_.rows >= 0)
          tip += "\n" + range(view_.rows, h.rows[r], h.rows[r + 1]);
        const bool edge = std::min(w, tall) >= 5;
        svg_.rect(
            left, top, w, tall,
            fmt::format(R"(fill="{}" {})", fill(spec, holders),
                        edge ? R"(stroke="#ffffff" stroke-width="1.5")" : ""),
            tip);
        label(left, top, w, tall, text,
              spec->partial_axes() ? "parts" : "ranks", holders.size());
      }
  }

  std::string fill(const Spec* spec, const std::vector<int64_t>& holders) {
    std::vector<size_t> groups;
    for (int64_t r : holders)
      groups.push_back(groups_.of(spec->mesh().world_rank(r)));
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    if (groups.empty()) return "#ffffff";
    if (groups.size() == 1) return groups_.colour(groups[0]);
    const bool partial = spec->partial_axes() != 0;
    (partial ? partial_ : striped_) = true;
    std::string colours;
    for (size_t g : groups)
      colours += (colours.empty() ? "" : " ") + groups_.colour(g) +
                 (partial ? " #ffffff" : "");
    return svg_.stripes(colours, partial ? 4 : 9, partial ? 0 : 45);
  }

  void label(double x, double y, double w, double h, const std::string& text,
             std::string_view what, size_t holders) {
    const double size = std::clamp(h * 0.6, 8.0, 12.0);
    std::string shown = text;
    if (text_width(shown, size) + 6 > w)
      shown = fmt::format("{} {}", holders, what);
    const double wide = text_width(shown, size) + 6;
    if (h < size + 2 || wide > w || holders == 0) return;
    if (holders > 1)
      svg_.rect(x + w / 2 - wide / 2, y + h / 2 - size * 0.65, wide, size * 1.3,
                R"(rx="3" fill="#ffffff" fill-opacity="0.85")");
    svg_.text(x + w / 2, y + h / 2 + size * 0.36, size, shown,
              R"(text-anchor="middle")");
  }

  double flow_matrix(double x, double y, const std::vector<Flow>& flows) {
    const FlowMatrix matrix = draw_flow_matrix(svg_, x, y, flows, groups_);
    keeps_ |= matrix.keeps;
    return matrix.bottom;
  }

  void notes() {
    std::vector<std::string> notes;
    if (report_.from->ndim() > 2)
      notes.push_back(fmt::format(
          "The tensor has {} dimensions; {} and {} are drawn, at index 0 of "
          "the others.",
          report_.from->ndim(), view_.rows, view_.columns));
    if (striped_) notes.push_back("Striped: several ranks hold this part.");
    if (partial_)
      notes.push_back(
          "Striped with white: each rank holds a partial value; the label says "
          "how they combine (0 + 1: the sum of the values of ranks 0 and 1).");
    if (keeps_) notes.push_back("Hatched grey: bytes that a rank keeps.");
    if (sampled_)
      notes.push_back(
          "There are too many boxes to draw: each square shows the ranks that "
          "hold its first index.");
    if (groups_.shared())
      notes.push_back(
          "Neighbouring ranks share a colour, and the bytes that they send are "
          "summed.");
    if (report_.plan.chunks > 1)
      notes.push_back(
          fmt::format("Carried out on {} parts of the tensor, one by one.",
                      report_.plan.chunks));
    y_ += 8;
    for (const std::string& note : notes) {
      y_ += 16;
      svg_.text(kMargin, y_, 11, note, fmt::format(R"(fill="{}")", kGrey));
    }
  }

  const PlanReport& report_;
  const View view_;
  const RankGroups groups_;
  Svg svg_;
  double y_ = 0;  // where the next element is drawn
  bool striped_ = false, partial_ = false, keeps_ = false, sampled_ = false;
};

}  // namespace

std::string plan_svg(const PlanReport& report) {
  return Picture(report).draw();
}

}  // namespace dtensor::report
