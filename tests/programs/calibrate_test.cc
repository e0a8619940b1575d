// SPDX-License-Identifier: Apache-2.0
// Tests the prices that calibrate measures, and that other programs read them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/programs/running.h"
#include "tests/programs/xml.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

struct Calibrated {
  std::string table;
  Json json, file;
  std::string svg;
};

Calibrated calibrate(const std::string& mesh) {
  const std::string out = temporary("prices.json"), svg = temporary("c.svg");
  const Ran r = run_program("calibrate", "--mesh " + mesh +
                                             " --max-bytes 65536 --rounds 3"
                                             " --json --out " +
                                             out + " --svg " + svg);
  EXPECT_EQ(r.code, 0) << r.err;
  // With --json the table goes to standard error, after the progress.
  return {r.err, Json::parse(r.out, nullptr, false),
          Json::parse(read_file(out), nullptr, false), read_file(svg)};
}

// The price of so many bytes. (A byte takes 1e-3 us at 1 GB/s.)
double price_us(const Json& price, double bytes) {
  const double cached =
      price.contains("beyond") ? price["beyond"]["bytes"].get<double>() : bytes;
  double us =
      price["alpha_us"].get<double>() +
      std::min(bytes, cached) / price["gbytes_per_s"].get<double>() / 1e3;
  if (bytes > cached)
    us +=
        (bytes - cached) / price["beyond"]["gbytes_per_s"].get<double>() / 1e3;
  return us;
}

TEST(Calibrate, MeasuresEveryKind) {
  const Calibrated c = calibrate("x=2,y=2");
  ASSERT_TRUE(c.json.is_object()) << c.json;
  EXPECT_EQ(c.json["mesh"], "x=2,y=2");
  std::map<std::string, int> kinds;
  for (const Json& f : c.json["fits"]) {
    ++kinds[f["kind"].get<std::string>()];
    EXPECT_GE(f["alpha_us"].get<double>(), 0) << f;
    EXPECT_GT(f["gbytes_per_s"].get<double>(), 0) << f;
    EXPECT_GE(f["points"].size(), 3u) << f;
    for (const Json& p : f["points"]) {
      EXPECT_GT(p["measured_us"].get<double>(), 0) << p;
      EXPECT_NEAR(p["fitted_us"].get<double>(),
                  price_us(f, p["bytes"].get<double>()), 1e-5)
          << f;
    }
  }
  const std::map<std::string, int> expected = {
      {"all_gather", 3},     {"all_reduce", 3}, {"reduce_scatter", 3},
      {"all_to_all", 3},     {"exchange", 3},   {"permute", 1},
      {"reduce_exchange", 1}};
  EXPECT_EQ(kinds, expected);
  EXPECT_EQ(c.json["cost"], c.file);
  EXPECT_EQ(c.file["axes"].size(), 2u);
  EXPECT_EQ(c.file["groups"][0]["axes"], Json({"x", "y"}));
}

TEST(Calibrate, TableFileAndPlanAgree) {
  const Calibrated c = calibrate("2");
  ASSERT_TRUE(c.file.is_object()) << c.file;
  const Json& kinds = c.file["axes"][0]["kinds"];
  EXPECT_EQ(kinds.size(), 5u);
  // The lines of the fits, "all-gather  a0  1.234  5.678  ...", follow those of
  // the points.
  std::istringstream lines(c.table.substr(c.table.find("\n\n")));
  std::map<std::string, std::pair<double, double>> fits;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, axes;
    double alpha, rate, worst;
    if (words >> kind >> axes >> alpha >> rate >> worst) {
      std::replace(kind.begin(), kind.end(), '-', '_');
      fits[kind] = {alpha, rate};
    }
  }
  ASSERT_EQ(fits.size(), kinds.size()) << c.table;
  for (const auto& [kind, price] : kinds.items()) {
    EXPECT_EQ(price["alpha_us"].get<double>(), fits[kind].first) << kind;
    EXPECT_EQ(price["gbytes_per_s"].get<double>(), fits[kind].second) << kind;
  }
  // A kind without its own price has that of an exchange.
  EXPECT_EQ(c.file["axes"][0]["alpha_us"], kinds["exchange"]["alpha_us"]);

  const Ran r = run_program("plan",
                            "--mesh 2 --shape 1000000 --from S0 --to R --json "
                            "--cost " +
                                temporary("prices.json"));
  ASSERT_EQ(r.code, 0) << r.err;
  const Json plan = Json::parse(r.out, nullptr, false);
  EXPECT_EQ(plan["steps"][0]["kind"], "all_gather");
  EXPECT_NEAR(plan["time_us"].get<double>(), price_us(kinds["all_gather"], 2e6),
              1e-5);
}

TEST(Calibrate, DrawsWhatItMeasured) {
  const Calibrated c = calibrate("2");
  EXPECT_EQ(xml_error(c.svg), "");
  int points = 0, series = 0;
  for (const Json& f : c.json["fits"]) {
    points += static_cast<int>(f["points"].size());
    ++series;
  }
  EXPECT_EQ(occurrences(c.svg, "measured "), points);
  EXPECT_EQ(occurrences(c.svg, "<polyline"), series);
  for (const char* kind : {"all-gather", "all-reduce", "exchange"})
    EXPECT_EQ(occurrences(c.svg, std::string(">") + kind + "</text>"), 1);
}

TEST(Calibrate, PrintsATable) {
  const Ran r = run_program("calibrate", "--mesh 2 --max-bytes 256 --rounds 1");
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* text : {"measured us", "fitted us", "error %", "alpha us",
                           "GB/s", "all-to-all"})
    EXPECT_NE(r.out.find(text), r.out.npos) << text << "\n" << r.out;
  EXPECT_NE(r.err.find("step "), r.err.npos) << "no progress\n" << r.err;
}

}  // namespace
}  // namespace dtensor::testing
