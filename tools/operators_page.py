#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/operators.md: every public function of ops/, with its rule.

  tools/operators_page.py [--explain PROGRAM] [--check] [ROOT]

Rules come from tests/ops/rules.golden, which a test compares with the program.
Gradients come from the program: each operator is explained on small sizes, and
the operators that its backward pass runs are listed. Functions come from the
headers that dtensor.h includes; for a function without an operator of its own,
the page lists the functions that its definition calls.

--check writes nothing, and exits with 1 if the page differs from the one that
would be written. PROGRAM is bazel-bin/programs/explain by default.
"""

import argparse
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import untested_functions as public  # noqa: E402

PAGE = "docs/operators.md"
# Sizes of factors by letter, so that every operator accepts them: heads are a
# multiple of the heads of keys, and a row has the k elements that topk() needs.
SIZES = {"g": 2, "h": 4, "k": 2}
# Operators without a rule, or whose rule does not say which shapes fit, and
# inputs that fit the arguments of their samples.
SHAPES = {
    "view": ["5x6"], "reshape": ["5x6"], "permute": ["2x3x4"],
    "slice": ["8x6"], "cat": ["3x4", "3x2"],
    "paged_attention": ["5x4x3", "12x2x3", "12x2x3", "3x2", "5", "5"],
    "fold": ["2x3x6x4x3"], "resample": ["4x5"],
}
# The title of each header's functions; those below a line "// ---- TITLE ----"
# have that title.
HEADERS = {
    "ops/contraction.h": "Sums of products",
    "ops/convolution.h": "Convolutions", "ops/pool.h": "Pools",
    "ops/unfold.h": "Windows as columns",
    "ops/interpolate.h": "Interpolation and sampling",
    "ops/functions/arithmetic.h": "Arithmetic",
    "ops/functions/exponential.h": "Exponentials and powers",
    "ops/functions/trigonometric.h": "Trigonometry",
    "ops/functions/activation.h": "Activations",
    "ops/functions/comparison.h": "Comparisons",
    "ops/functions/rounding.h": "Rounding and remainders",
    "ops/functions/special.h": "Special functions",
    "ops/special.h": "Composed special functions",
    "ops/pointwise.h": "Types and conditions",
    "ops/composed.h": "Formulas of several tensors",
    "ops/reduce.h": "Reductions and running sums",
    "ops/order.h": "Extremes, medians and quantiles",
    "ops/statistics.h": "Products, and statistics of some elements",
    "ops/norm.h": "Norms", "ops/embedding.h": "Elements by index",
    "ops/by_index.h": "More elements by index",
    "ops/assign.h": "Changes in place",
    "ops/searching.h": "Places in sorted sequences",
    "ops/data_shapes.h": "Shapes that depend on data",
    "ops/losses.h": "Losses", "ops/distance.h": "Distances",
    "ops/linalg.h": "Linear algebra", "ops/attention.h": "Attention",
    "ops/paged_attention.h": "Attention to a cache",
    "ops/experts.h": "Mixtures of experts", "ops/view.h": "Views",
    "ops/create.h": "Creation", "ops/ranges.h": "Ranges and indices",
    "ops/random.h": "Random numbers",
    "ops/rearrange.h": "Rearranging", "ops/diagonal.h": "Diagonals",
    "ops/differences.h": "Differences and integrals",
    "ops/local_map.h": "Functions of local parts",
    "ops/collectives.h": "Collectives of local parts",
    "ops/custom.h": "Gradients of one's own",
}
SECTION = r"^// ---- (.*) ----$"


class Function:
    def __init__(self, name, header, section, returns, parameters):
        self.name, self.header, self.section = name, header, section
        # Whether it returns one or several tensors, not a number, a text or a
        # state.
        self.makes_tensors = re.search(
            r"DistTensor|TopK|Norm", returns) is not None
        self.creates = not re.search("DistTensor|TensorList", parameters)


def functions(root):
    """The public functions of ops/ that make tensors, by header."""
    found = {}
    for header in public.public_headers(root):
        if not header.startswith("ops/"):
            continue
        section = None
        text = re.sub(SECTION, r'section "\1";', (root / header).read_text(),
                      flags=re.M)
        for statement in public.top_level(text):
            if title := re.fullmatch(r'\s*section "(.*)"', statement):
                section = title.group(1)
            match = re.match(
                r"\s*(?:template\s*<[^<>]*>\s*)?([\w:<>,&*\s]+?[\s&*>])(\w+)"
                r"\s*\((.*)", statement, re.S)
            if not match or re.match(
                    r"\s*(?:using|struct|class|enum|friend|extern)\b",
                    statement) or "operator" in match.group(1):
                continue
            name = match.group(2)
            if public.INTERNAL.search(name) or name in public.NOT_FUNCTIONS:
                continue
            function = Function(name, header, section, match.group(1),
                                match.group(3))
            if function.makes_tensors:
                found.setdefault(name, function)
    for header in sorted((root / "ops/functions").glob("*.h")):
        section = None
        for title, name in re.findall(
                SECTION + r"|^\s*DT_FUNCTION(?:_P)?\(\w+, (\w+)\)",
                header.read_text(), re.M):
            section = title or section
            if name:
                found.setdefault(name, Function(
                    name, str(header.relative_to(root)), section, "DistTensor",
                    "DistTensor"))
    return found


def rules(root):
    """The rule of each operator in the golden file; None if it has no rule."""
    text = (root / "tests/ops/rules.golden").read_text()
    return {name: None if rule.startswith("decides") else rule
            for name, rule in re.findall(r"^(\w+): (.*)$", text, re.M)}


def shape_of(term):
    # A term is a list of dimensions: letters with marks, and 1.
    letters = re.findall(r"[A-Za-z1]", term)
    return "x".join(str(SIZES.get(letter, 1 if letter == "1" else 4))
                    for letter in letters)


def inputs_of(name, rule):
    if name in SHAPES:
        return SHAPES[name]
    return [shape_of(term) for term in rule.split("->")[0].split(",")]


def gradient(explain, name, rule):
    """The table cell with the operators that an operator's backward pass runs."""
    command = [explain, "--mesh", "dp=2", "--op", name]
    for shape in inputs_of(name, rule):
        command += ["--in", shape]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(command)}: {run.stderr.strip()}")
    backward = run.stdout.split("\nbackward:\n")[1]
    if "has no gradient" in backward:
        return "none"
    names = []
    for line in re.findall(r"^  backward +(\S+)", backward, re.M):
        if line not in names:
            names.append(line)
    if not names:
        return "the cotangent itself"
    return ", ".join(f"`{n}`" for n in names)


