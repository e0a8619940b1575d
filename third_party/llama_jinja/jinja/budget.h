// SPDX-License-Identifier: Apache-2.0
// Ours. Templates come with checkpoints that nobody has read. The engine asks
// the budget of its thread wherever it recurses, evaluates, makes or copies
// values; without a budget, nothing is limited.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace jinja {

struct value_t;

struct limits {
    size_t depth;       // of blocks, expressions, calls or values in each other
    size_t steps;       // evaluations, and elements that are looked at
    size_t bytes;       // of all values that are made, also of those that are gone
    double seconds;     // of the thread's processor time
    bool (*stopped)();  // whether the program is to end
};

struct budget_exceeded : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// An array or object in the list of its budget.
struct value_link {
    value_t * owner;
    value_link * before = this;
    value_link * after = this;

    explicit value_link(value_t * owner);
    value_link(const value_link &) = delete;
    value_link & operator=(const value_link &) = delete;
    ~value_link() { unlink(); }
    void unlink() {
        before->after = after;
        after->before = before;
        before = after = this;
    }
};

// The limits that hold on the thread that made it, while it exists.
class budget {
public:
    explicit budget(const limits & all);
    // Empties the arrays and objects that are left, which hold each other.
    ~budget();
    budget(const budget &) = delete;
    budget & operator=(const budget &) = delete;

    static void step(size_t count = 1) {
        if (current && (current->steps += count) > current->next_check) {
            current->check();
        }
    }
    static void make(size_t bytes) {
        if (current) {
            current->take(bytes);
        }
    }
    // Input of so many bytes is there, for which more may be used.
    static void widen(size_t bytes);
    static size_t depth_limit() { return current ? current->all.depth : ~size_t(0); }

    // One level of recursion, and one step.
    struct nested {
        nested() {
            step();
            if (current && current->depth++ == current->all.depth) {
                --current->depth;
                throw_depth();
            }
        }
        ~nested() {
            if (current) {
                --current->depth;
            }
        }
        nested(const nested &) = delete;
        nested & operator=(const nested &) = delete;
    };
    [[noreturn]] static void throw_depth();

private:
    friend struct value_link;
    static inline thread_local constinit budget * current = nullptr;

    void take(size_t bytes) {
        if (bytes > all.bytes - made) {
            made = all.bytes;
            throw_bytes();
        }
        made += bytes;
    }
    void check();
    [[noreturn]] void throw_bytes() const;

    limits all;
    size_t depth = 0;
    size_t steps = 0;
    size_t made = 0;
    size_t next_check = 0;
    double start;
    budget * outer;
    value_link values{nullptr};
};

// Bytes of `count` times `each`; the largest number if they are more.
inline size_t times(size_t count, size_t each) {
    size_t product;
    return __builtin_mul_overflow(count, each, &product) ? ~size_t(0) : product;
}

// Takes the time of looking for one text in another.
inline void spend_search(size_t text, size_t part) {
    budget::step(times(text, part) / 256);
}

} // namespace jinja
