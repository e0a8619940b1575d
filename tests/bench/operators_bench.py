#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares single operators with torch, on one core, in turns.

    bazel build -c opt //tests/bench:operators_bench
    operators_bench.py bazel-bin/tests/bench/operators_bench

For each case it prints the medians of both sides and torch's time divided by
ours; at the end the geometric mean of these ratios, and the cases below --limit.
Times are of the processor, since each side has one thread.
Rounds in which another virtual machine took the processor (steal in /proc/stat)
are repeated. Needs torch (pip install torch, in a virtual environment).
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import time


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="operators_bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--limit", type=float, default=0.9)
    parser.add_argument("--only", default="", help="cases with this in the name")
    return parser.parse_args()


BIG = (1024, 1024)


def torch_cases():
    """The cases of operators_bench.cc: a function that makes each call."""
    import torch
    from torch.nn import functional as F
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                    "../../tools"))
    import model_cases

    bf16 = torch.bfloat16

    def x(shape, t=torch.float32):
        return (torch.rand(shape) * 4 - 2).to(t)

    def ids(shape, n):
        return torch.randint(0, n, shape)

    def one(f, shape=BIG, t=torch.float32):
        def make():
            a = x(shape, t)
            return lambda: f(a)
        return make

    def two(f, a=BIG, b=BIG, t=torch.float32):
        def make():
            p, q = x(a, t), x(b, t)
            return lambda: f(p, q)
        return make

    def gradient(f, *inputs):
        """inputs: functions that make tensors, of which floats get gradients."""
        def make():
            given = [i() for i in inputs]
            to = [g.requires_grad_() for g in given if g.is_floating_point()]
            y = f(*given)
            dy = x(y.shape)
            return lambda: torch.autograd.grad(y, to, dy, retain_graph=True)
        return make

    def call(f, *inputs):
        def make():
            given = [i() for i in inputs]
            return lambda: f(*given)
        return make

    def big():
        return x(BIG)

    def row():
        return x((1024,))

    cases = {}
    def positive():
        return torch.rand(BIG) * 1.9 + 0.1

    for name in ("abs neg square exp expm1 sin cos tanh sigmoid erf relu floor "
                 "round sign clone").split():
        cases[name] = one(getattr(torch, name))
    for name in "sqrt rsqrt log log1p".split():
        cases[name] = call(getattr(torch, name), positive)
    cases["pow"] = call(torch.pow, positive, big)
    cases["silu"], cases["softplus"] = one(F.silu), one(F.softplus)
    cases["gelu"] = one(F.gelu)
    cases["gelu_tanh"] = one(lambda a: F.gelu(a, approximate="tanh"))
    for name in "add sub mul div maximum atan2 lt eq".split():
        cases[name] = two(getattr(torch, name))
    cases.update({
        "add number": one(lambda a: a + 1.5),
        "clamp": one(lambda a: a.clamp(-1, 1)),
        "clamp from below": one(lambda a: a.clamp(min=0.5)),
        "lerp": two(lambda a, b: torch.lerp(a, b, 0.25)),
        "where": call(torch.where, lambda: big() > big(), big, big),
        "to bf16": one(lambda a: a.to(bf16)),
        "to f32": one(lambda a: a.to(torch.float32), BIG, bf16),
        "add bf16": two(torch.add, BIG, BIG, bf16),
        "gelu bf16": one(F.gelu, BIG, bf16),
        "add a row": two(torch.add, BIG, (1024,)),
        "add a column": two(torch.add, BIG, (1024, 1)),
        "[65536,4] + [4]": two(torch.add, (65536, 4), (4,)),
        "[65536,16] + [16]": two(torch.add, (65536, 16), (16,)),
        "[16384,64] + [64]": two(torch.add, (16384, 64), (64,)),
        "[65536,4] * [65536,1]": two(torch.mul, (65536, 4), (65536, 1)),
        "[8,64,56,56] + [64,1,1]": two(torch.add, (8, 64, 56, 56), (64, 1, 1)),
    })
    for name in "sum mean amax var".split():
        f = getattr(torch, name)
        cases[name + " of all"] = one(lambda a, f=f: f(a))
        for dim in 0, 1:
            cases[f"{name} over {dim}"] = one(lambda a, f=f, d=dim: f(a, d))
    cases.update({
        "[65536,4] sum over 0": one(lambda a: a.sum(0), (65536, 4)),
        "[65536,4] sum over 0, gradient":
            gradient(lambda a: a.sum(0), lambda: x((65536, 4))),
        "[262144,4] sum over 1": one(lambda a: a.sum(1), (262144, 4)),
        "logsumexp over 1": one(lambda a: a.logsumexp(1)),
        "argmax over 1": one(lambda a: a.argmax(1)),
        "cumsum over 0": one(lambda a: a.cumsum(0)),
        "cumsum over 1": one(lambda a: a.cumsum(1)),
        "cumprod over 1": one(lambda a: a.cumprod(1)),
        "softmax": one(lambda a: a.softmax(-1)),
        "softmax, gradient": gradient(lambda a: a.softmax(-1), big),
        "log_softmax": one(lambda a: a.log_softmax(-1)),
        "softmax over channels": one(lambda a: a.softmax(1), (8, 32, 64, 64)),
        "softmax over the middle": one(lambda a: a.softmax(1), (64, 256, 64)),
    })

    def layer(a, gamma, beta):
        return F.layer_norm(a, (1024,), gamma, beta)

    def rms(a, gamma):
        return F.rms_norm(a, (1024,), gamma, 1e-6)

    cases.update({
        "layer_norm": call(layer, big, row, row),
        "layer_norm, gradient": gradient(layer, big, row, row),
        "rms_norm": call(rms, big, row),
        "rms_norm, gradient": gradient(rms, big, row),
        "cross_entropy":
            call(F.cross_entropy, big, lambda: ids((1024,), 1024)),
        "transpose": one(lambda a: a.t().contiguous()),
        "cat": two(lambda a, b: torch.cat((a, b), 1)),
        "flip": one(lambda a: a.flip(1)),
        "roll": one(lambda a: a.roll(3, 1)),
        "pad": one(lambda a: F.pad(a, (1, 1))),
        "tril": one(torch.tril),
        "sort": one(lambda a: a.sort()[0]),
        "topk": one(lambda a: a.topk(8)[0]),
        "one_hot": call(lambda t: F.one_hot(t, 1024), lambda: ids((1024,), 1024)),
        "index_select": call(lambda a, t: a.index_select(0, t), big,
                             lambda: ids((1024,), 1024)),
        "gather": call(lambda a, t: a.gather(1, t), big, lambda: ids(BIG, 1024)),
        "scatter_add": call(lambda a, b, t: a.scatter_add(1, t, b), big, big,
                            lambda: ids(BIG, 1024)),
        "embedding": call(lambda w, t: F.embedding(t, w),
                          lambda: x((8192, 256)), lambda: ids((4096,), 8192)),
        "embedding, gradient":
            gradient(lambda w, t: F.embedding(t, w), lambda: x((8192, 256)),
                     lambda: ids((4096,), 8192)),
        "matmul": two(torch.matmul, (512, 512), (512, 512)),
        "einsum bchw,bchw->bc":
            two(lambda a, b: torch.einsum("bchw,bchw->bc", a, b),
                (8, 32, 64, 64), (8, 32, 64, 64)),
        "randn": lambda: lambda: torch.randn(BIG),
        "rand": lambda: lambda: torch.rand(BIG),
    })

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def heads():
        return x((2, 256, 8, 64)).transpose(1, 2)

    cases["attention"] = call(attend, heads, heads, heads)
    for name, shape, weight, stride, padding, dilation, groups in (
            ("resnet stem", (2, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1, 1),
            ("resnet 1x1", (2, 64, 56, 56), (256, 64, 1, 1), 1, 0, 1, 1),
            ("resnet 3x3 of 64", (2, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1, 1),
            ("resnet 3x3 by 2", (2, 128, 56, 56), (128, 128, 3, 3), 2, 1, 1, 1),
            ("resnet 1x1 by 2", (2, 256, 56, 56), (512, 256, 1, 1), 2, 0, 1, 1),
            ("resnet 3x3 of 256", (2, 256, 14, 14), (256, 256, 3, 3),
             1, 1, 1, 1),
            ("resnet 3x3 of 512", (2, 512, 7, 7), (512, 512, 3, 3), 1, 1, 1, 1),
            ("mobilenet depthwise", (2, 96, 56, 56), (96, 1, 3, 3),
             1, 1, 1, 96),
            ("resnext groups", (2, 128, 28, 28), (128, 4, 3, 3), 1, 1, 1, 32),
            ("deeplab dilated", (1, 256, 28, 28), (256, 256, 3, 3), 1, 2, 2, 1),
            ("diffusion 3x3", (1, 320, 32, 32), (320, 320, 3, 3), 1, 1, 1, 1),
            ("vit patches", (2, 3, 224, 224), (768, 3, 16, 16), 16, 0, 1, 1),
            ("whisper conv1d", (1, 80, 3000), (384, 80, 3), 1, 1, 1, 1),
            ("wav2vec conv1d by 2", (1, 512, 1600), (512, 512, 3), 2, 0, 1, 1),
            ("video conv3d", (1, 16, 8, 28, 28), (32, 16, 3, 3, 3),
             1, 1, 1, 1),
            ("unet up 2x2", (2, 64, 28, 28), (64, 32, 2, 2), 2, 0, 1, 1)):
        space = len(shape) - 2
        f = (F.conv_transpose2d if name == "unet up 2x2" else
             (F.conv1d, F.conv2d, F.conv3d)[space - 1])

        def conv(a, w, f=f, s=stride, p=padding, d=dilation, g=groups):
            return f(a, w, stride=s, padding=p, dilation=d, groups=g)

        given = (lambda s=shape: x(s)), (lambda s=weight: x(s))
        cases[name] = call(conv, *given)
        cases[name + ", gradient"] = gradient(conv, *given)

    def image():
        return x((2, 64, 112, 112))

    def largest(a):
        return F.max_pool2d(a, 3, 2, 1)

    def average(a):
        return F.avg_pool2d(a, 2)

    for name, f in ("max_pool2d", largest), ("avg_pool2d", average):
        cases[name], cases[name + ", gradient"] = call(f, image), gradient(
            f, image)

    def small():
        return x((2, 64, 56, 56))

    def resized(mode):
        return lambda a: F.interpolate(a, scale_factor=2.0, mode=mode)

    def batched(a):
        return F.batch_norm(a, None, None, training=True)

    def grouped(a):
        return F.group_norm(a, 32)

    cases.update({
        "upsample nearest": call(resized("nearest"), small),
        "upsample bilinear": call(resized("bilinear"), small),
        "upsample bilinear, gradient": gradient(resized("bilinear"), small),
        "upsample bicubic": call(resized("bicubic"), small),
        "grid_sample": call(lambda a, g: F.grid_sample(a, g, align_corners=False),
                            small, lambda: x((2, 56, 56, 2))),
        "unfold": call(lambda a: F.unfold(a, 3), small),
        "fold": call(lambda a: F.fold(a, 56, 3), lambda: x((2, 16 * 9, 54 * 54))),
        "pad reflect": call(lambda a: F.pad(a, (3, 3, 3, 3), mode="reflect"),
                            image),
        "group_norm": call(grouped, image),
        "group_norm, gradient": gradient(grouped, image),
        "batch_norm": call(batched, image),
        "batch_norm, gradient": gradient(batched, image),
        "pixel_shuffle": call(lambda a: F.pixel_shuffle(a, 2), image),
    })

    def matrix():
        return x((256, 256))

    def line():
        return x((1 << 20,))

    def points():
        return x((1024, 32))

    def definite():
        a = matrix()
        return a @ a.T + torch.eye(256)

    cases.update({
        "erfinv": one(torch.erfinv),
        "lgamma": one(torch.lgamma),
        "digamma": one(torch.digamma),
        "i0": one(torch.i0),
        "logcumsumexp over 1": one(lambda a: a.logcumsumexp(1)),
        "prod over 1": one(lambda a: a.prod(1)),
        "max over 1": one(lambda a: a.max(1)[0]),
        "kthvalue": one(lambda a: a.kthvalue(500)[0]),
        "median": one(lambda a: a.median(1)[0]),
        "quantile": one(lambda a: a.quantile(0.9, 1)),
        "histc": call(lambda a: a.histc(100, -2, 2), line),
        "unique": call(lambda a: torch.unique(torch.round(a * 100)), line),
        "nonzero": one(lambda a: a.relu().nonzero()),
        "diff": one(torch.diff),
        "cov": call(torch.cov, matrix),
        "diagonal": one(lambda a: a.diagonal().clone()),
        "rot90": one(lambda a: a.rot90().contiguous()),
        "bernoulli": one(lambda a: torch.bernoulli(a.abs() * 0.5)),
        "normal": one(lambda a: torch.normal(a, 1.0)),
        "normalize": one(F.normalize),
        "qr": call(lambda a: torch.linalg.qr(a)[0], matrix),
        "svd": call(lambda a: torch.linalg.svd(a, full_matrices=False)[1],
                    matrix),
        "eigh": call(lambda a: torch.linalg.eigh(a + a.T)[0], matrix),
        "lu, det": call(torch.linalg.det, matrix),
        "inv": call(torch.linalg.inv, matrix),
        "matrix_exp": call(torch.linalg.matrix_exp, matrix),
        "solve": call(torch.linalg.solve, matrix, matrix),
        "solve_triangular": call(
            lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), matrix,
            matrix),
        "cdist": call(torch.cdist, points, points),
        "kron": two(torch.kron, (32, 32), (32, 32)),
        "masked_select": two(lambda a, b: a.masked_select(b > 0)),
        "mse_loss": two(F.mse_loss),
        "kl_div": two(lambda a, b: F.kl_div(a, b.abs())),
        "bce with logits": two(lambda a, b: F.binary_cross_entropy_with_logits(
            a, b.abs() * 0.5)),
        "cosine_similarity": two(F.cosine_similarity),
        "cholesky": call(torch.linalg.cholesky, definite),
        "searchsorted": call(torch.searchsorted, lambda: x((4096,)).sort()[0],
                             line),
        "scatter_reduce amax": call(
            lambda a, b, t: a.scatter_reduce(1, t, b, "amax"), big, big,
            lambda: ids(BIG, 1024)),
        "index_put": call(lambda a, b, t: a.index_put((t,), b), big, big,
                          lambda: ids((1024,), 1024)),
        "take_along_dim": call(lambda a, t: a.take_along_dim(t, 1), big,
                               lambda: ids(BIG, 1024)),
        "embedding_bag": call(lambda w, t: F.embedding_bag(t, w),
                              lambda: x((8192, 64)),
                              lambda: ids((2048, 8), 8192)),
        "ctc_loss": call(
            lambda a, t: F.ctc_loss(a, t, torch.full((16,), 128),
                                    torch.full((16,), 32)),
            lambda: x((128, 16, 64)).log_softmax(-1),
            lambda: ids((16, 32), 63) + 1),
    })

    def step(model, *sizes, dtype=torch.float32):
        def make():
            p = model_cases.Parameters(dtype)
            model(p, *sizes)
            return lambda: torch.autograd.grad(model(p, *sizes),
                                               list(p.made.values()))
        return make

    # A step of torch's does not make its inputs again; one of ours does.
    for name in "numbers", "integers":
        made, function = {}, getattr(model_cases, name)

        def once(shape, *rest, made=made, function=function):
            key = (*shape, None, *rest)
            if key not in made:
                made[key] = function(shape, *rest)
            return made[key]

        setattr(model_cases, name, once)
    cases["resnet50 step"] = step(model_cases.resnet, (4, 3, 224, 224), 64)
    cases["unet step"] = step(model_cases.unet, (2, 3, 128, 128), 32)
    for name, model in (("dlrm", model_cases.dlrm), ("ctc", model_cases.ctc),
                        ("diffusion transformer", model_cases.dit),
                        ("gaussian process", model_cases.gaussian_process)):
        cases[name + " step"] = step(model, dtype=torch.float64)
    torch.set_num_threads(1)
    return cases


def seconds(call):
    times = 1
    while True:
        start = time.process_time()
        for _ in range(times):
            call()
        took = time.process_time() - start
        if took > 0.02:
            return took / times
        times *= 2


def steal():
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[8])