def splits(rule):
    """The table cell with the factors along which an operator may be split."""
    if rule is None:
        return "layouts that it lists itself"
    text = rule.split(" | ")[0]
    outputs = set(re.findall("[A-Za-z]", text.split("->")[1]))
    marks = {}
    for letter, mark in re.findall(r"([A-Za-z])([!~^]?)", text):
        marks[letter] = marks.get(letter, "") + mark
    largest = dict(re.findall(r"(\w):(\w+)", rule))
    linked = {g: h for h, g in re.findall(r"link (\w) (\w)", rule)}
    freely, cells = [], []
    for letter, mark in marks.items():
        if "~" in mark:
            cells.append(f"{letter}: combined inside")
        elif "!" in mark:
            continue
        elif "^" in mark:
            cells.append(f"{letter}: in ranges")
        elif letter in linked:
            cells.append(f"{letter}: together with {linked[letter]}")
        elif letter not in outputs:
            cells.append(f"{letter}: leaves P" + (
                f"({largest[letter]})" if letter in largest else ""))
        else:
            freely.append(letter)
    return "; ".join([", ".join(freely)] * bool(freely) + cells)


def partials(name, rule):
    if rule is None:  # a view has what the elements have
        return "none" if name == "paged_attention" else "all"
    notes = [n for n in rule.split(" | ")[1:] for n in n.split("; ")]
    notes = [n for n in notes if re.match(r"[a-z]+ [\d,]+$", n)]
    return "; ".join(n.replace(",", " and ") for n in notes) or "none"


class Sources:
    """The definitions in ops/, to find the functions that each one calls."""

    def __init__(self, root):
        self.files = {p: re.sub(r"//[^\n]*", "", p.read_text())
                      for p in [*sorted((root / "ops").glob("*.cc")),
                                *sorted((root / "ops").glob("*.h"))]}
        # The headers and files of the helpers that several files call.
        self.shared = {
            part.split()[1][:-1]: (header, path)
            for header in ("loss_parts.h", "index_tensors.h")
            for part in re.findall(r"^DistTensor \w+\(",
                                   (root / "ops" / header).read_text(), re.M)
            for path, text in self.files.items()
            if header in text and "\n" + part in text}

    def bodies(self, name, only=None):
        """The definitions of a function with their files."""
        for path, text in self.files.items():
            if only and path != only:
                continue
            for match in re.finditer(
                    r"^[\w:<>,&* ]+[ &*>]%s\([^;{}]*\)\s*\{" % name, text,
                    re.M):
                end, depth = match.end(), 1
                while depth:
                    depth += {"{": 1, "}": -1}.get(text[end], 0)
                    end += 1
                yield path, text[match.end():end]

    def calls(self, name, known, path=None, seen=None):
        """The known functions that the definitions of `name` call, directly or
        through helpers in the same file and shared ones."""
        seen = set() if seen is None else seen
        seen.add(name)
        called = []
        bodies = list(self.bodies(name, path))
        header, file = self.shared.get(name, ("", None))
        if not bodies and file and header in self.files[path]:
            bodies = self.bodies(name, file)
        for where, body in bodies:
            # Contractions are named where they are made.
            called += [c for c in re.findall(
                r'\b(?:product|contraction)_op\("(\w+)"', body)
                       if c in known and c != name and c not in called]
            for match in re.finditer(r"(?<![\w.>:])(\w+)(?:<\w+>)?\(", body):
                # A name after a type is a variable: "std::vector<int> all(n)".
                before = re.search(r"(?:(\w+)|\S>) +$", body[:match.start()])
                if before and before.group(1) not in ("return", "else"):
                    continue
                callee = re.sub("_ops?$", "", match.group(1))
                if callee in known and callee != name:
                    if callee not in called:
                        called.append(callee)
                elif callee not in seen and len(callee) > 2:
                    called += [c for c in
                               self.calls(callee, known, where, seen)
                               if c not in called and c != name]
        return called


