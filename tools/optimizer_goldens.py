#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what torch.optim makes of five steps, for tests/nn/optimizers_test.cc.

  tools/optimizer_goldens.py >tests/nn/optimizers.json

Needs torch 2.9 or later. Everything is f64. The test has the same parameters
and gradients: see value() below.
"""

import json
import math
import sys

import torch
from torch.optim import _muon

SHAPES = {"all": [[7, 5], [5], [2, 3, 4]], "matrices": [[7, 5], [4, 9]],
          # A product of square ones has no eigenvalue twice, which leaves no choice of bases.
          "square": [[6, 6], [5, 5]]}
STEPS = 5
CASES = [
    ("adam", "Adam", dict(lr=0.1)),
    ("adam_all", "Adam", dict(lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1,
                              amsgrad=True, maximize=True)),
    ("adamw", "AdamW", dict(lr=0.1)),
    ("sgd", "SGD", dict(lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True)),
    ("adagrad", "Adagrad", dict(lr=0.1)),
    ("adagrad_all", "Adagrad", dict(lr=0.1, lr_decay=0.3, weight_decay=0.1, eps=1e-3,
                                    initial_accumulator_value=0.2, maximize=True)),
    ("rmsprop", "RMSprop", dict(lr=0.01)),
    ("rmsprop_all", "RMSprop", dict(lr=0.01, alpha=0.9, eps=1e-3, weight_decay=0.1,
                                    momentum=0.8, centered=True, maximize=True)),
    ("lion", "Lion", dict(lr=0.1)),
    ("lion_all", "Lion", dict(lr=0.1, betas=(0.8, 0.9), weight_decay=0.1)),
    ("adafactor", "Adafactor", dict(lr=0.01)),
    ("adafactor_all", "Adafactor", dict(lr=0.3, beta2_decay=-0.5, eps=(0.1, 0.2), d=1.5,
                                        weight_decay=0.1, maximize=True)),
    ("muon", "Muon", dict(lr=0.1)),
    ("muon_all", "Muon", dict(lr=0.1, weight_decay=0.2, momentum=0.8, nesterov=False,
                              ns_coefficients=(3, -4, 1.5), eps=1e-3, ns_steps=3,
                              adjust_lr_fn="match_rms_adamw")),
    ("shampoo", "Shampoo", dict(lr=0.1)),
    ("shampoo_all", "Shampoo", dict(lr=0.1, momentum=0.8, weight_decay=0.1, epsilon=0.01)),
    ("shampoo_rare", "Shampoo", dict(lr=0.1, epsilon=1, update_freq=3)),
    ("soap", "SOAP", dict(lr=0.1, precondition_frequency=2)),
    ("soap_all", "SOAP", dict(lr=0.1, betas=(0.8, 0.9), shampoo_beta=0.7, eps=1e-3,
                              weight_decay=0.1, precondition_frequency=2, max_precond_dim=5)),
    ("lbfgs", "LBFGS", dict(lr=0.1, max_iter=1, history_size=2)),
    ("lbfgs_closure", "LBFGS", dict(lr=1, max_iter=6, history_size=3)),
]


class Lion(torch.optim.Optimizer):
    """The update of Chen et al., arXiv 2302.06675, program 1."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                update = torch.sign(b1 * m + (1 - b1) * p.grad)
                p.sub_(group["lr"] * (update + group["weight_decay"] * p))
                self.state[p]["exp_avg"] = b2 * m + (1 - b2) * p.grad