class Ours:
    def __init__(self, args):
        self.process = subprocess.Popen(
            [args.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)

    def time(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(name, call, ours, rounds):
    """The medians of torch and of ours, over rounds without steal."""
    ours.time(name), seconds(call)  # warm up
    all_ours, all_torch = [], []
    for _ in range(3 * rounds):
        before = steal()
        a, b = ours.time(name), seconds(call)
        if steal() == before:
            all_ours.append(a)
            all_torch.append(b)
        if len(all_ours) == rounds:
            break
    if not all_ours:
        sys.exit("operators_bench.py: the processor is taken in every round")
    return statistics.median(all_torch), statistics.median(all_ours)


def main():
    args = parse_args()
    os.sched_setaffinity(0, {args.core})
    listed = subprocess.run([args.program, "--list"], check=True, text=True,
                            capture_output=True).stdout.splitlines()
    cases = torch_cases()
    if set(listed) != set(cases):
        sys.exit("operators_bench.py: only one side has "
                 f"{sorted(set(listed) ^ set(cases))}")
    ours, ratios = Ours(args), {}
    print(f"{'case':34} {'torch us':>10} {'ours us':>10} {'ratio':>6}")
    for name in listed:
        if args.only not in name:
            continue
        torch_s, ours_s = compare(name, cases[name](), ours, args.rounds)
        ratios[name] = torch_s / ours_s
        print(f"{name:34} {torch_s * 1e6:10.1f} {ours_s * 1e6:10.1f} "
              f"{ratios[name]:6.2f}", flush=True)
    ours.end()
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    below = {n: r for n, r in ratios.items() if r < args.limit}
    print(f"{len(ratios)} cases, geometric mean {mean:.2f}, "
          f"{len(below)} below {args.limit}")
    for name, ratio in sorted(below.items(), key=lambda item: item[1]):
        print(f"  {ratio:.2f} {name}")


if __name__ == "__main__":
    main()
