#!/usr/bin/env python3
"""torch's times of the cases of gpu_bench, eager and compiled.

    python3 gpu_bench.py [--against gpu_bench.json] [--cases G1,G3] [--divide 1]

With --against, a file that gpu_bench wrote with --json on the same machine, it
prints the ratio of both, of the times and of the memory at its highest (beside
what there was before). Needs torch with CUDA; --device cpu for a try, without
memory.
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

    def peak(self, fn):
        """Bytes that fn() takes beside what there is."""
        if not self.args.device.startswith("cuda"):
            return None
        cuda = self.torch.cuda
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
        fn()
        cuda.synchronize()
        return cuda.max_memory_allocated() - before

    def case(self, name, fn, **others):
        """All take turns; the first round of each warms up."""
        sides = {"eager": fn, "compiled": self.torch.compile(fn), **others}
        times = {side: [] for side in sides}
        for r in range(self.args.rounds + 1):
            for side, run in sides.items():
                seconds = self.once(run)
                if r:
                    times[side].append(seconds)
        row = {"case": name, "sides": {}}
        for side, all_times in times.items():
            seconds = statistics.median(all_times)
            row["sides"][side] = (seconds, self.peak(sides[side]))
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
    small_step(b)


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

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    b.case(f"G2 step of a GPT, h={h} s={s} (best: without a graph)", step)


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

    foreach = step_of(foreach=True)
    if b.args.device.startswith("cuda"):
        b.case(
            f"G8 AdamW of {n} parameters", foreach, fused=step_of(fused=True)
        )
    else:
        b.case(f"G8 AdamW of {n} parameters", foreach)


def main():
    args = parse_args()
    cases = {
        "G1": linear,
        "G2": host_cost,
        "G3": memory_bound,
        "G4": sdpa,
        "G5": layer,
        "G7": vocabulary,
        "G8": adamw,
    }
    chosen = args.cases.split(",")
    for name in chosen:
        if name not in cases:
            raise SystemExit(
                f"gpu_bench.py: there is no {name}; write some of "
                + ",".join(cases)
            )
    b = Bench(args)
    for name, fn in cases.items():
        if name in chosen:
            fn(b)
    ours = {}
    if args.against:
        with open(args.against) as f:
            ours = {r["case"]: r for r in json.load(f)}
    for row in b.results:
        text = f"{row['case']:50}"
        us = ours.get(row["case"])
        for side, (seconds, peak) in row["sides"].items():
            text += f"  {side} {1e6 * seconds:10.1f} us"
            if us:
                text += f" ({seconds / us['seconds']:.2f} of ours)"
            if peak is not None:
                text += f" {peak / 1e6:.1f} MB"
            if us and peak and us["peak_bytes"]:
                text += f" ({peak / us['peak_bytes']:.2f} of ours)"
        print(text)


if __name__ == "__main__":
    main()
