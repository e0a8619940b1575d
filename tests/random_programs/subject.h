// SPDX-License-Identifier: Apache-2.0
// Something random that runs on thread ranks and is compared with plain loops.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dtensor::random_programs {

struct Running {
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
  // The operator whose expected values are taken for wrong, if any.
  std::string wrong = {};
  // A file that gets a line of JSON for with_torch.py, if it passes.
  std::string write = {};
};

class Subject {
 public:
  virtual ~Subject() = default;
  // Runs it. Empty when each result is the expected one on every rank, kRefused
  // when an operator refused to move a parameter that is to stay; else a
  // sentence that says what failed first. Throws Unfit where smaller() made
  // something that does not say what it computes.
  virtual std::string failure(const Running&) const = 0;
  static constexpr const char* kRefused = "refused";
  virtual int64_t operators() const = 0;
  virtual std::string text() const = 0;
  // Each with one thing less, the largest cuts first.
  virtual std::vector<std::shared_ptr<const Subject>> smaller() const = 0;
};

std::shared_ptr<const Subject> random_program_of(uint64_t seed);
std::shared_ptr<const Subject> random_pipeline_of(uint64_t seed);

}  // namespace dtensor::random_programs
