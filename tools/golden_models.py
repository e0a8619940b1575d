#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes goldens of model families with random weights: see tests/nn/data/README.md.

  golden_models.py TO [FAMILY|FOLDER...]

TO/FAMILY, or TO/NAME for a FOLDER of that name with a checkpoint and an
expected.safetensors with input_ids, gets config.json and model.safetensors as transformers saves them, and
expected.safetensors with what transformers computes from these weights wholly in
f64: input_ids, logits (or last_hidden_state), loss, and the gradient of every
parameter. golden_sketch.py makes them smaller. Needs torch and transformers.
"""

import json
import os
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

SMALL = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=6,
             vocab_size=61, max_position_embeddings=40, initializer_range=0.15)
GROUPED = dict(SMALL, intermediate_size=40, num_key_value_heads=2)
# Family: class, config class, and the config's members.
FAMILIES = {
    "bert": ("BertModel", dict(SMALL, intermediate_size=40)),
    "bert-mlm": ("BertForMaskedLM", dict(SMALL, intermediate_size=40)),
    "gemma2": ("Gemma2ForCausalLM",
               dict(GROUPED, head_dim=6, query_pre_attn_scalar=5,
                    sliding_window=7)),
    "gpt_neox": ("GPTNeoXForCausalLM",
                 dict(SMALL, hidden_size=48, intermediate_size=40)),
    "llama3": ("LlamaForCausalLM",
               dict(GROUPED, num_key_value_heads=3, tie_word_embeddings=True,
                    attention_bias=True, mlp_bias=True,
                    rope_parameters=dict(
                        rope_type="llama3", rope_theta=500000.0, factor=8.0,
                        low_freq_factor=1.0, high_freq_factor=4.0,
                        original_max_position_embeddings=32))),
    "mistral": ("MistralForCausalLM", dict(GROUPED, sliding_window=7)),
    "olmo2": ("Olmo2ForCausalLM", dict(GROUPED, pad_token_id=None)),
    "phi3": ("Phi3ForCausalLM", dict(GROUPED, pad_token_id=0,
                                     sliding_window=9)),
    "qwen3": ("Qwen3ForCausalLM",
              dict(GROUPED, head_dim=8, sliding_window=5,
                   use_sliding_window=True, max_window_layers=1)),
    "qwen3_moe": ("Qwen3MoeForCausalLM",
                  dict(GROUPED, head_dim=8, num_local_experts=5,
                       num_experts_per_tok=3, moe_intermediate_size=20,
                       norm_topk_prob=False)),
    # The model of examples/12_own_architecture.cc, in tests/examples/data.
    "starcoder2": ("Starcoder2ForCausalLM", dict(GROUPED, sliding_window=7)),
}


def in_f64():
    """Lets transformers compute in f64 where it asks for f32."""
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double


def make(name, folder):
    """A checkpoint with random weights, and token ids."""
    class_name, members = FAMILIES[name]
    kind = getattr(transformers, class_name)
    model = kind(kind.config_class(**members))
    with torch.no_grad():
        # Norms and biases begin at 1 and 0, where mistakes do not show.
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.15)
    model.save_pretrained(folder)
    return torch.randint(1, model.config.vocab_size, (3, 19))


def copy(source, folder):
    """A checkpoint of another folder, and its token ids."""
    os.makedirs(folder, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
    return load_file(os.path.join(source, "expected.safetensors"))["input_ids"]


def main():
    to, names = sys.argv[1], sys.argv[2:] or list(FAMILIES)
    models = []
    for number, name in enumerate(names):
        torch.manual_seed(number)
        folder = os.path.join(to, os.path.basename(name.rstrip("/")))
        ids = copy(name, folder) if os.path.isdir(name) else make(name, folder)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            kind = getattr(transformers, json.load(f)["architectures"][0])
        models.append((folder, kind, ids,
                       kind.from_pretrained(folder).state_dict()))
    in_f64()
    for folder, kind, ids, weights in models:
        config = kind.config_class.from_pretrained(folder)
        config._attn_implementation = "eager"
        config._experts_implementation = "eager"
        torch.set_default_dtype(torch.float64)
        model = kind(config).double().eval()
        model.load_state_dict({k: v.double() for k, v in weights.items()})
        expected = {"input_ids": ids}
        out = model(input_ids=ids)
        if "logits" in out:
            logits = out.logits
            expected["logits"] = logits.detach()
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].reshape(-1, logits.shape[-1]),
                ids[:, 1:].reshape(-1))
            expected["loss"] = loss.detach()
            loss.backward()
            for key, p in model.named_parameters():
                if p.grad is not None:
                    expected["grad." + key] = p.grad
        else:
            expected["last_hidden_state"] = out.last_hidden_state.detach()
        save_file({k: v.contiguous() for k, v in expected.items()},
                  os.path.join(folder, "expected.safetensors"))
        print(folder, len(expected), "tensors, loss",
              expected["loss"].item() if "loss" in expected else "none")


if __name__ == "__main__":
    main()
