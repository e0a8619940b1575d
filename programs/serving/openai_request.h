// SPDX-License-Identifier: Apache-2.0
// Reads requests of OpenAI's HTTP interface.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/nn/engine.h"
#include "programs/serving/served_model.h"

namespace dtensor::examples {

// An error in a request; the server answers the request with it.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& sentence, std::string param = "",
           std::string code = "")
      : std::runtime_error(sentence),
        status(status),
        param(std::move(param)),
        code(std::move(code)) {}
  const int status;         // the HTTP status
  const std::string param;  // the request's member that is wrong; "" if none is
  const std::string code;   // OpenAI's name for the error; "" if it has none
};

// The error for a request that names a model which this server does not have.
ApiError no_model(const std::string& name, const ServedModel&);

struct OpenAiRequest {
  bool chat = false;  // false: a completion of plain text
  bool stream = false, include_usage = false, logprobs = false;
  // Whether answers begin with their prompts. With logprobs, the prompts'
  // tokens come from the engine (TextRequest::on_prompt).
  bool echo = false;
  std::vector<std::string> stop = {};
  int64_t prompt_tokens = 0;
  // The number of texts for each prompt; their seeds are consecutive.
  size_t n = 1;
  std::vector<nn::TextRequest> texts = {};
};

// Reads the body of POST /v1/chat/completions (`chat`) or /v1/completions.
// `longest`: the most tokens of a prompt and its continuation together. `most`:
// the most texts of a request. Throws ApiError for a body that is not an object
// or a member that is unknown, wrong or not supported, and Error if the chat
// template refuses the messages.
OpenAiRequest read_request(std::string_view body, bool chat, const ServedModel&,
                           int64_t longest, int64_t most);

}  // namespace dtensor::examples
