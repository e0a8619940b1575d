#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch's times of the cases of gpu_bench: eager, compiled, and its attention by
cuDNN.

    python3 gpu_bench.py [--against gpu_bench.json] [--cases G1,G3/swiglu]
                         [--json FILE] [--divide 1] [--device cuda]
    python3 gpu_bench.py --serve

Prints a row for each case when it is known. With --against, a file that
gpu_bench wrote with --json on the same machine, a row has the ratios of torch's
times and ours, and of the memory at its highest (beside what there was before),
and the goal. Needs torch with CUDA; --device cpu for a try, without memory.

With --serve, prints "ready" when torch is there, and exits with 77 if it is
not. Then takes cases from standard input, "CASE<tab>AGAINST<tab>JSON" on each
line, and prints "done" after each row. Ends with a case that torch cannot
compute at all: after an error of the GPU, a process cannot use it any more.
"""

import argparse
import gc
import json
import statistics
import sys
import time
import types

# By the start of a case's name: the side that is to take at least so many times
# as long as ours. "torch" is torch's fastest side; "the fastest" also counts
# what gpu_bench compares with. "compiled" is eager where that is faster.
GOALS = {
    "G1": ("the fastest", 0.95),
    "G2/add": ("eager", 2.5),
    "G2/step": ("eager", 5.0),
    "G3": ("compiled", 1.0),
    "G4": ("cudnn", 0.98),
    "G5": ("torch", 1.0),
    "G7": ("compiled", 1.0),
    "G8": ("torch", 1.0),
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--against", help="what gpu_bench --json wrote")
    parser.add_argument("--cases", default="G1,G2,G3,G4,G5,G7,G8")
    parser.add_argument("--json", help="a file for torch's times")
    parser.add_argument("--divide", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--serve", action="store_true", help="cases from standard input"
    )
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        import torch

        self.torch = torch
        self.args = args
        self.results = []
        self.ours = {}
        if args.against:
            with open(args.against) as f:
                self.ours = {r["case"]: r for r in json.load(f)}

    def size(self, n):
        return max(8, n // self.args.divide)

    def random(self, *shape, grad=False):
        x = self.torch.randn(
            *shape, dtype=self.torch.bfloat16, device=self.args.device
        )
        return x.requires_grad_(grad)

    def is_gpu(self):
        return self.args.device.startswith("cuda")

    def wait(self):
        if self.is_gpu():
            self.torch.cuda.synchronize()

    def once(self, fn):
        times = 1
        while True:
            self.wait()
            start = time.perf_counter()
            for _ in range(times):
                fn()
            self.wait()
            took = time.perf_counter() - start
            if took > 0.02 or times > 4096:
                return took / times
            times *= 4

    def peak(self, fn):
        """Bytes that fn() takes beside what there is."""
        if not self.is_gpu():
            return None
        cuda = self.torch.cuda
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
        fn()
        cuda.synchronize()
        return cuda.max_memory_allocated() - before

    def by_cudnn(self, fn):
        """fn, in which scaled_dot_product_attention() may only use cuDNN."""

        def run():
            attention = self.torch.nn.attention
            with attention.sdpa_kernel(attention.SDPBackend.CUDNN_ATTENTION):
                return fn()

        return run

    def compiled(self, fn):
        """torch.compile(fn), with a code object of its own: torch keeps what it
        compiled with the code, for whatever attention that was compiled."""
        own = types.FunctionType(
            fn.__code__.replace(),
            fn.__globals__,
            fn.__name__,
            fn.__defaults__,
            fn.__closure__,
        )
        return self.torch.compile(own)

    def case(self, name, fn, forward=None, **others):
        """All take turns, after one round each that warms up. A side that torch
        refuses is told, and the others go on. With `forward`, fn takes that, or
        the compiled one, as users compile a model but not its gradient's call.
        """
        if forward:
            compiled = self.compiled(forward)
            sides = {
                "eager": lambda: fn(forward),
                "compiled": lambda: fn(compiled),
            }
        else:
            sides = {"eager": fn}
        sides.update(others)
        times, refused = {}, {}
        for side, run in sides.items():
            try:
                self.once(run)
                times[side] = []
            except Exception as e:  # of torch, of its compiler, or of Triton
                refused[side] = str(e).split("\n")[0]
        for _ in range(self.args.rounds):
            for side, taken in times.items():
                taken.append(self.once(sides[side]))
        row = {"case": name, "sides": {}, "refused": refused}
        for side, taken in times.items():
            row["sides"][side] = {
                "median": statistics.median(taken),
                "peak": self.peak(sides[side]),
            }
        self.results.append(row)
        print(self.text(row), flush=True)
        if self.args.json:
            with open(self.args.json, "w") as f:
                json.dump(self.results, f, indent=1)

    def text(self, row):
        ours = self.ours.get(row["case"])
        parts = []
        for side, got in row["sides"].items():
            part = f"{side} {1e6 * got['median']:.1f} us"
            if ours:
                part += f" ({got['median'] / ours['seconds']:.3f} of ours)"
            if got["peak"] is not None:
                part += f" {got['peak'] / 1e6:.1f} MB"
            if ours and got["peak"] and ours["peak_bytes"]:
                part += f" ({got['peak'] / ours['peak_bytes']:.2f})"
            parts.append(part)
        parts += [f"{side}: {why}" for side, why in row["refused"].items()]
        if self.is_slow(row["sides"]):
            parts.append("compiled is slower than eager and does not count")
        return f"{row['case']:32} {', '.join(parts)}{self.goal(row, ours)}"

    @staticmethod
    def is_slow(sides):
        """Whether torch's compiler has made the case slower."""
        return (
            "compiled" in sides
            and "eager" in sides
            and sides["compiled"]["median"] > sides["eager"]["median"]
        )

    def goal(self, row, ours):
        if not ours or not row["sides"]:
            return ""
        times = {side: got["median"] for side, got in row["sides"].items()}
        times["torch"] = min(times.values())
        times["the fastest"] = min(times["torch"], ours["best_seconds"])
        for start, (side, least) in GOALS.items():
            if side == "compiled" and self.is_slow(row["sides"]):
                side = "eager"
            if row["case"].startswith(start) and side in times:
                met = times[side] >= least * ours["seconds"]
                return f"; goal >= {least} of {side}: {'met' if met else 'missed'}"
        return ""


