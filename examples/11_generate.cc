// SPDX-License-Identifier: Apache-2.0
// Loads a checkpoint on any mesh, continues a prompt with it, and prints the
// text as it grows. The example makes the checkpoint itself: a small Llama,
// trained on one sentence, with a token for each character.
//
//   bazel run //examples:11_generate -- --mesh tp=3
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dtensor/dtensor.h"
#include "dtensor/nn/text/text_pieces.h"

using namespace dtensor;
namespace fs = std::filesystem;

namespace {

const std::string kSentence = "a tensor is split over ranks, and none is lost.";

void make_checkpoint(const fs::path& dir, const Mesh& mesh, bool writes) {
  const auto n = std::ssize(kSentence) - 1;
  const auto model = nn::make_model({.name = "llama",
                                     .layers = 1,
                                     .hidden = 48,
                                     .heads = 4,
                                     .seq = n,
                                     .vocab = 128},
                                    mesh);
  const auto tokens = [&](std::string_view text) {
    const std::vector<int64_t> ids(text.begin(), text.end());
    return DistTensor::from_global(Tensor::from<int64_t>({1, n}, ids.data()),
                                   mesh, nn::batch_placements(mesh));
  };
  const DistTensor in = tokens(kSentence.substr(0, size_t(n))),
                   next = tokens(kSentence.substr(1));
  nn::AdamW optimizer(model->named_parameters());
  for (int step = 0; step < 60; ++step)
    optimizer.step(grad(model->loss(in, next), model->parameters()),
                   {.lr = 1e-2});
  nn::save_pretrained(*model, dir);
  if (!writes) return;
  nlohmann::json file = {{"decoder", {{"type", "Fuse"}}}};
  file["model"] = {{"type", "BPE"}, {"merges", std::vector<int>()}};
  for (char c = ' '; c < 127; ++c)
    file["model"]["vocab"][std::string(1, c)] = int{c};
  std::ofstream(dir / "tokenizer.json") << file;
}

void example(Runtime& rt) {
  const bool print = rt.rank() == 0;
  // All ranks use one folder, whose name has the process id of rank 0.
  const fs::path dir =
      fs::temp_directory_path() /
      fmt::format("11_generate.{}", all_gather("process", getpid())[0]);
  make_checkpoint(dir, rt.mesh(), print && !rt.dry_run());
  if (rt.dry_run()) return;
  all_gather("files are written", 0);

  const auto tokenizer = nn::Tokenizer::from_pretrained(dir);
  const auto model = nn::from_pretrained(dir, rt.mesh());
  nn::TextPieces pieces(tokenizer, {","});  // the text ends before a comma
  std::string text = "a tensor";
  if (print) fmt::print("{}", text);
  const auto show = [&](const nn::TextPiece& piece) {
    text += piece.text;
    if (print) fmt::print("{}", piece.text), std::fflush(stdout);
  };
  nn::generate(*model, {.tokens = 30,
                        .prompt = tokenizer.encode(text),
                        .sampling = {.temperature = 0},
                        .on_token = [&](const nn::DrawnToken& token) {
                          show(pieces.push(token));
                          return !pieces.stopped();
                        }});
  show(pieces.finish());
  if (print) fmt::print("\n"), fs::remove_all(dir);
  DT_CHECK(text == kSentence.substr(0, kSentence.find(',')), "11_generate",
           "the text is \"{}\"; expected \"{}\"", text,
           kSentence.substr(0, kSentence.find(',')));
}

}  // namespace

int main(int argc, char** argv) {
  return run(
      argc, argv, example,
      {.about = "Continues a prompt with a checkpoint.", .mesh = "tp=3"});
}
