// SPDX-License-Identifier: Apache-2.0
// Compares the files of the flight recorder (dtensor/flight.h) of several
// ranks: where ranks diverge, and which ranks never arrived.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace dtensor::report {

// A collective as one rank called it. Times are ns since 1970, from a clock
// that advances only every few milliseconds.
struct FlightCall {
  std::vector<int64_t> ranks;  // of the group
  int64_t number = 0;          // among the thread's collectives, from 1
  int64_t sequence = 0;        // among the group's collectives, from 1
  // When the file was written: "waits": some member had not arrived; "agreed":
  // all had arrived, and the collective ran; "ended"; "threw": it threw Error.
  std::string state;
  std::string kind, op, reduce, dtype;  // reduce, dtype: "" if none
  int64_t tensors = 0, bytes = 0;
  std::string fingerprint;  // equal on all members that make the same call
  int64_t begun_ns = 0;

  // "all-reduce #3 (sum, f32, 32 bytes) for add".
  std::string to_string() const;
};

// The content of one file.
struct FlightFile {
  int64_t rank = 0, world = 0;
  std::string why;           // the reason why the file was written
  std::string state, error;  // "runs", "left", or "failed" with its error
  int64_t written_ns = 0;
  std::vector<FlightCall> lanes[2];  // calls: 0: own thread, 1: async thread
};

// Parses a file. Throws Error, headed by "flight" and with the path, if the
// text is damaged, or is not a file of the flight recorder in version 1.
FlightFile parse_flight(const std::string& path, const std::string& text);

// One collective: the calls of all ranks that have the same lane, group and
// sequence number.
struct FlightRow {
  int lane = 0;
  std::vector<int64_t> ranks;  // of the group
  int64_t sequence = 0;
  struct Member {
    int64_t rank = 0;
    const FlightCall* call = nullptr;  // null: not in the rank's file
  };
  std::vector<Member> members;  // the members of the group that have a file
  int64_t first_ns = 0;         // when the first member arrived
  // Whether the members diverge: their FlightCall::fingerprints differ.
  bool parts = false;
  // Members whose file lacks the call, if no member saw that all had arrived.
  std::vector<int64_t> missing;
};

struct FlightReport {
  std::vector<FlightFile> files;  // by rank
  std::vector<int64_t> without;   // ranks of the run without a file
  // Sorted by lane, then group, then sequence number.
  std::vector<FlightRow> rows;
  // Indices in `rows`, ordered by time. For each group, the first row in which
  // members diverge or a member is missing.
  std::vector<size_t> faults;

  // Throws Error if there are no files, if they are from runs of different
  // sizes, or if two are from the same rank.
  explicit FlightReport(std::vector<FlightFile>);
  FlightReport(const FlightReport&) = delete;
  FlightReport& operator=(const FlightReport&) = delete;

  // The faults, each rank's last call, and the last `rows` collectives of each
  // group, as text.
  std::string to_text(int64_t rows) const;
  nlohmann::ordered_json to_json() const;

 private:
  std::string fault_text(const FlightRow&) const;
  const FlightFile* file_of(int64_t rank) const;
};

}  // namespace dtensor::report
