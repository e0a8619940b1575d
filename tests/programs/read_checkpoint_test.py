#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what tools/read_checkpoint.py reads with the weights that the same
training exports for transformers, and with each rank's safetensors file."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tools")
import read_checkpoint  # noqa: E402


def safetensors(path):
    """{name: (shape, bytes)}"""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        header, data = json.loads(f.read(length)), f.read()
    header.pop("__metadata__", None)
    return {name: (t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items()}


class ReadCheckpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        run, cls.model = cls.folder.name + "/run", cls.folder.name + "/model"
        subprocess.run(
            ["programs/train", *"--model llama --layers 2 --hidden 32 --heads 4 "
             "--seq 16 --sample 0 --mesh dp=2,tp=3 --zero 3 --steps 2".split(),
             "--checkpoint", run, "--save", cls.model],
            check=True, stdout=subprocess.DEVNULL)
        cls.checkpoint = run + "/step-00000002"
        cls.step, cls.values, cls.tensors = read_checkpoint.read(cls.checkpoint)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_weights_are_those_of_the_exported_model(self):
        exported = safetensors(self.model + "/model.safetensors")
        self.assertGreater(len(exported), 15)
        for name, (shape, data) in exported.items():
            dtype, own_shape, own = self.tensors["model/" + name]
            self.assertEqual((dtype, own_shape, bytes(own)), ("f32", shape, data), name)

    def test_the_rest(self):
        self.assertEqual(self.step, 2)
        self.assertIn("batch", " ".join(self.values))

    def test_files_are_safetensors_files(self):
        files = glob.glob(self.checkpoint + "/rank-*.safetensors")
        self.assertEqual(len(files), 6)
        boxes = 0
        for file in files:
            for name, (shape, data) in safetensors(file).items():
                tensor, _, box = name.rpartition("[")
                dtype, whole, all_bytes = self.tensors[tensor]
                ranges = [[int(i) for i in r.split(":")]
                          for r in box[:-1].split(", ") if r]
                self.assertEqual([hi - lo for lo, hi in ranges], shape, name)
                if len(shape) == 1:
                    item = read_checkpoint.TYPES[dtype][0]
                    self.assertEqual(
                        bytes(all_bytes[ranges[0][0] * item:ranges[0][1] * item]), data)
                boxes += 1
        self.assertGreater(boxes, len(self.tensors))

    def test_the_program(self):
        tool = ["tools/read_checkpoint.py"]
        done = subprocess.run(tool + [self.checkpoint], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step 2; checksums", done.stdout)
        self.assertIn("model/lm_head.weight f32[", done.stdout)
        done = subprocess.run(tool + [self.model], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no index.json", done.stderr)

    def test_a_file_that_is_cut_short(self):
        copy = self.folder.name + "/cut"
        shutil.copytree(self.checkpoint, copy)
        file = copy + "/rank-00001.safetensors"
        os.truncate(file, os.path.getsize(file) - 1)
        done = subprocess.run(["tools/read_checkpoint.py", copy],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rank-00001.safetensors is damaged: it ends within", done.stderr)

    def test_torch_loads_it(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        out = self.folder.name + "/all.pt"
        subprocess.run([sys.executable, "tools/read_checkpoint.py", self.checkpoint,
                        "--out", out], check=True, stdout=subprocess.DEVNULL)
        loaded = torch.load(out)
        self.assertEqual(set(loaded), set(self.tensors))
        for name, (_, shape, data) in self.tensors.items():
            self.assertEqual(list(loaded[name].shape), shape)
            flat = loaded[name].contiguous().flatten().view(torch.uint8)
            self.assertEqual(bytes(flat.numpy().tobytes()), bytes(data), name)


if __name__ == "__main__":
    unittest.main()
