// SPDX-License-Identifier: Apache-2.0
// //:score: writes the logits, loss and gradients of a checkpoint of
// transformers, to compare them with those of other programs.
#include <fmt/format.h>

#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/nn/architecture.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/places_in_files.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/ops/grad.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "dtensor/redistribute.h"
#include "dtensor/text_file.h"
#include "programs/checkpoint_flags.h"
#include "programs/token_ids.h"

namespace dtensor::examples {
namespace {

struct Args {
  CheckpointFlags model;
  std::string ids, out, recompute = "none";
  bool gradients = false;
};

// A tensor of the output file: the whole tensor, or a window of it.
struct Output {
  std::string name;
  Shape shape;
  DistTensor value;
  SafetensorsWindow window = {};
};

// The target of each position is the next token. The last position of a row has
// none: text_loss() ignores -100.
Tensor next_of(const Tensor& ids) {
  const int64_t n = ids.numel(), s = ids.shape()[1];
  std::vector<int64_t> next(static_cast<size_t>(n), -100);
  for (int64_t i = 0; i + 1 < n; ++i)
    if (i % s != s - 1) next[static_cast<size_t>(i)] = ids.integer_at(i + 1);
  return Tensor::from<int64_t>(ids.shape(), next.data());
}

std::vector<Output> gradients_of(const nn::LanguageModel& model,
                                 const DistTensor& loss) {
  std::vector<Output> out;
  const std::vector<DistTensor> grads = grad(loss, model.parameters());
  const nn::PlacesInFiles places(model, false);
  for (size_t i = 0; i < grads.size(); ++i)
    for (const nn::PlaceInFile& t : places.of(places.parameters()[i]))
      out.push_back({"grad." + t.name, t.shape,
                     nn::onto(model.mesh(), t.part_of(grads[i])), t.window});
  return out;
}

void score(const Args& args, const Tensor& ids, Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const auto model =
      nn::from_pretrained(args.model.dir, mesh, args.model.load());
  model->set_recompute(nn::parse_recompute(args.recompute));
  const auto spread = [&](const Tensor& t) {
    return DistTensor::from_global(t, mesh, nn::batch_layout(mesh, t.shape()));
  };
  std::vector<Output> out;
  const auto add = [&](const char* name, const DistTensor& x) {
    out.push_back({name, x.shape(), x});
  };
  const DistTensor tokens = spread(ids);
  const bool has_head = nn::architecture(model->config().name).head_kind !=
                        nn::Architecture::Head::kNone;
  if (!has_head) {
    DT_CHECK(!args.gradients, "score",
             "a {} has no head, and so no loss and no gradients; leave out "
             "--gradients",
             model->config().name);
    const NoGrad no_grad;
    add("last_hidden_state", nn::onto(mesh, model->features(tokens)));
  } else {
    {
      const NoGrad no_grad;
      add("logits", model->logits(tokens));
    }
    const DistTensor targets = spread(next_of(ids));
    if (args.gradients) {
      const DistTensor loss = model->text_loss(tokens, targets);
      add("loss", loss.detach());
      for (Output& o : gradients_of(*model, loss)) out.push_back(std::move(o));
    } else {
      const NoGrad no_grad;
      add("loss", model->text_loss(tokens, targets));
    }
  }
  std::vector<TensorInfo> infos;
  for (const Output& o : out) {
    const bool known =
        std::any_of(infos.begin(), infos.end(),
                    [&](const TensorInfo& t) { return t.name == o.name; });
    if (!known) infos.push_back({o.name, o.value.dtype(), o.shape});
  }
  SafetensorsWriter writer(mesh, args.out, std::move(infos));
  for (const Output& o : out) {
    Layout whole = o.value.layout();
    whole.partials.clear();
    writer.write(o.name, relayout(o.value, o.value.spec()->with(whole)),
                 o.window);
  }
  writer.finish();
  if (!has_head || rt.dry_run()) return;
  const double loss = out[1].value.item();  // every rank calls it
  if (rt.rank() == 0) fmt::print("loss {:.6f}\n", loss);
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  using namespace dtensor;
  examples::Args args;
  Tensor ids;
  Program program({.about = "Computes the logits and the loss of a checkpoint "
                            "of transformers for given token ids, and the "
                            "gradients of all its parameters.",
                   .mesh = "tp=1"});
  args.model.add_to(program, "model.safetensors");
  program.add("--ids", &args.ids, "a safetensors file with input_ids [b, s]",
              TextKind::kFile);
  program.add("--out", &args.out,
              "the safetensors file to write: logits [b, s, vocab] (of an "
              "encoder: last_hidden_state), loss, and grad.NAME",
              TextKind::kFile);
  program.add("--gradients", &args.gradients,
              "also write the gradient of the loss for every tensor of the "
              "checkpoint");
  program.add("--recompute", &args.recompute,
              "recompute blocks in the backward pass",
              {"none", "block", "attention"});
  return program.main(
      argc, argv,
      [&] {
        args.model.check();
        for (const auto& [flag, value] :
             {std::pair("--ids", &args.ids), std::pair("--out", &args.out)}) {
          DT_CHECK(!value->empty(), flag, "it is missing; write {} PATH", flag);
          *value = caller_path(*value);
        }
        DT_CHECK(!args.gradients || !args.model.int8(), "--gradients",
                 "weights of int8 have no gradient; leave out --weights int8");
        ids = examples::read_token_ids(
            args.ids, nn::read_config(args.model.dir + "/config.json").vocab);
      },
      [&] {
        run(program.run_options(),
            [&](Runtime& rt) { examples::score(args, ids, rt); });
      });
}
