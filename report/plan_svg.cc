#include "report/plan_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "dtensor/runtime/text_table.h"
#include "report/svg.h"

namespace dtensor::report {
namespace {

constexpr double kWidth = 1180, kMargin = 30;
constexpr double kPanel = 250;              // a tensor's width, and most height
constexpr double kLeast = 56;               // its least height
constexpr double kTicks = 48, kArrow = 70;  // left of a tensor; between two
constexpr double kMatrix = 264;             // most width of who sends whom
constexpr size_t kMostColours = 16;         // ranks beyond share them
constexpr size_t kMostCuts = 64;            // of a dimension that is drawn
constexpr std::string_view kGrey = "#68727f";

// The dimensions down and across; -1: none.
struct View {
  int rows = -1, columns = -1;
};

View choose_view(const Spec* from, const Spec* to) {
  std::vector<int> dims;
  for (int d = 0; d < from->ndim(); ++d) dims.push_back(d);
  const auto interest = [&](int d) {
    const Dim &a = from->dim(d), &b = to->dim(d);
    const bool moves = !(a == b) || !(from->mesh() == to->mesh());
    return std::tuple(!(a.whole() && b.whole()), moves, from->shape()[d]);
  };
  std::stable_sort(dims.begin(), dims.end(),
                   [&](int a, int b) { return interest(a) > interest(b); });
  if (dims.empty()) return {};
  if (dims.size() == 1) return {-1, dims[0]};
  return {std::min(dims[0], dims[1]), std::max(dims[0], dims[1])};
}

// Who holds what of the two dimensions, at the first index of the others.
struct Holding {
  std::vector<int64_t> rows, columns;         // where the boxes begin, and n
  std::vector<std::vector<int64_t>> holders;  // mesh ranks, by row and column
  bool sampled = false;  // a box shows who holds its first index
  const std::vector<int64_t>& at(size_t r, size_t c) const {
    return holders[r * (columns.size() - 1) + c];
  }
};

IntervalList shown(const Region& region, int dim) {
  return dim < 0 ? IntervalList{{0, 1}} : region[static_cast<size_t>(dim)];
}

bool holds_first_of_others(const Region& region, const View& view) {
  for (int d = 0; d < static_cast<int>(region.size()); ++d) {
    if (d == view.rows || d == view.columns) continue;
    const IntervalList& list = region[static_cast<size_t>(d)];
    if (std::none_of(list.begin(), list.end(),
                     [](const Interval& i) { return i.lo == 0; }))
      return false;
  }
  return true;
}

Holding holding(const Spec* spec, const View& view) {
  Holding h;
  const auto size = [&](int dim) { return dim < 0 ? 1 : spec->shape()[dim]; };
  h.rows = {0, size(view.rows)};
  h.columns = {0, size(view.columns)};
  const Mesh& mesh = spec->mesh();
  std::vector<Region> regions;
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    regions.push_back(spec->region(mesh.coordinate(r)));
    if (!holds_first_of_others(regions.back(), view)) regions.back().clear();
  }
  const auto cut = [&](int dim, std::vector<int64_t>& cuts) {
    for (const Region& region : regions)
      if (!region.empty() && dim >= 0)
        for (const Interval& i : shown(region, dim)) {
          cuts.push_back(i.lo);
          cuts.push_back(i.hi);
        }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    if (cuts.size() <= kMostCuts + 1) return;
    h.sampled = true;
    const __int128 n = cuts.back();
    cuts.clear();
    for (size_t i = 0; i <= kMostCuts; ++i)
      cuts.push_back(static_cast<int64_t>(n * static_cast<__int128>(i) /
                                          static_cast<__int128>(kMostCuts)));
  };
  cut(view.rows, h.rows);
  cut(view.columns, h.columns);
  if (h.rows.size() < 2 || h.columns.size() < 2) return h;  // no elements
  h.holders.resize((h.rows.size() - 1) * (h.columns.size() - 1));
  const auto boxes = [](const std::vector<int64_t>& cuts, const Interval& i) {
    const auto first = std::lower_bound(cuts.begin(), cuts.end() - 1, i.lo);
    const auto last = std::lower_bound(cuts.begin(), cuts.end() - 1, i.hi);
    return std::pair(static_cast<size_t>(first - cuts.begin()),
                     static_cast<size_t>(last - cuts.begin()));
  };
  for (size_t rank = 0; rank < regions.size(); ++rank) {
    if (regions[rank].empty() && spec->ndim() > 0) continue;
    for (const Interval& down : shown(regions[rank], view.rows))
      for (const Interval& over : shown(regions[rank], view.columns)) {
        const auto [r0, r1] = boxes(h.rows, down);
        const auto [c0, c1] = boxes(h.columns, over);
        for (size_t r = r0; r < r1; ++r)
          for (size_t c = c0; c < c1; ++c)
            h.holders[r * (h.columns.size() - 1) + c].push_back(
                static_cast<int64_t>(rank));
      }
  }
  return h;
}

// "0-3 8".
std::string listed(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i == 2) end = i + 1;
    text += (text.empty() ? "" : " ") + std::to_string(ranks[i]);
    if (end - i > 1) text += "-" + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

// Ranks of the run: "0 4" hold the same, "0 + 4" what is still to be summed.
std::string holders_text(const Spec* spec,
                         const std::vector<int64_t>& mesh_ranks) {
  const Mesh& mesh = spec->mesh();
  std::map<std::vector<int32_t>, std::vector<int64_t>> terms;
  for (int64_t r : mesh_ranks) {
    std::vector<int32_t> term;
    for (const Partial& p : spec->layout().partials)
      term.push_back(mesh.coordinate(r)[p.axis]);
    terms[term].push_back(mesh.world_rank(r));
  }
  if (terms.size() == 1) return listed(terms.begin()->second);
  const auto& partials = spec->layout().partials;
  ReduceOp op = partials[0].op;
  bool one_op = true;
  for (const Partial& p : partials) one_op &= p.op == op;
  const bool sum = one_op && op == ReduceOp::kSum;
  std::string text;
  for (const auto& [coordinates, ranks] : terms) {
    if (!text.empty()) text += sum ? " + " : ", ";
    text += ranks.size() > 1 ? "(" + listed(ranks) + ")" : listed(ranks);
  }
  if (sum) return text;
  return (one_op ? std::string(name(op)) : "combine") + "(" + text + ")";
}

std::string range(int dim, int64_t lo, int64_t hi) {
  return fmt::format("dimension {}: {} to {}", dim, lo, hi);
}

class Picture {
 public:
  explicit Picture(const PlanReport& report)
      : report_(report),
        view_(choose_view(report.from, report.to)),
        groups_(std::min(report.ranks.size(), kMostColours)),
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
  size_t group_of(int64_t world_rank) const {
    const auto at =
        static_cast<size_t>(std::lower_bound(report_.ranks.begin(),
                                             report_.ranks.end(), world_rank) -
                            report_.ranks.begin());
    return at * groups_ / report_.ranks.size();
  }

