// SPDX-License-Identifier: Apache-2.0
// The playground of a program (--explore): a form with the program's flags, and
// limits for questions. A question is a request of the page with a filled-in
// form; a child process answers it (explore/playground.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "dtensor/placement/mesh.h"
#include "dtensor/program/flags.h"

namespace dtensor {

// The form of one program, as page/playground.js reads it: --mesh, --cost and
// the program's own flags, which begin at index `own` of Flags::all(), except
// flags that name files. The form is filled in with the values on the command
// line.
nlohmann::ordered_json form_of(const std::string& program, const Flags&,
                               size_t own);

// Serves the playground of this program until a signal arrives. Every question
// is a dry run. `port` is the value of --explore; "" means any free port.
// Throws Error if it is not a port, or cannot be used.
void explore_program(const std::string& program, const Flags&, size_t own,
                     const std::string& port);

// Throws Error if this process answers a question of a playground and the mesh
// has more ranks than the playground allows, or a flag names a file.
// (read_text_file() refuses the file of --cost, which may name a machine.)
void check_question(const Flags&, const Mesh&);
// Throws Error if this process answers a question of a playground and the mesh
// of `flag` has more ranks than the playground allows.
void check_ranks_of_question(std::string_view flag, const Mesh&);
// The most operators that a question of a playground may run; nullopt if this
// process does not answer a question.
std::optional<int64_t> most_operators();

}  // namespace dtensor
