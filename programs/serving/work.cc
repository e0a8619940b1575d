// SPDX-License-Identifier: Apache-2.0
#include "programs/serving/work.h"

#include <nlohmann/json.hpp>

#include "dtensor/placement/error.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::json;

Json json_of(const nn::Sampling& s) {
  return {s.repetition_penalty,
          s.presence_penalty,
          s.frequency_penalty,
          s.logit_bias,
          s.temperature,
          s.top_k,
          s.top_p,
          s.min_p,
          s.seed};
}

nn::Sampling sampling_from(const Json& j) {
  nn::Sampling s;
  j.at(0).get_to(s.repetition_penalty);
  j.at(1).get_to(s.presence_penalty);
  j.at(2).get_to(s.frequency_penalty);
  j.at(3).get_to(s.logit_bias);
  j.at(4).get_to(s.temperature);
  j.at(5).get_to(s.top_k);
  j.at(6).get_to(s.top_p);
  j.at(7).get_to(s.min_p);
  j.at(8).get_to(s.seed);
  return s;
}

}  // namespace

std::string to_bytes(const Work& work) {
  if (work.empty()) return "";
  Json added = Json::array();
  for (const auto& [number, r] : work.added)
    added.push_back({number, r.prompt, r.tokens, json_of(r.sampling), r.stop,
                     r.likeliest, r.logprobs, r.scores_prompt});
  std::string bytes;
  Json::to_cbor(Json::array({added, work.cancelled, work.end}), bytes);
  return bytes;
}

Work work_from(const std::string& bytes) {
  Work work;
  if (bytes.empty()) return work;
  try {
    const Json all = Json::from_cbor(bytes);
    for (const Json& j : all.at(0)) {
      nn::TextRequest r;
      j.at(1).get_to(r.prompt);
      j.at(2).get_to(r.tokens);
      r.sampling = sampling_from(j.at(3));
      j.at(4).get_to(r.stop);
      j.at(5).get_to(r.likeliest);
      j.at(6).get_to(r.logprobs);
      j.at(7).get_to(r.scores_prompt);
      work.added.emplace_back(j.at(0).get<int64_t>(), std::move(r));
    }
    all.at(1).get_to(work.cancelled);
    all.at(2).get_to(work.end);
  } catch (const Json::exception& e) {
    fail("serve", "requests arrive damaged: {}; report it", e.what());
  }
  return work;
}

}  // namespace dtensor::examples