  std::string colour_of(size_t group) const {
    return colour(static_cast<int64_t>(group), static_cast<int64_t>(groups_));
  }

  // "3", or "8-15".
  std::string group_text(size_t group) const {
    std::vector<int64_t> ranks;
    for (int64_t r : report_.ranks)
      if (group_of(r) == group) ranks.push_back(r);
    if (ranks.size() == 1) return std::to_string(ranks[0]);
    return fmt::format("{}-{}", ranks.front(), ranks.back());
  }

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
    for (size_t g = 0; g < groups_; ++g) {
      texts.push_back(group_text(g));
      if (groups_ < report_.ranks.size()) continue;
      const int64_t rank = report_.ranks[g];
      texts.back() += " " + coordinates(from, rank);
      if (across()) texts.back() += "\xe2\x86\x92" + coordinates(to, rank);
    }
    std::string title = "ranks";
    if (groups_ == report_.ranks.size())
      title += " " + names(from) + (across() ? "\xe2\x86\x92" + names(to) : "");
    double step = 0;
    for (const std::string& t : texts)
      step = std::max(step, text_width(t, 11) + 34);
    svg_.text(kMargin, y_, 11, title, fmt::format(R"(fill="{}")", kGrey));
    const double left = kMargin + text_width(title, 11) + 16;
    double x = left;
    for (size_t g = 0; g < groups_; ++g, x += step) {
      if (x + step > kWidth - kMargin && x > left) {
        x = left;
        y_ += 18;
      }
      svg_.rect(x, y_ - 10, 12, 12,
                fmt::format(R"(rx="2" fill="{}")", colour_of(g)));
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

  // A step, or the whole when there is none.
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
        bottom = std::max(bottom, matrix(x, top, report_.flows[*step]));
      else
        svg_.text(
            x, top + 40, 12,
            fmt::format("Who sends what to whom is not drawn for {} "
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

  // Numbers along a side, where there is room: at(position, text).
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
            holders.empty() ? "nobody" : holders_text(spec, holders);
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
      groups.push_back(group_of(spec->mesh().world_rank(r)));
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    if (groups.empty()) return "#ffffff";
    if (groups.size() == 1) return colour_of(groups[0]);
    const bool partial = spec->partial_axes() != 0;
    (partial ? partial_ : striped_) = true;
    std::string colours;
    for (size_t g : groups)
      colours += (colours.empty() ? "" : " ") + colour_of(g) +
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

  // Who sends whom how much; returns where it ends.
  double matrix(double x, double y, const std::vector<Flow>& flows) {
    std::vector<int64_t> bytes(groups_ * groups_, 0), kept(groups_, 0),
        sent(groups_, 0), received(groups_, 0);
    int64_t most = 0, most_sum = 0;
    for (const Flow& f : flows) {
      const size_t a = group_of(f.from), b = group_of(f.to);
      if (f.from == f.to) {
        kept[a] += f.bytes;
        continue;
      }
      most = std::max(most, bytes[a * groups_ + b] += f.bytes);
      sent[a] += f.bytes;
      received[b] += f.bytes;
      most_sum = std::max({most_sum, sent[a], received[b]});
    }
    std::vector<std::string> names;
    double head = 0;
    for (size_t g = 0; g < groups_; ++g) {
      names.push_back(group_text(g));
      head = std::max(head, text_width(names.back(), 10) + 10);
    }
    const auto n = static_cast<double>(groups_);
    const double cell = std::clamp(kMatrix / n, 16.0, 44.0);
    const double left = x + head + 14, top = y + 34;
    svg_.text(left + cell * n / 2, y - 4, 11, "to rank",
              R"(text-anchor="middle")");
    svg_.text_up(x + 6, top + cell * n / 2, 11, "from rank",
                 R"(text-anchor="middle")");
    for (size_t g = 0; g < groups_; ++g) {
      const double at = static_cast<double>(g) * cell;
      const std::string chip =
          fmt::format(R"(fill="{}" stroke="#ffffff")", colour_of(g));
      svg_.rect(left + at, top - 20, cell, 18, chip);
      if (text_width(names[g], 10) <= cell)
        svg_.text(left + at + cell / 2, top - 7, 10, names[g],
                  R"(text-anchor="middle")");
      svg_.rect(left - head - 2, top + at, head, cell, chip);
      svg_.text(left - head / 2 - 2, top + at + cell / 2 + 4, 10, names[g],
                R"(text-anchor="middle")");
    }
    for (size_t a = 0; a < groups_; ++a)
      for (size_t b = 0; b < groups_; ++b)
        matrix_cell(left + static_cast<double>(b) * cell,
                    top + static_cast<double>(a) * cell, cell, names[a],
                    names[b], bytes[a * groups_ + b], a == b ? kept[a] : 0,
                    most);
    const double right = left + cell * n + 8, below = top + cell * n + 8;
    svg_.text(right, top - 8, 10, "sent", fmt::format(R"(fill="{}")", kGrey));
    constexpr double kBar = 44;
    const auto bar = [&](int64_t sum) {
      return most_sum ? kBar * static_cast<double>(sum) /
                            static_cast<double>(most_sum)
                      : 0;
    };
    const double thick = std::min(cell - 4, 14.0);
    for (size_t g = 0; g < groups_; ++g) {
      const double at = static_cast<double>(g) * cell + cell / 2;
      const std::string blue = R"(fill="#7fb2e5")";
      svg_.rect(right, top + at - thick / 2, bar(sent[g]), thick, blue,
                fmt::format("{} sends {} bytes", names[g], grouped(sent[g])));
      svg_.text(right + bar(sent[g]) + 4, top + at + 3.5, 9,
                short_bytes(sent[g]));
      svg_.rect(
          left + at - thick / 2, below, thick, bar(received[g]), blue,
          fmt::format("{} receives {} bytes", names[g], grouped(received[g])));
      number_within(cell, left + at, below + bar(received[g]) + 11, received[g],
                    "#1c2430");
    }
    svg_.text(left - 6, below + 12, 10, "received",
              fmt::format(R"(fill="{}" text-anchor="end")", kGrey));
    return below + kBar + 16;
  }

  void matrix_cell(double x, double y, double size, const std::string& from,
                   const std::string& to, int64_t bytes, int64_t kept,
                   int64_t most) {
    const double x_shade =
        most ? static_cast<double>(bytes) / static_cast<double>(most) : 0;
    std::string tip =
        bytes > 0 || from != to
            ? fmt::format("{} to {}: {} bytes", from, to, grouped(bytes))
            : std::string();
    if (kept > 0)
      tip += fmt::format("{}{} keeps {} bytes", tip.empty() ? "" : "\n", from,
                         grouped(kept));
    std::string fill = bytes ? shade(0.1 + 0.9 * x_shade) : "#ffffff";
    if (!bytes && kept) {
      fill = svg_.stripes("#e3e7ec #f6f8fa", 3, 45);
      keeps_ = true;
    }
    svg_.rect(x, y, size, size,
              fmt::format(R"(fill="{}" stroke="#d8dde3")", fill), tip);
    if (bytes > 0)
      number_within(size, x + size / 2, y + size / 2 + 3, bytes,
                    text_on_shade(0.1 + 0.9 * x_shade));
  }

  // "32 KiB", or "32K", or nothing.
  void number_within(double width, double x, double y, int64_t bytes,
                     std::string_view fill) {
    std::string text = short_bytes(bytes);
    if (text_width(text, 8) > width) {
      std::erase(text, ' ');
      if (text.size() > 2 && text.ends_with("iB")) text.resize(text.size() - 2);
    }
    if (text_width(text, 8) <= width)
      svg_.text(x, y, 8, text,
                fmt::format(R"(text-anchor="middle" fill="{}")", fill));
  }

  void notes() {
    std::vector<std::string> notes;
    if (report_.from->ndim() > 2)
      notes.push_back(fmt::format(
          "Of {} dimensions, {} and {} are drawn, at index 0 of the others.",
          report_.from->ndim(), view_.rows, view_.columns));
    if (striped_) notes.push_back("Striped: several ranks hold it.");
    if (partial_)
      notes.push_back(
          "Striped with white: each holds a part of the value, which is what "
          "the "
          "label says (0 + 1: the sum of what 0 and 1 hold).");
    if (keeps_) notes.push_back("Hatched grey: what a rank keeps.");
    if (sampled_)
      notes.push_back(
          "There are too many boxes to draw: each square shows who holds its "
          "first index.");
    if (groups_ < report_.ranks.size())
      notes.push_back(
          "Neighbouring ranks share a colour, and what they send is summed.");
    if (report_.plan.chunks > 1)
      notes.push_back(
          fmt::format("Carried out on {} parts of the tensor in turn.",
                      report_.plan.chunks));
    y_ += 8;
    for (const std::string& note : notes) {
      y_ += 16;
      svg_.text(kMargin, y_, 11, note, fmt::format(R"(fill="{}")", kGrey));
    }
  }

  const PlanReport& report_;
  const View view_;
  const size_t groups_;
  Svg svg_;
  double y_ = 0;  // where the next thing goes
  bool striped_ = false, partial_ = false, keeps_ = false, sampled_ = false;
};

}  // namespace

std::string plan_svg(const PlanReport& report) {
  return Picture(report).draw();
}

}  // namespace dtensor::report
