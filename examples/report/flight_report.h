// What the files of the flight recorder (dtensor/flight.h) say when
// they are put side by side: where ranks part, and who never came.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace dtensor::report {

// A collective as one rank made it. Times are ns since 1970, of a clock that
// moves every few milliseconds.
struct FlightCall {
  std::vector<int64_t> ranks;  // of the group
  int64_t number = 0;          // of the thread's collectives, from 1
  int64_t sequence = 0;        // of the group's, from 1
  // "waits": not all had come; "agreed": it was being carried out; "ended";
  // "threw": an Error came out of it.
  std::string state;
  std::string kind, op, reduce, dtype;  // reduce, dtype: "" where there is none
  int64_t tensors = 0, bytes = 0;
  std::string fingerprint;  // equal on all members
  int64_t begun_ns = 0;

  // "all-reduce #3 (sum, f32, 32 bytes) for add".
  std::string to_string() const;
};

// One file.
struct FlightFile {
  int64_t rank = 0, world = 0;
  std::string why;           // it was written
  std::string state, error;  // "runs", "left", "failed" with the error
  int64_t written_ns = 0;
  std::vector<FlightCall> lanes[2];  // of its thread, and of the other one
};

// Throws Error, headed by "flight" and naming the path, when the text is no
// such file, or a damaged one.
FlightFile parse_flight(const std::string& path, const std::string& text);

// What ranks called as one collective.
struct FlightRow {
  int lane = 0;
  std::vector<int64_t> ranks;  // of the group
  int64_t sequence = 0;
  struct Member {
    int64_t rank = 0;
    const FlightCall* call = nullptr;  // null: it is not among its last ones
  };
  std::vector<Member> members;  // of whom there is a file
  int64_t first_ns = 0;         // when the first one came
  // Members differ in what they called.
  bool parts = false;
  // Members that did not come while others waited for them.
  std::vector<int64_t> missing;
};

struct FlightReport {
  std::vector<FlightFile> files;  // by rank
  std::vector<int64_t> without;   // ranks of the run that have no file
  // By lane and group, then sequence number.
  std::vector<FlightRow> rows;
  // Indices of rows, by time: of each group the first that parts, or that
  // somebody never came to.
  std::vector<size_t> faults;

  // Throws Error when the files are not of one run, or two are of one rank.
  explicit FlightReport(std::vector<FlightFile>);
  FlightReport(const FlightReport&) = delete;
  FlightReport& operator=(const FlightReport&) = delete;

  // For people: what went wrong, each rank's last call, and the last `rows` of
  // each group.
  std::string to_text(int64_t rows) const;
  nlohmann::ordered_json to_json() const;

 private:
  std::string fault_text(const FlightRow&) const;
  const FlightFile* file_of(int64_t rank) const;
};

}  // namespace dtensor::report
