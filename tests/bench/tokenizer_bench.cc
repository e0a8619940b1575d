// SPDX-License-Identifier: Apache-2.0
// tokenizer_bench DIR TEXT: prints the number of tokens of a text, and how many
// tokens a second of CPU time encodes and decodes. The text is cut into pieces
// of 1,000 bytes. tools/bench_tokenizers.py runs it beside Hugging Face's
// library.
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "dtensor/nn/text/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::puts("usage: tokenizer_bench DIR TEXT");
    return 2;
  }
  const auto tokenizer = dtensor::nn::Tokenizer::from_pretrained(argv[1]);
  std::ifstream file(argv[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto seconds = [](std::clock_t since) {
    return static_cast<double>(std::clock() - since) / CLOCKS_PER_SEC;
  };
  std::vector<std::vector<int64_t>> ids;
  const std::clock_t begin = std::clock();
  for (size_t at = 0; at < text.size(); at += 1000)
    ids.push_back(tokenizer.encode(std::string_view(text).substr(at, 1000)));
  const double encoding = seconds(begin);
  const std::clock_t middle = std::clock();
  size_t tokens = 0;
  for (const auto& x : ids) {
    tokens += x.size();
    (void)tokenizer.decode(x);
  }
  std::printf("%zu %.0f %.0f\n", tokens, tokens / encoding,
              tokens / seconds(middle));
  return 0;
}
