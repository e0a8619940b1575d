#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""//:generate and //:score on checkpoints that transformers wrote."""

import json
import os
import struct
import subprocess
import tempfile
import unittest

CHAT, GENERATE, SCORE = "programs/chat", "programs/generate", "programs/score"
TRAIN = "programs/train"
MODELS = "tests/nn/data"


def write_ids(path, rows):
    numbers = [i for row in rows for i in row]
    header = json.dumps({"input_ids": {
        "dtype": "I64", "shape": [len(rows), len(rows[0])],
        "data_offsets": [0, 8 * len(numbers)]}}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.write(struct.pack(f"<{len(numbers)}q", *numbers))


def read(path):
    """All f64 tensors of a safetensors file, flat."""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name == "__metadata__" or t["dtype"] != "F64":
            continue
        lo, hi = t["data_offsets"]
        out[name] = struct.unpack(f"<{(hi - lo) // 8}d",
                                  data[8 + n + lo:8 + n + hi])
    return out


def run(program, *flags):
    return subprocess.run([program, *flags], capture_output=True, text=True,
                          check=False, timeout=120)


class Pretrained(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = lambda name: os.path.join(self.folder.name, name)

    def tearDown(self):
        self.folder.cleanup()

    def continued(self, *flags, dtype="f64"):
        done = run(GENERATE, "--ids", self.at("ids"), "--json", self.at("out"),
                   "--dtype", dtype, "--tokens", "20", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.at("out"), encoding="utf-8") as f:
            return json.load(f)["ids"]

    def test_the_same_texts_with_and_without_a_cache(self):
        write_ids(self.at("ids"), [[7, 3, 11, 2, 9], [1, 2, 3, 4, 5]])
        for model in "gpt2", "gemma2", "qwen3_moe":
            for drawn in ["--temperature", "0"], ["--seed", "3", "--top-p", "0.9"]:
                flags = ["--model", f"{MODELS}/{model}", "--ignore-eos", *drawn]
                want = self.continued(*flags, "--no-cache")
                self.assertEqual([len(ids) for ids in want], [20, 20])
                for mesh in "tp=1", "tp=3", "dp=2,tp=2", "pp=2":
                    self.assertEqual(
                        self.continued(*flags, "--mesh", mesh, "--chunk", "3"),
                        want, f"{model} on {mesh}")

    def test_reproducible_texts_are_those_of_one_rank(self):
        # The features are two leaves, each with two heads.
        sizes = ["--layers", "2", "--hidden", "256", "--heads", "4", "--seq", "128"]
        prompt = [i * i % 256 for i in range(90)]
        write_ids(self.at("ids"), [prompt, prompt[:70] + prompt[:20]])
        for model in "gpt", "llama":
            folder = self.at(model)
            done = run(TRAIN, "--model", model, *sizes, "--batch", "1", "--steps", "1",
                       "--sample", "0", "--save", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            for dtype in "f32", "bf16":
                flags = ["--model", folder, "--reproducible", "--temperature", "1"]
                want = self.continued(*flags, "--no-cache", "--mesh", "dp=1", dtype=dtype)
                for mesh in "dp=1", "tp=2", "pp=2", "dp=2", "cp=2":
                    self.assertEqual(
                        self.continued(*flags, "--mesh", mesh, "--chunk", "33",
                                       dtype=dtype),
                        want, f"{model} of {dtype} on {mesh}")

    def test_scores_are_transformers(self):
        model = f"{MODELS}/llama"
        expected = read(f"{model}/expected.safetensors")
        for mesh in "tp=1", "dp=3,tp=2", "cp=2", "pp=2":
            done = run(SCORE, "--model", model, "--ids",
                       f"{model}/expected.safetensors", "--out", self.at("out"),
                       "--gradients", "--dtype", "f64", "--mesh", mesh)
            self.assertEqual(done.returncode, 0, done.stderr)
            got = read(self.at("out"))
            self.assertAlmostEqual(got["loss"][0], expected["loss"][0], 10)
            compared = 0
            for name, want in expected.items():
                # goldens_test compares what is here as a sketch.
                if name.endswith(".sketch"):
                    self.assertIn(name[:-len(".sketch")], got)
                elif name.startswith("grad."):
                    compared += 1
                    for a, b in zip(got[name], want):
                        self.assertAlmostEqual(a, b, 10, name)
            self.assertGreater(compared, 3)

    def test_int8_weights_change_little(self):
        model = f"{MODELS}/llama"
        expected = read(f"{model}/expected.safetensors")
        flags = ["--model", model, "--ids", f"{model}/expected.safetensors",
                 "--out", self.at("out"), "--dtype", "f64", "--weights", "int8"]
        losses = set()
        for mesh in "tp=1", "tp=3":
            done = run(SCORE, *flags, "--mesh", mesh)
            self.assertEqual(done.returncode, 0, done.stderr)
            losses.add(round(read(self.at("out"))["loss"][0], 9))
        self.assertEqual(len(losses), 1)
        off = abs(losses.pop() - expected["loss"][0])
        self.assertTrue(0 < off < 0.01, off)
        self.assertIn("[--gradients] weights of int8 have no gradient; leave "
                      "out --weights int8",
                      run(SCORE, *flags, "--gradients").stderr)
        write_ids(self.at("ids"), [[7, 3, 11], [1, 2, 3]])
        flags = ["--model", model, "--weights", "int8", "--ignore-eos"]
        self.assertEqual(self.continued(*flags),
                         self.continued(*flags, "--mesh", "tp=3"))

    def test_an_encoder_has_no_loss(self):
        model = f"{MODELS}/bert"
        flags = ["--model", model, "--ids", f"{model}/expected.safetensors",
                 "--out", self.at("out"), "--dtype", "f64", "--mesh", "tp=2"]
        self.assertEqual(run(SCORE, *flags).returncode, 0)
        self.assertEqual(list(read(self.at("out"))), ["last_hidden_state"])
        done = run(SCORE, *flags, "--gradients")
        self.assertIn("a bert has no head, and so no loss and no gradients",
                      done.stderr)
        self.assertEqual(run(SCORE, *flags, "--dry-run").returncode, 0)

    def test_bad_input_is_a_sentence(self):
        write_ids(self.at("ids"), [[7, 300]])
        write_ids(self.at("few"), [[7, 3]])
        for program, flags, sentence in [
                (GENERATE, ["--model", f"{MODELS}/llama", "--ids",
                            self.at("ids")],
                 "has the token 300, but the vocabulary of the model is 251"),
                (GENERATE, ["--model", f"{MODELS}/llama"],
                 "write either --prompt TEXT or --ids FILE"),
                (GENERATE, ["--model", f"{MODELS}/llama", "--prompt", "x"],
                 "tokenizer.json"),
                (GENERATE, ["--model", f"{MODELS}/bert", "--ids", self.at("few")],
                 "is a bert, which does not generate text"),
                (SCORE, ["--model", f"{MODELS}/llama", "--ids", self.at("ids"),
                         "--out", self.at("out")],
                 "has the token 300, but the vocabulary of the model is 251"),
                (SCORE, ["--model", "nowhere", "--ids", self.at("ids"), "--out",
                         self.at("out")],
                 "nowhere/config.json is not a regular file")]:
            done = run(program, *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)

    def test_flags_that_cannot_be_met_end_with_2(self):
        llama = ["--model", f"{MODELS}/llama"]
        write_ids(self.at("few"), [[7, 3]])
        few = llama + ["--ids", self.at("few"), "--tokens"]
        seq = 64
        self.assertEqual(run(GENERATE, *few, str(seq - 2)).returncode, 0)
        for program, flags, sentence in [
                (GENERATE, llama + ["--prompt", "x", "--top-p", "2"],
                 "top_p is 2; write a number from 0 to 1"),
                (GENERATE, few + [str(seq - 1)],
                 f"[--tokens] it is {seq - 1}, and the length of the longest prompt is "
                 f"2, but the model's longest sequence is {seq}"),
                (CHAT, llama + ["--tokens", "1000"],
                 f"[--tokens] it is 1000, but the model's longest sequence is {seq}"),
                (CHAT, ["--model", "nowhere"],
                 "nowhere/config.json is not a regular file")]:
            done = run(program, *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main()