class Shampoo(torch.optim.Optimizer):
    """Algorithm 1 of Gupta, Koren and Singer, arXiv 1802.09568."""

    def __init__(self, params, lr=0.1, momentum=0.0, weight_decay=0.0, epsilon=1e-4,
                 update_freq=1):
        super().__init__(params, dict(lr=lr, momentum=momentum, epsilon=epsilon,
                                      weight_decay=weight_decay, update_freq=update_freq))
        self.steps = 0

    @torch.no_grad()
    def step(self):
        def root(x):
            values, vectors = torch.linalg.eigh(x)
            return vectors @ torch.diag(values**-0.25) @ vectors.T

        for group in self.param_groups:
            for p in group["params"]:
                g, s = p.grad + group["weight_decay"] * p, self.state[p]
                for i, name in enumerate(["left", "right"]):
                    s.setdefault(name, group["epsilon"] * torch.eye(p.size(i), dtype=p.dtype))
                s["left"] += g @ g.T
                s["right"] += g.T @ g
                if self.steps % group["update_freq"] == 0:
                    roots = [root(s["left"]), root(s["right"])]
                    if group["update_freq"] > 1:
                        s["left_root"], s["right_root"] = roots
                else:
                    roots = [s["left_root"], s["right_root"]]
                way = roots[0] @ g @ roots[1]
                if group["momentum"]:
                    b = s.setdefault("momentum_buffer", torch.zeros_like(p))
                    way = b.mul_(group["momentum"]).add_(way)
                p.sub_(group["lr"] * way)
        self.steps += 1


class SOAP(torch.optim.Optimizer):
    """Algorithm 3 of Vyas et al., arXiv 2409.11321. As in the authors' program, the first
    step only computes the bases, and a new basis takes the columns of the old one in the
    order of their eigenvalues. The test does not compare the bases, whose signs are free."""

    def __init__(self, params, lr=3e-3, betas=(0.95, 0.95), shampoo_beta=0.95, eps=1e-8,
                 weight_decay=0.01, precondition_frequency=10, max_precond_dim=10000):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, beta=shampoo_beta,
                                      weight_decay=weight_decay, longest=max_precond_dim,
                                      frequency=precondition_frequency))
        self.steps = 0
        self.bases = {}

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                g, s = p.grad, self.state[p]
                sides = [i for i in (0, 1) if p.size(i) <= group["longest"]]
                q = self.bases.setdefault(p, [torch.eye(n, dtype=p.dtype) for n in p.shape])
                m = s.setdefault("exp_avg", torch.zeros_like(p))
                v = s.setdefault("exp_avg_sq", torch.zeros_like(p))
                if self.steps:
                    m.lerp_(g, 1 - b1)
                    v.lerp_((q[0].T @ g @ q[1])**2, 1 - b2)
                    way = q[0] @ ((q[0].T @ m @ q[1]) / (v.sqrt() + group["eps"])) @ q[1].T
                    unbiased = math.sqrt(1 - b2**self.steps) / (1 - b1**self.steps)
                    p.sub_(group["lr"] * unbiased * way)
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                for i in sides:
                    average = s.setdefault("left right".split()[i],
                                           torch.zeros(p.size(i), p.size(i), dtype=p.dtype))
                    average.lerp_(g.T @ g if i else g @ g.T, 1 - group["beta"])
                    if not self.steps:
                        q[i] = torch.linalg.eigh(average)[1].flip(1)
                    elif self.steps % group["frequency"] == 0:
                        order = torch.diag(q[i].T @ average @ q[i]).argsort(descending=True)
                        s["exp_avg_sq"] = v = v.index_select(i, order)
                        q[i] = torch.linalg.qr(average @ q[i][:, order])[0]
        self.steps += 1


def in_f64(function):
    """torch's Newton-Schulz converts to bf16; this is its text without that."""
    import inspect
    text = inspect.getsource(function).replace("torch.bfloat16", "grad.dtype")
    exec(compile(text, "muon", "exec"), vars(_muon))  # replaces the function


def value(shape, parameter, step):
    """Parameter `parameter` (step 0), or its gradient of step 1, 2, ..."""
    n = math.prod(shape)
    x = [math.sin(0.13 * i * i + 0.7 * i * step + 1.3 * step + 0.5 * parameter + 0.1)
         for i in range(n)]
    return torch.tensor(x, dtype=torch.float64).reshape(shape)


