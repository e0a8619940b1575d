# SPDX-License-Identifier: Apache-2.0
"""Records (docs/record.md) that a program could have written, for page_test.py."""

import itertools
import math

KINDS = ["activations", "parameters", "gradients", "state", "gathered"]
HOSTILE = "</script><img src=x onerror=document.title='owned'>\u2028&amp;\"'"


class Record:
    """Builds one record. Meshes are texts such as "dp=2,tp=4", layouts are texts
    such as "S0,P"."""

    def __init__(self, mesh, title):
        self.tables = {name: [] for name in (
            "meshes", "dims", "specs", "moves", "calls", "events", "paths", "phases")}
        self.runs, self.parameters = [], []
        self.title, self.mesh = title, self.add_mesh(mesh)

    def index(self, name, row):
        """A row's place in a table, at the end if it is new."""
        rows = self.tables[name]
        if row not in rows:
            rows.append(row)
        return rows.index(row)

    def add_mesh(self, text, ranks=None):
        axes = [axis.split("=") for axis in text.split(",")]
        row = {"text": text, "axes": [{"name": n, "size": int(s)} for n, s in axes]}
        return self.index("meshes", row | ({"ranks": ranks} if ranks else {}))

    def spec(self, shape, layout, mesh=None, zigzag=None):
        mesh = self.mesh if mesh is None else mesh
        sizes = [axis["size"] for axis in self.tables["meshes"][mesh]["axes"]]
        effects, dims, most = layout.split(","), [], 4
        for d, size in enumerate(shape):
            axes = [a for a, effect in enumerate(effects) if effect == f"S{d}"]
            parts = math.prod(sizes[a] for a in axes)
            most *= -(-size // parts)
            row = {"size": size}
            if axes and zigzag == d:
                n = size // (2 * parts)
                row |= {"axes": axes, "parts": [
                    [[i * n, i * n + n], [(2 * parts - 1 - i) * n, (2 * parts - i) * n]]
                    for i in range(parts)]}
            elif axes:
                lengths = [(i + 1) * size // parts - i * size // parts for i in range(parts)]
                row |= {"axes": axes, "runs": [
                    [n, len(list(same))] for n, same in itertools.groupby(lengths)]}
            dims.append(self.index("dims", row))
        return self.index("specs", {
            "mesh": mesh, "shape": shape, "dtype": "f32", "layout": layout, "dims": dims,
            "partials": [{"axis": a, "op": "sum"} for a, e in enumerate(effects) if e == "P"],
            "bytes": most})

    def move(self, source, to, kind, axes):
        step = {"kind": kind, "axes": axes, "from": self.tables["specs"][source]["layout"],
                "to": self.tables["specs"][to]["layout"],
                "bytes": self.tables["specs"][to]["bytes"], "by_all": 7168, "us": 7.5}
        return self.index("moves", {"from": source, "to": to, "steps": [step], "us": 7.5})

    def call(self, op, inputs, out, to=None, moves=None, keep=None):
        prices = {"comm_us": 7.5 if moves else 0, "work_us": 3.25, "reduce_us": 1.5}
        texts = {"in": ["S0,R"] * len(inputs), "out": ["S0,P"], "feasible": True}
        return self.index("calls", {
            "op": op, "args": "causal = true" if op == "attention" else "", "in": inputs,
            "keep": keep or [""] * len(inputs), "to": to or inputs, "out": out,
            "moves": moves or [None] * len(inputs), "rule": "mk,kn->mn | linear 0; linear 1",
            "split": "m: dp; k: tp", **prices,
            "candidates": [
                {"split": "m: dp; k: tp", "chosen": True, **texts, **prices, "why_not": ""},
                {"split": "m: dp", "chosen": False, **texts, **prices, "work_us": 6.5,
                 "why_not": "it costs 3.25 us more"},
                {"split": "k: dp", "chosen": False, **texts, **prices, "comm_us": 40,
                 "feasible": False, "why_not": "it would send a parameter, which must stay"}],
            "more_candidates": 12, "why": f"The {op} costs 12.25 us, the next one 15.5 us."})

    def event(self, kind, axes, op, size, mesh=None):
        return self.index("events", {
            "kind": kind, "mesh": self.mesh if mesh is None else mesh, "axes": axes, "op": op,
            "bytes": size, "by_all": 6 * size, "us": size / 1000, "times": 1})

    def run(self, rank):
        self.runs.append({"rank": rank, "operators": [], "memory": {}})

    def ran(self, call, path, phase="forward", sends=(), makes=0, until=None, sums=None):
        operators = self.runs[-1]["operators"]
        i = len(operators)
        operators.append({
            "call": call, "path": self.index("paths", path),
            "phase": self.index("phases", phase),
            **({"sends": list(sends)} if sends else {}),
            **({"sums": sums} if sums else {}),
            **({"makes": makes} if makes else {}),
            **({} if until is None else {"until": until})})

    def json(self):
        for run in self.runs:
            operators, activations = run["operators"], 5000
            ends = [[] for _ in operators]
            for i, op in enumerate(operators):
                if "until" in op:
                    ends[op["until"]].append(op["makes"])
                activations += op.get("makes", 0) - sum(ends[i])
                op["memory"] = [activations, 40000, 100 * i, 0, 0]
            used = [op["memory"] for op in run["operators"]]
            run["memory"] = {"peak": max(map(sum, used)) + 512,
                             **{kind: max(m[k] for m in used) for k, kind in enumerate(KINDS)}}
        sent = [sum(self.tables["events"][e]["bytes"] for op in run["operators"]
                    for e in op.get("sends", [])) for run in self.runs]
        return {
            "version": 1, "title": self.title, "program": "train",
            "command": "bazel run //:train -- --model gpt", "library": "0.1",
            "prices": "5 us and 20 GB/s", "mesh": self.mesh, "memory_kinds": KINDS, **self.tables,
            "runs": self.runs, "parameters": self.parameters, "collectives": [],
            "totals": {"bytes": max(sent), "by_all": 6 * sum(sent), "communication_us": max(sent) / 1000, "work_us": 40,
                       "peak_bytes": max(run["memory"]["peak"] for run in self.runs)},
            "pictures": [{"name": "schedule", "title": "Who does what when", "svg":
                          '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="40">'
                          '<rect width="90" height="30" fill="#0072b2"/></svg>'}]}


def block(record, at, width, seq, name):
    """A layer's calls, as (call, module, kind of collective)."""
    x = record.spec([8, seq, width], "S0,S1", zigzag=1)
    whole = record.spec([8, seq, width], "S0,R")
    partial = record.spec([8, seq, width], "S0,P")
    w = record.spec([width, 4 * width + 2], "R,S1")
    h = record.spec([8, seq, 4 * width + 2], "S0,S2")
    gather = record.move(x, whole, "all-gather", [1])
    combine = record.move(partial, x, "reduce-scatter", [1])
    product = record.call(f"matmul{name}", [x, w], [h], to=[whole, w], moves=[gather, None],
                          keep=["", "parameter"])
    for parameter in "wq", "wo":
        record.parameters.append({"name": f"{at}.attn.{parameter}", "spec": w})
    return [
        (record.call("layer_norm", [x], [x]), "norm", None),
        (product, "attn", "all-gather"),
        (record.call("attention", [h, h, h], [h]), "attn", None),
        (record.call("matmul", [h, w], [partial]), "attn", None),
        (record.call("add", [x, partial], [x], to=[x, x], moves=[None, combine]), "",
         "reduce-scatter")]


def gpt(layers=2, mesh="dp=2,tp=4", title="gpt on dp=2,tp=4", kind=None, seq=24, name=""):
    """`layers` equal layers; `kind` replaces the kind of their all-gathers."""
    record = Record(mesh, title)
    record.run(0)
    axes = record.tables["meshes"][record.mesh]["axes"]
    gradient = record.spec([10, 3], "P" + ",R" * (len(axes) - 1))
    steps = []
    for i in range(layers):
        calls = block(record, f"blocks.{i}", 16, seq, name)
        steps += [(call, f"blocks.{i}.{module}".rstrip("."), sends) for call, module, sends in calls]
    for n, (call, path, sends) in enumerate(steps):
        sent = kind if kind and sends == "all-gather" else sends
        # The operator that scatters a sum adds what the one before it made.
        record.ran(call, path, sends=[record.event(sent, [1], "matmul", 98304)] if sent else (),
                   makes=3072, until=2 * len(steps) - 1 - n,
                   sums=[[1, n - 1]] if sends == "reduce-scatter" else None)
    for call, path, sends in reversed(steps):
        event = sends and record.event("all-reduce", [0], "grad", 49152)
        record.ran(call, path, "backward", [event] if sends else ())
    norm = record.call("clip", [gradient], [gradient])
    record.ran(norm, "", "optimizer", [record.event("all-reduce", [0, 1], "clip", 8)])
    return record.json()


def pipeline():
    """Two stages of two ranks each: a run for each stage."""
    record = Record("pp=2,tp=2", "pipeline on pp=2,tp=2")
    stages = [record.add_mesh("tp=2", [2 * s, 2 * s + 1]) for s in range(2)]
    for s, mesh in enumerate(stages):
        record.run(2 * s + 1)
        x = record.spec([6, 5], "S0", mesh)
        w = record.spec([5, 7], "S1", mesh)
        y = record.spec([6, 7], "S1", mesh)
        record.parameters.append({"name": f"stage{s}.w", "spec": w})
        record.ran(record.call("matmul", [x, w], [y]), f"stage{s}", makes=y and 96, sends=[
            record.event("exchange", [], "send", 60, mesh)])
        record.ran(record.call("relu", [y], [y]), f"stage{s}", makes=96)
    return record.json()


def hostile():
    """Every text that a program chooses is an attack."""
    record = Record("dp=2", HOSTILE)
    record.run(0)
    x = record.spec([1, 0], "S0")  # rank 0 has nothing, and nobody has anything
    record.parameters.append({"name": HOSTILE, "spec": x})
    record.ran(record.call(HOSTILE, [x], [x]), HOSTILE, HOSTILE,
               [record.event(HOSTILE, [0], HOSTILE, 4)], makes=4)
    return record.json() | {"command": HOSTILE, "program": HOSTILE, "prices": HOSTILE}
