#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the losses and gradients of the models of tests/models/, by torch.

  tools/model_cases.py [--out tests/models/expected.json] [--only unet,resnet]

Needs torch. Parameters and inputs come from a formula (numbers(), below), which
tests/models/testing.h has too, so that the file has only results: of each model
ten losses, with a step of plain SGD between two of them, and for the gradient of
each parameter at the first step its sum and its product with other numbers of
the formula. All in f64.
"""

import argparse
import json
import math

import torch
import torch.nn.functional as F


def numbers(shape, seed, scale=1.0):
    """Numbers in [-scale, scale), which look random: a hash of the index."""
    n = math.prod(shape)
    i = torch.arange(n, dtype=torch.int64)
    x = (i * 2654435761 + seed * 40503 + 12345) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 739982445) & 0xFFFFFFFF
    x = ((x ^ (x >> 12)) * 695872825) & 0xFFFFFFFF
    x = x ^ (x >> 15)
    return ((x.double() / 2**31 - 1) * scale).reshape(shape)


def integers(shape, seed, below):
    return ((numbers(shape, seed) + 1) / 2 * below).long()


class Parameters:
    """Makes a parameter when it is first asked for."""

    def __init__(self, dtype=torch.float64):
        self.made = {}
        self.dtype = dtype

    def input(self, shape, seed):
        return numbers(shape, seed).to(self.dtype)

    def __call__(self, name, shape, scale=None, around=0.0):
        if name not in self.made:
            if scale is None:
                scale = math.sqrt(3 / max(1, math.prod(shape[1:])))
            value = numbers(shape, len(self.made) + 1, scale) + around
            self.made[name] = value.to(self.dtype).requires_grad_()
        return self.made[name]

    def conv(self, name, x, out, size=3, bias=True, **options):
        w = self(name + ".weight", [out, x.size(1)] + [size] * (x.ndim - 2))
        b = self(name + ".bias", [out], 0.1) if bias else None
        return F.conv2d(x, w, b, **options)

    def linear(self, name, x, out):
        w = self(name + ".weight", [out, x.size(-1)])
        return F.linear(x, w, self(name + ".bias", [out], 0.1))

    def affine(self, name, n):
        return (self(name + ".weight", [n], 0.2, 1.0),
                self(name + ".bias", [n], 0.1))


def unet(p, images=(3, 3, 22, 18), width=8):
    """A U-Net with group norm, a strided and a transposed convolution."""
    x, inner = p.input(images, 901), 2 * width

    def block(name, x, out):
        x = p.conv(name, x, out, padding=1)
        return F.silu(F.group_norm(x, 2, *p.affine(name + ".norm", out)))

    a = block("a", x, width)
    b = block("b", F.max_pool2d(a, 2), inner)
    c = block("c", p.conv("down", b, inner, stride=2, padding=1), inner)
    w = p("up.weight", [inner, inner, 2, 2], 0.3)
    up = F.conv_transpose2d(c, w, stride=2)[:, :, :b.size(2), :b.size(3)]
    d = block("d", torch.cat([b, up], 1), inner)
    e = F.interpolate(d, scale_factor=2.0, mode="bilinear")
    y = p.conv("out", block("e", torch.cat([a, e], 1), width), 3, padding=1)
    return F.mse_loss(y, p.input(y.shape, 902))


def resnet(p, images=(5, 3, 40, 36), width=4):
    """ResNet-50 (He et al., 2015) with a sixteenth of its channels."""
    x, classes = p.input(images, 903), integers([images[0]], 904, 10)

    def norm(name, x):
        weight, bias = p.affine(name, x.size(1))
        return F.batch_norm(x, None, None, weight, bias, training=True)

    def bottleneck(name, x, width, stride):
        y = norm(name + ".n1", p.conv(name + ".c1", x, width, 1, False))
        y = p.conv(name + ".c2", F.relu(y), width, 3, False, stride=stride,
                   padding=1)
        y = p.conv(name + ".c3", F.relu(norm(name + ".n2", y)), 4 * width, 1,
                   False)
        if x.size(1) != 4 * width or stride != 1:
            x = norm(name + ".nx",
                     p.conv(name + ".cx", x, 4 * width, 1, False, stride=stride))
        return F.relu(x + norm(name + ".n3", y))

    x = p.conv("stem", x, width, 7, False, stride=2, padding=3)
    x = F.max_pool2d(F.relu(norm("stem.norm", x)), 3, 2, 1)
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for i in range(blocks):
            x = bottleneck(f"s{stage}.{i}", x, width * 2**stage,
                           2 if stage > 0 and i == 0 else 1)
    x = F.adaptive_avg_pool2d(x, 1).flatten(1)
    return F.cross_entropy(p.linear("head", x, 10), classes)


def dlrm(p):
    """DLRM (Naumov et al., 2019): tables, products of pairs, two MLPs."""
    n, dim, rows = 12, 8, [50, 7, 120]
    dense, clicked = numbers([n, 13], 905), (numbers([n], 906) > 0).double()

    def mlp(name, x, sizes):
        for i, size in enumerate(sizes):
            x = F.relu(p.linear(f"{name}.{i}", x, size))
        return x

    features = [mlp("bottom", dense, [16, dim])]
    for t, r in enumerate(rows):
        ids = integers([n, 3], 910 + t, r)
        table = p(f"table.{t}", [r, dim], 0.5)
        features.append(F.embedding_bag(ids, table, mode="sum"))
    x = torch.stack(features, 1)
    i, j = torch.tril_indices(x.size(1), x.size(1), -1)
    pairs = torch.bmm(x, x.mT)[:, i, j]
    top = mlp("top", torch.cat([features[0], pairs], 1), [16])
    score = p.linear("score", top, 1).squeeze(1)
    return F.binary_cross_entropy_with_logits(score, clicked)


def ctc(p):
    """Convolutions over time and the CTC loss."""
    x = numbers([4, 6, 30], 920)  # [n, features, time]
    w = p("c1.weight", [16, 6, 5])
    x = F.gelu(F.conv1d(x, w, p("c1.bias", [16], 0.1), stride=2, padding=2))
    w = p("c2.weight", [16, 1, 3])
    x = F.gelu(F.conv1d(x, w, p("c2.bias", [16], 0.1), padding=1, groups=16))
    x = F.layer_norm(x.permute(2, 0, 1), [16], *p.affine("norm", 16))
    scores = F.log_softmax(p.linear("head", x, 11), 2)
    targets = integers([4, 5], 921, 10) + 1
    lengths = torch.tensor([15, 12, 15, 9]), torch.tensor([5, 3, 0, 4])
    return F.ctc_loss(scores, targets, *lengths)


def dit(p):
    """A diffusion transformer (Peebles and Xie, 2022) of two blocks."""
    x, noise = numbers([2, 4, 8, 8], 930), numbers([2, 4, 8, 8], 931)
    time = torch.tensor([0.1, 0.7], dtype=torch.float64)
    dim, heads = 16, 2
    w = p("patch.weight", [dim, 4, 2, 2])
    h = F.conv2d(x + noise * time[:, None, None, None], w,
                 p("patch.bias", [dim], 0.1), stride=2)
    h = h.flatten(2).mT + p("position", [16, dim], 0.1)
    frequency = torch.exp(-torch.arange(8, dtype=torch.float64))
    angle = time[:, None] * 1000 * frequency
    c = p.linear("time", torch.cat([torch.cos(angle), torch.sin(angle)], 1),
                 dim)
    c = F.silu(c)
    for i in range(2):
        m = p.linear(f"{i}.modulation", c, 6 * dim).unsqueeze(1).chunk(6, 2)
        y = F.layer_norm(h, [dim]) * (1 + m[0]) + m[1]
        q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2)
                   for t in p.linear(f"{i}.qkv", y, 3 * dim).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        h = h + m[2] * p.linear(f"{i}.proj", y, dim)
        y = F.layer_norm(h, [dim]) * (1 + m[3]) + m[4]
        y = F.gelu(p.linear(f"{i}.up", y, 4 * dim), approximate="tanh")
        h = h + m[5] * p.linear(f"{i}.down", y, dim)
    y = p.linear("out", F.layer_norm(h, [dim]), 16)
    y = F.pixel_shuffle(y.mT.unflatten(2, (4, 4)), 2)
    return F.mse_loss(y, noise)


def gaussian_process(p):
    """The negative log-likelihood of a Gaussian process, by Cholesky."""
    x, y = numbers([24, 3], 940), numbers([24], 941)
    size, noise = p("length", [3], 0.2, 1.0), p("noise", [], 0.1, 0.5)
    z = x / size
    distance = ((z[:, None] - z[None]) ** 2).sum(2)
    k = p("variance", [], 0.1, 1.0) * torch.exp(-distance / 2)
    l = torch.linalg.cholesky(k + noise**2 * torch.eye(24).double())
    a = torch.linalg.solve_triangular(l, y[:, None], upper=False)
    return (a**2).sum() / 2 + torch.log(torch.diagonal(l)).sum()


MODELS = {"unet": (unet, 0.1), "resnet": (resnet, 0.05), "dlrm": (dlrm, 0.5),
          "ctc": (ctc, 0.05), "dit": (dit, 0.1),
          "gaussian_process": (gaussian_process, 0.005)}


def run(model, rate):
    p = Parameters()
    losses, first = [], {}
    for step in range(10):
        loss = model(p)
        names = list(p.made)
        grads = torch.autograd.grad(loss, [p.made[n] for n in names])
        losses.append(loss.item())
        if step == 0:
            for name, g in zip(names, grads):
                other = numbers(list(g.shape), 7)
                first[name] = [g.sum().item(), (g * other).sum().item()]
        for name, g in zip(names, grads):
            p.made[name] = (p.made[name] - rate * g).detach().requires_grad_()
    return {"rate": rate, "losses": losses, "gradients": first}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="tests/models/expected.json")
    parser.add_argument("--only", default=",".join(MODELS))
    options = parser.parse_args()
    results = {}
    for name in options.only.split(","):
        results[name] = run(*MODELS[name])
        print(name, results[name]["losses"])
    # One line for each model.
    lines = [f"{json.dumps(n)}: {json.dumps(r)}" for n, r in results.items()]
    with open(options.out, "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