def closure(params):
    """The loss of lbfgs_closure. All elements depend on each other."""
    def evaluate():
        loss, all_of = 0, 0
        for i, p in enumerate(params):
            p.grad = None
            shifted = p - value(p.shape, i, 1)
            loss = loss + (shifted.exp() + (-shifted).exp()).sum() / 2
            all_of = all_of + (p * value(p.shape, i, 2)).sum()
        loss = loss + all_of**2 / 20
        loss.backward()
        return loss
    return evaluate


def searches():
    """What L-BFGS with a line search does: its parameters after each of five
    steps, one after another, and the calls of its closure."""
    def quadratic(p):
        return sum((torch.exp(2 * value(x.shape, i, 2)) * (x - value(x.shape, i, 1)) ** 2).sum()
                   for i, x in enumerate(p))

    def steep(p):
        both = [x - value(x.shape, i, 1) for i, x in enumerate(p)]
        return sum((torch.relu(3 * x) ** 2 + torch.relu(-x)).sum() for x in both)

    def rosenbrock(p):
        x = p[0]
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    def mlp(p):
        y = torch.tanh(value([7, 4], 0, 3) @ p[0].T + p[1]) @ p[2].T + p[3]
        return ((y - value([7, 2], 1, 4)) ** 2).mean()

    # The rates are first lengths that are too large, usual and too small.
    # In `steep`, cubic interpolation returns points too close to the ends.
    for loss_of, lr, shapes in ((quadratic, 9, [[6, 4], [5]]), (steep, 100, [[6, 4], [5]]),
                                (rosenbrock, 1, [[8]]),
                                (mlp, 0.01, [[6, 4], [6], [2, 6], [2]])):
        params = [value(s, i, 0).requires_grad_() for i, s in enumerate(shapes)]
        optimizer = torch.optim.LBFGS(params, lr=lr, max_iter=4, max_eval=40, history_size=5,
                                      line_search_fn="strong_wolfe")
        calls, tensors = 0, {}

        def evaluate():
            nonlocal calls
            calls += 1
            optimizer.zero_grad()
            loss = loss_of(params)
            loss.backward()
            return loss

        for step in range(1, STEPS + 1):
            optimizer.step(evaluate)
            for i, p in enumerate(params):
                tensors[f"{i} {step}"] = p.detach().flatten().tolist()
        tensors["calls"] = [calls]
        yield {"name": loss_of.__name__, "shapes": shapes, "tensors": tensors}


def main():
    in_f64(_muon._zeropower_via_newtonschulz)
    out = []
    for name, kind, options in CASES:
        of_matrices = name.startswith(("muon", "shampoo", "soap_all"))
        shapes = SHAPES["matrices" if of_matrices else "square" if name == "soap" else "all"]
        params = [value(s, i, 0).requires_grad_() for i, s in enumerate(shapes)]
        maker = getattr(torch.optim, kind) if kind in dir(torch.optim) else globals()[kind]
        optimizer = maker(params, **options)
        for step in range(1, STEPS + 1):
            for i, p in enumerate(params):
                p.grad = value(shapes[i], i, step)
            if name == "lbfgs_closure":
                optimizer.step(closure(params))
            else:
                optimizer.step(*[lambda: torch.zeros(())] * (kind == "LBFGS"))
        tensors = {}
        for i, p in enumerate(params):
            tensors[str(i)] = p.detach().flatten().tolist()
            for key, state in optimizer.state[p].items():
                if torch.is_tensor(state) and key != "step" and kind != "LBFGS":
                    tensors[f"{i}.{key}"] = state.flatten().tolist()
        out.append(json.dumps({"name": name, "shapes": shapes, "tensors": tensors}))
    out += map(json.dumps, searches())
    sys.stdout.write("[\n" + ",\n".join(out) + "\n]\n")


if __name__ == "__main__":
    main()