def backward(out, dy, *inputs):
    import torch

    return torch.autograd.grad(out, inputs, dy)


def feed_forward(b):
    F = b.torch.nn.functional
    s, h = b.size(8192), b.size(2048)
    x, dy = b.random(s, h, grad=True), b.random(s, h)
    w1, b1 = b.random(4 * h, h, grad=True), b.random(4 * h, grad=True)
    w2, b2 = b.random(h, 4 * h, grad=True), b.random(h, grad=True)

    def forward():
        y = F.gelu(F.linear(x, w1, b1), approximate="tanh")
        return F.linear(y, w2, b2)

    b.case(
        "G1/feed-forward",
        lambda fn: backward(fn(), dy, x, w1, b1, w2, b2),
        forward,
    )


def linear(size, both):
    def measure(b):
        n = b.size(size)
        x, w = b.random(n, n, grad=True), b.random(n, n, grad=True)
        dy = b.random(n, n)
        xd, wd = x.detach(), w.detach()
        if both:
            b.case(
                f"G1/linear-{size}-both", lambda: backward(x @ w, dy, x, w)
            )
        else:
            b.case(f"G1/linear-{size}-forward", lambda: xd @ wd)

    return measure


def host_cost(b):
    x, y = b.random(8, 8), b.random(8, 8)
    b.case("G2/add", lambda fn: fn(), lambda: x + y)


