// SPDX-License-Identifier: Apache-2.0
// The tables of a record (docs/record.md), in which equal entries are stored
// once.
#pragma once
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "dtensor/comm_event.h"
#include "dtensor/placement/cost.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

class RecordTables {
 public:
  using Json = nlohmann::ordered_json;

  // Each returns the index of an entry, and adds the entry if it is new.
  size_t mesh(const Mesh&);
  size_t spec(const Spec*);
  // The move of tensor number `tensor` of the plan.
  size_t move(const Move&, const Plan&, size_t tensor, const CostTable&);
  // `us` is the price of the event. (Only the first of several tensors that
  // move together pays the latency.) `counted` says whether the entry has
  // CommEvent::counted.
  size_t event(const CommEvent&, double us, bool counted);
  size_t path(std::string_view);
  size_t phase(std::string_view);

  // As the function in placement/received.h, but computed once for equal steps.
  int64_t received_by_all(const Step&, const CostTable&);

  // Adds the tables to a record: "meshes", "dims", "specs", "moves", "events",
  // "paths", "phases".
  void write(Json& record) const;

 private:
  class Table {
   public:
    size_t index(Json entry);
    const Json& list() const { return list_; }

   private:
    Json list_ = Json::array();
    std::map<std::string, size_t> known_;  // the index, by the entry's text
  };
  size_t dim(const Dim&, const Mesh&);
  Json step(const Step&, int64_t chunks, const CostTable&);

  Table meshes_, dims_, specs_, moves_, events_, paths_, phases_;
  std::map<uint64_t, size_t> mesh_numbers_;  // by hash
  std::map<SpecRef, size_t> spec_numbers_;
  std::map<std::tuple<SpecRef, SpecRef, StepKind, AxisMask>, int64_t> received_;
};

}  // namespace dtensor
