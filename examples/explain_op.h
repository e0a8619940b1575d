// Why an operator does what it does.
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

// `ins` are texts "8192x1024:S0,R", with ":parameter" for one that
// stays. `args` like "dim=1,keep=false" replace those of the operator's
// own sample. Throws Error when something does not exist or does not fit.
OpQuestion parse_question(const std::string& op,
                          const std::vector<std::string>& ins,
                          const std::string& args, DType, const Mesh&);

// Operators that ran, equal ones together.
class Decisions {
 public:
  // Told of one, on the rank that runs it.
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

// Prints the answer and returns it: `rule`, `assignments`, `collectives`,
// `backward`. The operator and its gradient run dry.
nlohmann::ordered_json explain_op(const OpQuestion&, const RunOptions&);

}  // namespace dtensor::examples
