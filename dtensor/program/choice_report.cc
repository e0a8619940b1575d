// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/choice_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace dtensor {
namespace {

double us(int64_t ps) { return static_cast<double>(ps) / 1e6; }

nlohmann::ordered_json layouts_json(std::span<const SpecRef> specs) {
  auto list = nlohmann::ordered_json::array();
  for (const Spec* s : specs) list.push_back(s->layout().to_string(s->mesh()));
  return list;
}

// "The next, k: tp, costs 2.00 us more (communication +2.00). ".
std::string compared(const ChoiceMade& made, const Choice& next) {
  const Choice& best = made.chosen;
  std::string parts;
  const auto part = [&](const char* what, int64_t more) {
    if (more)
      parts += fmt::format("{}{} {:+.2f}", parts.empty() ? "" : ", ", what,
                           us(more));
  };
  part("communication", next.comm_ps - best.comm_ps);
  part("work", next.work_ps - best.work_ps);
  part("postponed reduction", next.reduce_ps - best.reduce_ps);
  return fmt::format("The next, {}, costs {:.2f} us more{}. ", made.split(next),
                     us(next.total_ps() - best.total_ps()),
                     parts.empty() ? "" : " (" + parts + ")");
}

}  // namespace

std::string ChoiceMade::split(const Choice& c) const {
  return rule.to_string(c.assignment, mesh());
}

bool ChoiceMade::chosen_is_listed() const {
  return std::any_of(all.begin(), all.end(), [&](const Choice& c) {
    return c.assignment == chosen.assignment;
  });
}

std::string layouts_text(std::span<const SpecRef> specs) {
  std::string text;
  for (const Spec* s : specs)
    text += (text.empty() ? "" : " | ") + s->layout().to_string(s->mesh());
  return text;
}

std::string why(const ChoiceMade& made) {
  const Choice& best = made.chosen;
  std::string text = fmt::format("chosen: {}, at {:.2f} us. ", made.split(best),
                                 us(best.total_ps()));
  int64_t blocked = 0;
  const Choice *next = nullptr, *cheaper = nullptr;
  for (const Choice& c : made.all) {
    if (!c.feasible) {
      ++blocked;
    } else if (c.assignment == best.assignment) {
      continue;
    } else if (c.total_ps() < best.total_ps()) {
      if (!cheaper) cheaper = &c;
    } else if (!next) {
      next = &c;
    }
  }
  text += next ? compared(made, *next) : "It is the only possible one. ";
  if (cheaper)
    text += fmt::format(
        "{} would cost {:.2f} us, but it uses an axis that no input is split "
        "over, and an operator only uses axes of its inputs. ",
        made.split(*cheaper), us(cheaper->total_ps()));
  if (blocked)
    text += fmt::format(
        "{} of the others would send a parameter, which must stay where it "
        "is. ",
        blocked);
  text.pop_back();
  return text;
}

nlohmann::ordered_json choices_json(const ChoiceMade& made, size_t most) {
  auto list = nlohmann::ordered_json::array();
  const auto add = [&](const Choice& c) {
    list.push_back({{"split", made.split(c)},
                    {"in", layouts_json(c.in)},
                    {"out", layouts_json(c.out)},
                    {"comm_us", us(c.comm_ps)},
                    {"work_us", us(c.work_ps)},
                    {"reduce_us", us(c.reduce_ps)},
                    {"chosen", c.assignment == made.chosen.assignment},
                    {"feasible", c.feasible}});
  };
  if (!made.chosen_is_listed()) add(made.chosen);
  for (size_t i = 0; i < made.all.size(); ++i)
    if (i < most || made.all[i].assignment == made.chosen.assignment)
      add(made.all[i]);
  return list;
}

}  // namespace dtensor
