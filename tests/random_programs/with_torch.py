#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes random programs with PyTorch and compares the results.

Reads what `random_programs --write FILE` wrote: a program a line, with the
library's values and gradients. PyTorch computes the same program in float64 on
one device, and its autograd the gradients.

    bazel run //tests/random_programs -- --programs 2000 --write FILE
    tests/random_programs/with_torch.py FILE

Prints every program that differs, and ends with the numbers of programs and
values and the largest difference. A difference is relative to the largest
element of its tensor, or to 1 where that is larger. The exit status is 0 when
no difference is above --tolerance, 1 when one is, 2 on bad input.
"""

import argparse
import json
import math
import sys

import torch
import torch.nn.functional as F


def dims_of(x, args):
    return args[1:] or list(range(x.dim()))


def pad(x, a):
    width = [0, 0] * (x.dim() - a[0] - 1) + [a[1], a[2]]
    return F.pad(x, width, value=float(a[3]))


def sliced(x, a):
    index = [slice(None)] * x.dim()
    index[a[0]] = slice(a[1], a[2], a[3])
    return x[tuple(index)]


def extreme(fn):
    return lambda x, a: fn(x, dims_of(x, a), keepdim=bool(a[0]))


# op: function of the operands and the arguments.
UNARY = {
    "neg": torch.neg, "neg_given": torch.neg, "neg_elsewhere": torch.neg,
    "relu": torch.relu, "square": torch.square, "exp": torch.exp,
    "sqrt": torch.sqrt, "tanh": torch.tanh, "gelu": F.gelu,
    "sigmoid": torch.sigmoid, "redistribute": torch.clone,
    "redistribute_async": torch.clone,
}
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "maximum": torch.maximum, "hypot": torch.hypot, "matmul": torch.matmul,
    "embedding": lambda table, ids: F.embedding(ids, table),
}
OTHERS = {
    "sum": extreme(torch.sum), "mean": extreme(torch.mean),
    "amax": extreme(torch.amax), "amin": extreme(torch.amin),
    "logsumexp": extreme(torch.logsumexp),
    "var": lambda x, a: torch.var(x, dims_of(x, a), correction=1,
                                  keepdim=bool(a[0])),
    "softmax": lambda x, a: torch.softmax(x, a[0]),
    "log_softmax": lambda x, a: torch.log_softmax(x, a[0]),
    "cumsum": lambda x, a: torch.cumsum(x, a[0]),
    "topk": lambda x, a: torch.topk(x, a[1], a[0]).values,
    "reshape": lambda x, a: x.reshape(a), "expand": lambda x, a: x.expand(a),
    "permute": lambda x, a: x.permute(a), "slice": sliced, "pad": pad,
}


def compute(op, inputs, args):
    if op in UNARY:
        return UNARY[op](*inputs)
    if op in BINARY:
        return BINARY[op](*inputs)
    if op in OTHERS:
        return OTHERS[op](*inputs, args)
    if op == "layer_norm":
        x, weight, bias = inputs
        return F.layer_norm(x, x.shape[-1:], weight, bias)
    if op == "rms_norm":
        x, weight = inputs
        return F.rms_norm(x, x.shape[-1:], weight, eps=1e-6)
    if op == "linear":
        return F.linear(*inputs)
    if op == "cross_entropy":
        return F.cross_entropy(*inputs)
    if op == "attention":
        q, k, v = (x.transpose(1, 2) for x in inputs)
        causal, window, cap = args
        s, t = q.shape[2], k.shape[2]
        before = torch.arange(s)[:, None] - torch.arange(t)
        seen = (before >= 0) & (before < (window or t)) if causal else before > -t
        if cap:  # in which torch has it only in flex_attention
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
            scores = cap * torch.tanh(q @ k.mT / q.shape[-1] ** 0.5 / cap)
            y = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen,
                                               enable_gqa=True)
        return y.transpose(1, 2)
    if op == "where_positive":
        return torch.where(inputs[0] > 0, inputs[1], inputs[2])
    if op == "cat":
        return torch.cat(inputs, args[0])
    sys.exit(f"with_torch.py: the operator {op} is not known here")


def tensor(array):
    if "whole" in array:
        return torch.tensor(array["whole"], dtype=torch.int64).reshape(
            array["shape"])
    return torch.tensor(array["real"], dtype=torch.float64).reshape(
        array["shape"])


def results(steps):
    """All values, then the gradients of the leaves that want one."""
    values, wanted, used = [], [], set()
    for step in steps:
        used |= set(step["in"])
        if step["op"] == "leaf":
            values.append(tensor(step["value"]))
            if step.get("wants_grad"):
                wanted.append(values[-1].requires_grad_())
        else:
            values.append(compute(step["op"], [values[i] for i in step["in"]],
                                  step["args"]))
    loss = torch.zeros((), dtype=torch.float64)
    for i, (step, value) in enumerate(zip(steps, values)):
        if i not in used and step["op"] != "leaf":
            weights = torch.cos(torch.arange(value.numel(),
                                             dtype=torch.float64) + 1)
            loss = loss + (value.reshape(-1) * weights).sum()
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
        values += [torch.zeros_like(w) if g is None else g
                   for w, g in zip(wanted, gradients)]
    return values


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="what random_programs --write wrote")
    parser.add_argument("--tolerance", type=float, default=1e-9, metavar="T",
                        help="largest difference (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)

    programs = wrong = count = 0
    worst = 0.0
    try:
        with open(options.file) as lines:
            for line in lines:
                program = json.loads(line)
                programs += 1
                largest = 0.0
                # The library takes no gradient where the loss depends on none.
                for want, got in zip(results(program["steps"]),
                                     program["results"]):
                    got = tensor(got)
                    count += got.numel()
                    if want.shape != got.shape:
                        largest = math.inf
                    elif got.numel():
                        want = want.detach()
                        scale = max(1.0, float(want.abs().max()))
                        found = float((want - got).abs().max()) / scale
                        # A NaN is larger than any number.
                        largest = largest if found <= largest else found
                worst = max(worst, largest)
                if not largest <= options.tolerance:
                    wrong += 1
                    print(f"line {programs} differs by {largest:.3g}: "
                          f"{json.dumps(program['steps'])}")
                if programs % 1000 == 0:
                    print(f"{programs} programs", file=sys.stderr)
    except (OSError, ValueError, KeyError) as e:
        print(f"with_torch.py: {options.file}: {e}", file=sys.stderr)
        return 2
    print(f"{programs} programs, {count} values, {wrong} programs differ, "
          f"largest difference {worst:.3g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