def small_step(b):
    torch = b.torch
    F = torch.nn.functional
    layers, heads = 4, 8
    d = max(2, b.size(256) // 8)
    h, s, batch = heads * d, b.size(128), max(1, 8 // b.args.divide)

    def linear(out, into):
        return b.random(out, into, grad=True), b.random(out, grad=True)

    def norm():
        return b.random(h, grad=True), b.random(h, grad=True)

    table, positions = b.random(256, h, grad=True), b.random(s, h, grad=True)
    blocks = [
        (norm(), linear(3 * h, h), linear(h, h))
        + (norm(), linear(4 * h, h), linear(h, 4 * h))
        for _ in range(layers)
    ]
    last = norm()
    parameters = [table, positions, *last]
    for block in blocks:
        for pair in block:
            parameters += pair
    tokens, targets = (
        torch.randint(0, 256, (batch, s), device=b.args.device)
        for _ in range(2)
    )
    optimizer = torch.optim.AdamW(
        parameters, fused=b.args.device.startswith("cuda")
    )

    def loss():
        x = F.embedding(tokens, table) + positions
        for n1, qkv, out, n2, up, down in blocks:
            y = F.linear(F.layer_norm(x, (h,), *n1), *qkv)
            q, k, v = (
                t.view(batch, s, heads, d).transpose(1, 2)
                for t in y.chunk(3, -1)
            )
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(a.transpose(1, 2).reshape(batch, s, h), *out)
            y = F.linear(F.layer_norm(x, (h,), *n2), *up)
            x = x + F.linear(F.gelu(y, approximate="tanh"), *down)
        logits = F.linear(F.layer_norm(x, (h,), *last), table)
        return F.cross_entropy(logits.view(-1, 256).float(), targets.view(-1))

    def step(fn):
        optimizer.zero_grad()
        fn().backward()
        optimizer.step()

    b.case("G2/step", step, loss)


def rows_of(b):
    rows, n = b.size(16384), b.size(4096)
    x, y = b.random(rows, n, grad=True), b.random(rows, n, grad=True)
    return rows, n, x, y, b.random(rows, n)


def residual_norm(b):
    F = b.torch.nn.functional
    rows, n, x, y, dy = rows_of(b)
    g, dh = b.random(n, grad=True), b.random(rows, n)

    def forward():
        h = x + y
        return F.rms_norm(h, (n,), g, 1e-6), h

    b.case(
        "G3/residual-norm",
        lambda fn: b.torch.autograd.grad(fn(), (x, y, g), (dy, dh)),
        forward,
    )


def gated(b):
    F = b.torch.nn.functional
    _, _, x, y, dy = rows_of(b)
    b.case(
        "G3/swiglu",
        lambda fn: backward(fn(), dy, x, y),
        lambda: F.silu(x) * y,
    )


def rotary(b):
    rows, n = b.size(16384), b.size(4096)
    heads = max(1, n // 128)
    d = n // heads
    r = b.random(1, rows, heads, d, grad=True)
    dr = b.random(1, rows, heads, d)
    angle = (
        b.torch.arange(rows, device=b.args.device)[:, None]
        * 10000.0 ** (-2 * b.torch.arange(d // 2, device=b.args.device) / d)
    )[None, :, None, :]
    cos, sin = angle.cos().to(r.dtype), angle.sin().to(r.dtype)

    def rotate(x):
        a, c = x[..., : d // 2], x[..., d // 2 :]
        return b.torch.cat((a * cos - c * sin, c * cos + a * sin), -1)

    b.case(
        "G3/rotary", lambda fn: backward(fn(), dr, r), lambda: rotate(r)
    )


def sdpa(size, both):
    def measure(b):
        attention = b.torch.nn.functional.scaled_dot_product_attention
        s = b.size(size)
        q, k, v = (b.random(1, 32, s, 128, grad=both) for _ in range(3))
        dy = b.random(1, 32, s, 128)

        def forward():
            return attention(q, k, v, is_causal=True)

        def both_passes():
            return backward(forward(), dy, q, k, v)

        run = both_passes if both else forward
        b.case(
            f"G4/attention-{size}-{'both' if both else 'forward'}",
            run,
            cudnn=b.by_cudnn(run),
        )

    return measure


def layer(b):
    torch = b.torch
    F = torch.nn.functional
    h, s, heads = b.size(4096), b.size(4096), 32
    d = max(2, h // heads)
    h = heads * d
    ffn = ((8 * h + 2) // 3 + 7) // 8 * 8
    weights = [b.random(h, h, grad=True) for _ in range(4)]
    gate, up, down = (
        b.random(ffn, h, grad=True),
        b.random(ffn, h, grad=True),
        b.random(h, ffn, grad=True),
    )
    n1, n2, n3 = (b.random(h, grad=True) for _ in range(3))
    table, head = b.random(64, h, grad=True), b.random(64, h, grad=True)
    tokens = torch.randint(0, 64, (1, s), device=b.args.device)
    targets = torch.randint(0, 64, (1, s), device=b.args.device)
    angle = (
        torch.arange(s, device=b.args.device)[:, None]
        * 10000.0 ** (-2 * torch.arange(d // 2, device=b.args.device) / d)
    )[None, :, None, :]
    cos, sin = angle.cos().to(table.dtype), angle.sin().to(table.dtype)

    def rotate(x):
        a, c = x[..., : d // 2], x[..., d // 2 :]
        return torch.cat((a * cos - c * sin, c * cos + a * sin), -1)

    parameters = [*weights, gate, up, down, n1, n2, n3, table, head]

    def loss():
        x = F.embedding(tokens, table)
        y = F.rms_norm(x, (h,), n1, 1e-6)
        q, k, v = (
            F.linear(y, w).view(1, s, heads, d) for w in weights[:3]
        )
        q, k = rotate(q), rotate(k)
        a = F.scaled_dot_product_attention(
            *(t.transpose(1, 2) for t in (q, k, v)), is_causal=True
        )
        x = x + F.linear(a.transpose(1, 2).reshape(1, s, h), weights[3])
        y = F.rms_norm(x, (h,), n2, 1e-6)
        x = x + F.linear(F.silu(F.linear(y, gate)) * F.linear(y, up), down)
        logits = F.linear(F.rms_norm(x, (h,), n3, 1e-6), head)
        return F.cross_entropy(logits.view(-1, 64).float(), targets.view(-1))

    def step(fn):
        return torch.autograd.grad(fn(), parameters)

    by_cudnn = b.compiled(loss)
    b.case("G5/layer", step, loss, cudnn=b.by_cudnn(lambda: step(by_cudnn)))


def vocabulary(b):
    rows, v = b.size(4096), b.size(131072)
    x = b.random(rows, v, grad=True)
    t = b.torch.randint(0, v, (rows,), device=b.args.device)
    b.case(
        "G7/cross-entropy",
        lambda fn: b.torch.autograd.grad(fn(), x),
        lambda: b.torch.nn.functional.cross_entropy(x.float(), t),
    )


def adamw(b):
    """As ours does: bfloat16 parameters and gradients, and a master in f32."""
    n = max(1024, 1_000_000_000 // b.args.divide**2)
    p, g = b.random(n), b.random(n)
    master = p.float().requires_grad_()
    master.grad = b.torch.zeros_like(master)

    def step_of(**how):
        optimizer = b.torch.optim.AdamW([master], **how)

        def step():
            master.grad.copy_(g)
            optimizer.step()
            with b.torch.no_grad():
                p.copy_(master)

        return step

    fused = {"fused": step_of(fused=True)} if b.is_gpu() else {}
    b.case("G8/adamw", lambda fn: fn(), step_of(foreach=True), **fused)


CASES = {
    "G1/feed-forward": feed_forward,
    **{
        f"G1/linear-{n}-{'both' if both else 'forward'}": linear(n, both)
        for n in (2048, 4096, 8192, 16384)
        for both in (False, True)
    },
    "G2/add": host_cost,
    "G2/step": small_step,
    "G3/residual-norm": residual_norm,
    "G3/swiglu": gated,
    "G3/rotary": rotary,
    **{
        f"G4/attention-{s}-{'both' if both else 'forward'}": sdpa(s, both)
        for s in (4096, 16384)
        for both in (False, True)
    },
    "G5/layer": layer,
    "G7/cross-entropy": vocabulary,
    "G8/adamw": adamw,
}


def serve(args):
    try:
        import torch
    except ImportError as e:
        print(e)
        sys.exit(77)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("torch has no CUDA here")
        sys.exit(77)
    print("ready", flush=True)
    for line in sys.stdin:
        case, args.against, args.json = line.rstrip("\n").split("\t")
        b = Bench(args)
        CASES[case](b)
        if not b.results[-1]["sides"]:
            sys.exit(f"{case}: torch has computed no side of it")
        b.wait()  # an error of the GPU shows here
        print("done", flush=True)
        # For the next case, and for ours, which runs in between.
        del b
        torch.compiler.reset()
        gc.collect()
        if args.device == "cuda":
            torch.cuda.empty_cache()


def main():
    args = parse_args()
    if args.serve:
        return serve(args)
    chosen = set()
    for wanted in args.cases.split(","):
        found = [c for c in CASES if c == wanted or c.startswith(wanted + "/")]
        if not found:
            raise SystemExit(
                f"gpu_bench.py: there is no {wanted}; write some of "
                + ", ".join(CASES)
            )
        chosen.update(found)
    b = Bench(args)
    for name, fn in CASES.items():
        if name in chosen:
            fn(b)


if __name__ == "__main__":
    main()