INTRODUCTION = """# Operators

For users and contributors: every public function of `ops/` that makes a tensor.
`tools/operators_page.py` writes this page; do not edit it.

- *Rule*: the text that decides which layouts the function can compute on.
  `placement/rule.h` has the grammar. Capital letters stand for leading
  dimensions, of which a call may have any number. The rule is that of a typical
  call.
- *Split along*: the factors that mesh axes may split. "combined inside" means an
  algorithm of the operator's own with small collectives; "leaves P" means that
  the result is partial.
- *Partial inputs*: which inputs may be partial. `linear 0`: input 0 alone, as a
  sum; `linear 0 and 1`: both together. Others are reduced first.
- *Gradient*: the operators that the backward pass runs. Names with `'` are
  derivatives of element-wise functions.
- *Calls*: a function without an operator of its own calls these functions of the
  page. `+`, `-`, `*` and `/` of tensors are not listed.

To see the alternatives and prices of a call, use
`bazel run -c opt //:explain -- --op NAME`; see [layouts.md](layouts.md).
"""

NOT_BUILT = """
## Not built

| in torch | why not |
|---|---|
| `fft`, `rfft`, `irfft` and the rest of `torch.fft`; complex numbers | a complex type would need a version of every kernel, and rules for views as real numbers; models use it seldom |
| `scaled_dot_product_attention(dropout_p=...)` | `attention` holds no matrix of probabilities to drop from; write it with `softmax` and `dropout` |
| `linalg.eig`, `eigvals` | their results are complex |
| sparse tensors | `used_rows()` and sparse updates of an optimizer serve large embedding tables |
"""


def page(root, explain):
    all_functions = functions(root)
    all_rules = rules(root)
    sources = Sources(root)
    known = set(all_functions) | set(all_rules)
    missing = sorted({f.header for f in all_functions.values()} - set(HEADERS)
                     - {"ops/grad.h"})
    if missing:
        sys.exit(f"HEADERS has no title for {', '.join(missing)}")
    text = INTRODUCTION
    for header, section in [
            (h, s) for h in HEADERS for s in
            [None, *re.findall(SECTION, (root / h).read_text(), re.M)]]:
        names = sorted(n for n, f in all_functions.items()
                       if (f.header, f.section) == (header, section))
        if not names:
            continue
        operators = [n for n in names if n in all_rules]
        composed = [n for n in names
                    if n not in all_rules and not all_functions[n].creates]
        created = [n for n in names
                   if n not in all_rules and all_functions[n].creates]
        text += f"\n## {section or HEADERS[header]}\n\n`{header}`\n"
        if operators:
            text += ("\n| function | rule | split along | partial inputs "
                     "| gradient |\n|---|---|---|---|---|\n")
        for name in operators:
            rule = all_rules[name]
            shown = "none" if rule is None else \
                f"`{rule.split(' | ')[0]}`"
            text += (f"| `{name}` | {shown} | {splits(rule)} "
                     f"| {partials(name, rule)} "
                     f"| {gradient(explain, name, rule)} |\n")
        if composed:
            text += ("\n| function | calls |\n|---|---|\n")
        for name in composed:
            calls = sources.calls(name, known)
            text += f"| `{name}` | " + (
                ", ".join(f"`{c}`" for c in calls) or "none of these") + " |\n"
        if created:
            text += ("\nCreated in the layout that the caller gives: "
                     + ", ".join(f"`{n}`" for n in created) + ".\n")
    return text + NOT_BUILT


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--explain", default="bazel-bin/programs/explain",
                        metavar="PROGRAM")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("root", nargs="?", default=".", metavar="ROOT")
    args = parser.parse_args()
    root = pathlib.Path(args.root)
    text = page(root, args.explain)
    if not args.check:
        (root / PAGE).write_text(text)
        return 0
    if (root / PAGE).read_text() == text:
        return 0
    print(f"{PAGE} is out of date; run tools/operators_page.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
