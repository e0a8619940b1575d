// SPDX-License-Identifier: Apache-2.0
// write_page OUT RECORD...: writes the page that shows the records in these
// files.
#include <fmt/core.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/program/page/page.h"
#include "dtensor/text_file.h"

int main(int argc, char** argv) try {
  std::vector<nlohmann::ordered_json> records;
  for (int i = 2; i < argc; ++i)
    records.push_back(nlohmann::ordered_json::parse(
        dtensor::read_text_file("write_page", argv[i])));
  dtensor::write_text_file("write_page", argv[1], dtensor::page(records));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
