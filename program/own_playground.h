// SPDX-License-Identifier: Apache-2.0
// The playground of a program (--explore): its flags as a form, and what a
// question may ask.
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

// The form of one program, as explore/playground.js reads it: --mesh, --cost
// and the program's own flags, which begin at index `own`, except those that
// name files. What the command line gives is filled in.
nlohmann::ordered_json form_of(const std::string& program, const Flags&,
                               size_t own);

// Serves the playground of this program until a signal arrives; every question
// is a dry run. `port` is the value of --explore; "": one that is free. Throws
// Error if it is not a port, or cannot be used.
void explore_program(const std::string& program, const Flags&, size_t own,
                     const std::string& port);

// Throws Error if this process answers a question of a playground and a flag
// names a file, or the mesh has more ranks than the playground allows.
void check_question(const Flags&, const Mesh&);
// The second of these checks, for the mesh of another flag than --mesh.
void check_ranks_of_question(std::string_view flag, const Mesh&);
// The most operators that such a question may run; nullopt if this process
// answers none.
std::optional<int64_t> most_operators();

}  // namespace dtensor
