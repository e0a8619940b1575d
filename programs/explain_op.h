// SPDX-License-Identifier: Apache-2.0
// Explains how an operator chooses its layouts.
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
  std::vector<OpInput> inputs;  // their specs
  Attrs attrs;
};

// Parses a question. `ins` are texts such as "8192x1024:S0,R", with
// ":parameter" for an input that stays in its layout. `args`, such as
// "dim=1,keep=false", override the arguments of the operator's own sample.
// Throws Error if something does not exist or does not fit.
OpQuestion parse_question(const std::string& op,
                          const std::vector<std::string>& ins,
                          const std::string& args, DType, const Mesh&);

// Collects the operators that ran, and counts equal ones together.
class Decisions {
 public:
  // Adds a call, on the rank that runs it.
  void add(const Op&, const Decision&);
  std::string table() const;
  nlohmann::ordered_json json() const;

 private:
  struct Row {
    std::string phase, op, rule, split, inputs, outputs;
    int64_t comm_ps, work_ps, reduce_ps, count;
  };
  std::vector<Row> rows_;
};

// Prints the answer and returns it as JSON: `rule`, `assignments`,
// `collectives`, `backward`, and for a product of two matrices on several ranks
// `ways`. The operator and its gradient run dry.
nlohmann::ordered_json explain_op(const OpQuestion&, const RunOptions&);

}  // namespace dtensor::examples
