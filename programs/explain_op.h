// SPDX-License-Identifier: Apache-2.0
// Explains how an operator chooses its layouts, for --op of //:explain.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dtensor/ops/op.h"
#include "dtensor/runtime.h"

namespace dtensor::examples {

// One operator on given inputs.
struct OpQuestion {
  std::string op;               // a name, or an einsum: "mk,kn->mn"
  std::vector<OpInput> inputs;  // specs, and whether each is a parameter
  Attrs attrs;
  std::vector<bool> constant = {};  // whether an input has no gradient
};

// Parses a question. `ins` are texts such as "8192x1024:S0,R", with
// ":parameter" at the end for an input that stays in its layout. `args`, such
// as "dim=1,keep=false", override the arguments of one of the examples that the
// operator's samples() returns. Throws Error for an unknown name and for values
// that do not fit.
OpQuestion parse_question(const std::string& op,
                          const std::vector<std::string>& ins,
                          const std::string& args, DType, const Mesh&);

// Collects the calls of operators. Equal operators that chose equal layouts at
// equal prices in the same phase are one row, with their number.
class Decisions {
 public:
  // Adds a call. REQUIRES: this thread is the rank that makes the call.
  void add(const OpRan&);
  std::string table() const;
  nlohmann::ordered_json json() const;

 private:
  struct Row {
    std::string phase, op, rule, split, inputs, outputs;
    int64_t comm_ps, work_ps, reduce_ps, count;
  };
  std::vector<Row> rows_;
};

// Runs the operator and its gradient dry. Prints the answer, and returns it as
// JSON: `rule`, `assignments`, `collectives`, `backward`, and `ways` for the
// operator matmul of two matrices on several ranks.
nlohmann::ordered_json explain_op(const OpQuestion&, const RunOptions&);

}  // namespace dtensor::examples
