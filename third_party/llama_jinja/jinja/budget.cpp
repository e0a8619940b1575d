// SPDX-License-Identifier: Apache-2.0
#include "jinja/budget.h"

#include "jinja/value.h"

#include <algorithm>
#include <ctime>

namespace jinja {

static constexpr size_t steps_between_checks = 256;

static double processor_seconds() {
    std::timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

value_link::value_link(value_t * owner) : owner(owner) {
    // the budget's own link has no owner
    if (owner && budget::current) {
        value_link & list = budget::current->values;
        before = &list;
        after = list.after;
        before->after = after->before = this;
    }
}

budget::budget(const limits & all) : all(all), start(processor_seconds()), outer(current) {
    current = this;
}

budget::~budget() {
    while (values.after != &values) {
        value_link & link = *values.after;
        link.unlink();
        link.owner->forget_values();
    }
    current = outer;
}

void budget::widen(size_t bytes) {
    if (current) {
        current->all.bytes += 1000 * bytes;
        current->all.steps += 20 * bytes;
    }
}

void budget::throw_depth() {
    throw budget_exceeded("the template nests blocks, expressions, calls or values more than " +
                          std::to_string(current->all.depth) + " deep; nest fewer");
}

void budget::throw_bytes() const {
    throw budget_exceeded("the template makes more than " + std::to_string(all.bytes) +
                          " bytes of values for these messages; make fewer or shorter ones");
}

void budget::check() {
    next_check = 0;  // once exceeded, always exceeded
    if (steps > all.steps) {
        throw budget_exceeded("the template takes more than " + std::to_string(all.steps) +
                              " steps for these messages; loop less");
    }
    if (processor_seconds() - start > all.seconds) {
        throw budget_exceeded("the template takes more than " + std::to_string(static_cast<int>(all.seconds)) +
                              " s for these messages; loop less");
    }
    if (all.stopped && all.stopped()) {
        throw budget_exceeded("the program was told to end");
    }
    next_check = std::min(all.steps, steps + steps_between_checks);
}

} // namespace jinja
