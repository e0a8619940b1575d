// SPDX-License-Identifier: Apache-2.0
// A random program or pipeline that runs on thread ranks, and is compared with
// plain loops.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dtensor::random_programs {

struct Running {
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
  // The operator whose expected values are made wrong on purpose; "": none.
  std::string wrong = {};
  // If a program passes, a line of JSON for with_torch.py is appended to this
  // file.
  std::string write = {};
};

class Subject {
 public:
  virtual ~Subject() = default;
  // Runs the subject. Returns "" if each result is the expected one on every
  // rank; kRefused if an operator refused to move a parameter that has to stay;
  // otherwise a sentence about the first failure. Throws Unfit if smaller() has
  // made a subject without defined results.
  virtual std::string failure(const Running&) const = 0;
  static constexpr const char* kRefused = "refused";
  virtual int64_t operators() const = 0;
  virtual std::string text() const = 0;
  // Subjects that lack one thing of this one, with the largest cuts first.
  virtual std::vector<std::shared_ptr<const Subject>> smaller() const = 0;
};

std::shared_ptr<const Subject> random_program_of(uint64_t seed);
std::shared_ptr<const Subject> random_pipeline_of(uint64_t seed);

}  // namespace dtensor::random_programs
