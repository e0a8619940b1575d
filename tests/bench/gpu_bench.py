#!/usr/bin/env python3
"""torch's times of the cases of gpu_bench, eager and compiled.

    python3 gpu_bench.py [--against gpu_bench.json] [--cases G1,G3] [--divide 1]

With --against, a file that gpu_bench wrote with --json on the same machine, it
prints the ratio of both. Needs torch with CUDA; --device cpu for a try.
"""

import argparse
import json
import statistics
import time


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--against", help="what gpu_bench --json wrote")
    parser.add_argument("--cases", default="G1,G2,G3,G4,G5,G7,G8")
    parser.add_argument("--divide", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        import torch

        self.torch = torch
        self.args = args
        self.results = []

    def size(self, n):
        return max(8, n // self.args.divide)

    def random(self, *shape, grad=False):
        x = self.torch.randn(
            *shape, dtype=self.torch.bfloat16, device=self.args.device
        )
        return x.requires_grad_(grad)

    def wait(self):
        if self.args.device.startswith("cuda"):
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

    def case(self, name, fn):
        """Both take turns; the first round of each warms up."""
        sides = {"eager": fn, "compiled": self.torch.compile(fn)}
        times = {side: [] for side in sides}
        for r in range(self.args.rounds + 1):
            for side, run in sides.items():
                seconds = self.once(run)
                if r:
                    times[side].append(seconds)
        row = {"case": name}
        for side, all_times in times.items():
            row[side + "_seconds"] = statistics.median(all_times)
        self.results.append(row)


def backward(out, dy, *inputs):
    import torch

    return torch.autograd.grad(out, inputs, dy)


def feed_forward(b):
    F = b.torch.nn.functional
    s, h = b.size(8192), b.size(2048)
    x, dy = b.random(s, h, grad=True), b.random(s, h)
    w1, b1 = b.random(4 * h, h, grad=True), b.random(4 * h, grad=True)
    w2, b2 = b.random(h, 4 * h, grad=True), b.random(h, grad=True)

    def run():
        y = F.gelu(F.linear(x, w1, b1), approximate="tanh")
        return backward(F.linear(y, w2, b2), dy, x, w1, b1, w2, b2)

    b.case(f"G1 feed-forward {s} x {h} forward and backward", run)


def linear(b):
    feed_forward(b)
    for n in (2048, 4096, 8192, 16384):
        n = b.size(n)
        x, w = b.random(n, n, grad=True), b.random(n, n, grad=True)
        dy = b.random(n, n)
        xd, wd = x.detach(), w.detach()
        b.case(f"G1 linear {n}^3 forward", lambda: xd @ wd)
        b.case(
            f"G1 linear {n}^3 forward and backward",
            lambda: backward(x @ w, dy, x, w),
        )


def host_cost(b):
    x, y = b.random(8, 8), b.random(8, 8)
    b.case("G2 add 8x8 (best: its kernel)", lambda: x + y)


def memory_bound(b):
    F = b.torch.nn.functional
    rows, n = b.size(16384), b.size(4096)
    x, y = b.random(rows, n, grad=True), b.random(rows, n, grad=True)
    g, dy, dh = b.random(n, grad=True), b.random(rows, n), b.random(rows, n)

    def residual_norm():
        h = x + y
        b.torch.autograd.grad(
            (F.rms_norm(h, (n,), g, 1e-6), h), (x, y, g), (dy, dh)
        )

    b.case("G3 residual and RMS norm forward and backward", residual_norm)
    b.case(
        "G3 SwiGLU forward and backward",
        lambda: backward(F.silu(x) * y, dy, x, y),
    )
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
        "G3 rotary forward and backward", lambda: backward(rotate(r), dr, r)
    )


def sdpa(b):
    attention = b.torch.nn.functional.scaled_dot_product_attention
    for s in (4096, 16384):
        s = b.size(s)
        q, k, v = (b.random(1, 32, s, 128, grad=True) for _ in range(3))
        dy = b.random(1, 32, s, 128)
        qd, kd, vd = (t.detach() for t in (q, k, v))
        b.case(
            f"G4 attention {s} forward",
            lambda: attention(qd, kd, vd, is_causal=True),
        )
        b.case(
            f"G4 attention {s} forward and backward",
            lambda: backward(attention(q, k, v, is_causal=True), dy, q, k, v),
        )


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

    def step():
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
        loss = F.cross_entropy(logits.view(-1, 64).float(), targets.view(-1))
        return torch.autograd.grad(loss, parameters)

    b.case(f"G5 layer h={h} s={s} forward and backward", step)


def vocabulary(b):
    rows, v = b.size(4096), b.size(131072)
    x = b.random(rows, v, grad=True)
    t = b.torch.randint(0, v, (rows,), device=b.args.device)
    b.case(
        f"G7 cross entropy {rows} x {v} forward and backward",
        lambda: b.torch.autograd.grad(
            b.torch.nn.functional.cross_entropy(x.float(), t), x
        ),
    )


def adamw(b):
    n = max(1024, 1_000_000_000 // b.args.divide**2)
    p = b.random(n, grad=True)
    p.grad = b.random(n)
    fused = b.args.device.startswith("cuda")
    optimizer = b.torch.optim.AdamW([p], fused=fused)
    b.case(f"G8 AdamW of {n} parameters", optimizer.step)


def main():
    args = parse_args()
    b = Bench(args)
    cases = {
        "G1": linear,
        "G2": host_cost,
        "G3": memory_bound,
        "G4": sdpa,
        "G5": layer,
        "G7": vocabulary,
        "G8": adamw,
    }
    for name, fn in cases.items():
        if name in args.cases.split(","):
            fn(b)
    ours = {}
    if args.against:
        with open(args.against) as f:
            ours = {r["case"]: r["seconds"] for r in json.load(f)}
    for row in b.results:
        text = f"{row['case']:50}"
        for side in ("eager", "compiled"):
            seconds = row[side + "_seconds"]
            text += f"  {side} {1e6 * seconds:10.1f} us"
            if row["case"] in ours:
                text += f" ({seconds / ours[row['case']]:.2f} of ours)"
        print(text)


if __name__ == "__main__":
    main()
