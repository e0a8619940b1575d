#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the public functions that no test calls by name; exits 1 if any.

  tools/untested_functions.py [ROOT]
  tools/untested_functions.py --cases [ROOT]

Public functions are the free functions of the headers that dtensor.h includes
(and nn/nn.h, which is also a list of headers), and the functions that the lists
in ops/functions/ declare. A call is NAME( or CALL(NAME) in a test, or an entry
of tests/conformance/calls*.cc, which the checked-in cases run.

With --cases, lists the functions of ops/ that no case in tests/conformance/data
compares with torch's numbers, and the entries that no case calls. A function has
a case if calls*.cc names it, or if it is in a list of ops/functions/ and a case
has its name. WITHOUT_CASES names the functions that torch does not have or has
no case of, and for each the test that checks it.
"""

import json
import pathlib
import re
import sys

LISTS = {"nn/nn.h"}
NOT_FUNCTIONS = {"static_assert", "alignas", "decltype", "requires", "defined"}
# Functions for the list of operators, or for operators that call operators.
INTERNAL = re.compile(
    r"(_ops?|^contract|^begin_move|^edge_to|^record_event|^spend_budget|"
    r"^alias|^redistribute)$")
# The reason why there is no case, the test that checks the values, and the
# functions.
WITHOUT_CASES = [
    ("torch has no cases of these forms; compared with plain expressions",
     "tests/ops/pointwise_test.cc",
     "add_scalar binary bitwise_left_shift bitwise_right_shift clamp "
     "div_scalar mul_scalar pow_scalar swiglu"),
    ("torch has polygamma() and frexp(), which call these",
     "tests/ops/special_test.cc",
     "frexp_exponent frexp_mantissa polygamma_scalar"),
    ("torch's cases have tensors as bounds; compared with plain expressions",
     "tests/ops/torch_rules_test.cc", "clamp_max clamp_min"),
    ("there is no case of it; compared with conv_transpose2d()",
     "tests/ops/convolution_test.cc", "conv_transpose3d"),
    ("torch has no such function; compared with a sum and a norm",
     "tests/ops/norm_test.cc",
     "add_layer_norm add_rms_norm layer_norm_through rms_norm_through"),
    ("torch has no such function; compared with a plain loop",
     "tests/ops/attention_test.cc", "rotary score_pairs"),
    ("torch has no such function; compared with a plain loop",
     "tests/ops/paged_attention_test.cc", "kv_heads_of paged_attention"),
    ("torch has no such function; compared with a plain loop",
     "tests/ops/experts_test.cc", "experts data_decide_bytes"),
    ("torch has no public function; compared with linear()",
     "tests/ops/linear_test.cc", "int8_linear to_int8"),
    ("torch has sparse gradients instead; compared with embedding()",
     "tests/ops/data_shapes_test.cc", "rows_spec used_rows"),
    ("a case has one rank; compared with plain loops on many meshes",
     "tests/ops/collectives_test.cc",
     "all_reduce all_to_all broadcast ppermute reduce_scatter"),
    ("a case has one rank; compared with plain loops on many meshes",
     "tests/ops/local_map_test.cc", "from_local local_map local_mesh to_local"),
    ("torch has a class instead; compared with plain loops",
     "tests/ops/custom_test.cc", "custom_function"),
    ("matmul() by another algorithm; compared with it",
     "tests/ops/summa_test.cc", "summa summa_panels"),
    ("it writes in place; compared with slices",
     "tests/ops/decode_test.cc", "copy_into"),
    ("it chooses how attention() is computed",
     "tests/ops/context_parallel_test.cc", "context_bytes name parse_context"),
    ("random numbers are the library's own",
     "tests/ops/random_test.cc",
     "dropout manual_seed randint randn random_state set_random_state uniform"),
    ("random numbers are the library's own; compared with distributions",
     "tests/ops/distributions_test.cc",
     "alpha_dropout bernoulli dropout1d dropout2d dropout3d exponential normal "
     "orthogonal rand rand_like randint_like randn_like randperm trunc_normal"),
    ("random numbers are the library's own; compared with probabilities",
     "tests/ops/topk_test.cc", "multinomial"),
    ("torch has no cases; compared with a plain loop",
     "tests/ops/slice_test.cc", "slice_scatter"),
    ("torch has no cases; compared with a plain loop",
     "tests/ops/data_shapes_test.cc", "unique_consecutive"),
    ("there are no cases; compared with numbers worked out by hand",
     "tests/ops/pool_test.cc",
     "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices "
     "adaptive_max_pool3d adaptive_max_pool3d_with_indices"),
    ("there are no cases; compared with a plain loop",
     "tests/ops/unfold_test.cc", "fold"),
    ("there are no cases; compared with a sum over all paths",
     "tests/ops/ctc_loss_test.cc", "ctc_loss"),
    ("torch has no cases whose signs are unique; multiplied again",
     "tests/ops/linalg_test.cc", "eigh svd"),
    ("there is nothing to compute",
     "tests/ops/random_test.cc", "ones zeros"),
    ("other names of functions that have cases",
     "tests/ops/other_names_test.cc",
     "broadcast_to clip concat inverse scaled_dot_product_attention"),
    ("there is nothing to compute",
     "tests/ops/other_names_test.cc", "empty"),
    ("it changes a tensor in place; compared with a plain loop",
     "tests/ops/assign_test.cc", "assign"),
    ("index_put() in place; compared with the elements that torch selects",
     "tests/ops/indices_test.cc", "index_put_"),
    ("reshape() without communication; refuses some layouts of every case",
     "tests/ops/view_test.cc", "view"),
    ("every case with gradients calls it", "tests/ops/grad_test.cc", "grad"),
    ("it computes nothing itself", "tests/ops/recompute_test.cc", "checkpoint"),
    ("it computes nothing itself", "tests/ops/save_on_host_test.cc", "save_on_host"),
]


def public_headers(root):
    headers, todo = [], ["dtensor.h"]
    while todo:
        name = todo.pop()
        for include in re.findall(r'#include "(dtensor/[^"]+)"',
                                  (root / name).read_text()):
            # The path in the tree.
            include = re.sub("^dtensor/(?=(placement|ops|nn|program)/)", "", include)
            if include in LISTS:
                todo.append(include)
            elif include not in headers:
                headers.append(include)
    return headers


def top_level(text):
    """The statements outside of all braces except those of namespaces."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    stack, statement, out = [], "", []
    for c in text:
        hidden = any(kind != "namespace" for kind in stack)
        if c == "{":
            words = statement.split()
            named = len(words) == 2 and words[0] == "namespace"
            plain = named and words[1] in ("dtensor", "dtensor::nn")
            if not hidden and not named:
                # A default argument {} belongs to the statement.
                if statement.count("(") > statement.count(")"):
                    stack.append("argument")
                    continue
                out.append(statement)
            stack.append("namespace" if plain else "body")
            if not hidden and stack[-1] == "namespace":
                statement = ""
        elif c == "}":
            kind = stack.pop()
            if kind == "body" and not any(k != "namespace" for k in stack):
                statement = ""
        elif hidden:
            continue
        elif c == ";":
            out.append(statement)
            statement = ""
        else:
            statement += c
    return out


def functions(root):
    names = {}
    for header in public_headers(root):
        for statement in top_level((root / header).read_text()):
            found = re.match(
                r"\s*(?:template\s*<[^<>]*>\s*)?(?:[\w:<>,&*\s]+?[\s&*>])"
                r"(\w+)\s*\(", statement)
            if not found or re.match(
                    r"\s*(?:using|struct|class|enum|friend|extern)\b",
                    statement):
                continue
            name = found.group(1)
            if name in NOT_FUNCTIONS or name.isupper() or "operator" in (
                    statement.split("(")[0]):
                continue
            if not INTERNAL.search(name):
                names.setdefault(name, header)
    for header in sorted((root / "ops/functions").glob("*.h")):
        for name in re.findall(r"^\s*DT_FUNCTION(?:_P)?\(\w+, (\w+)\)",
                               header.read_text(), re.M):
            names.setdefault(name, str(header.relative_to(root)))
    return names


def without_comments(path):
    return re.sub(r"//[^\n]*", "", path.read_text())


def called(text):
    """The names of the functions that the text calls."""
    return {a or b for a, b in re.findall(
        r"\bCALL(?:_P)?\((\w+)[,)]|"
        r"(?:(?<![\w.:>])|\b(?:dtensor|nn)::)(\w+)(?:<[^<>()]*>)?\(", text)}


class Cases:
    """The checked-in cases, and the entries of calls*.cc that they call."""

    def __init__(self, root):
        folder = root / "tests/conformance"
        lines = (folder / "data/cases.jsonl").read_text().splitlines()
        self.ops = {c["op"] for c in map(json.loads, lines) if "outputs" in c}
        calls = "".join(map(without_comments, sorted(folder.glob("calls*.cc"))))
        calls = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", calls, flags=re.M)
        self.entries = set(re.findall(r't\["([^"]+)"\]\s*=', calls))
        self.calls = re.sub(r'"[^"\n]*"', '""', calls)

    def call(self, name, header):
        if re.search(r"(?<![\w.:>])%s\(|<[\w:, ]*\b%s[>,]|"
                     r"\b(?:call(?:<[^;]*?>)?|of_all)\(\s*%s[,)]"
                     % (name, name, name), self.calls):
            return True
        listed = {module + name for module in ("", "nn.functional.", "special.")
                  if header.startswith("ops/functions/")}
        return bool(listed & self.ops - self.entries)


def untested(root, names):
    """A sentence for each of `names` that no test calls."""
    cases = Cases(root)
    tests = called("".join(without_comments(path)
                           for path in sorted((root / "tests").rglob("*"))
                           if path.suffix in (".cc", ".h")
                           and path.parent.name != "conformance"))
    return [f"no test calls {header}: {name}"
            for name, header in sorted(names.items())
            if name not in tests and not cases.call(name, header)]


def without_cases(root, names):
    """A sentence for each problem of the conformance cases of `names`."""
    cases = Cases(root)
    wrong = [f"no case calls the entry {entry}"
             for entry in sorted(cases.entries - cases.ops)]
    excused = {name: test for _, test, list_ in WITHOUT_CASES
               for name in list_.split()}
    for name, header in sorted(names.items()):
        has, test = cases.call(name, header), excused.pop(name, None)
        if not has and not test:
            wrong.append(f"no case calls {header}: {name}; write its entry in "
                         "tests/conformance/calls*.cc, and choose a case with "
                         "tools/choose_cases.py")
        elif has and test:
            wrong.append(f"{header}: {name} has a case; take it out of "
                         "WITHOUT_CASES")
        elif test and name not in called(without_comments(root / test)):
            wrong.append(f"{test} does not call {name}, which has no case")
    return wrong + [f"WITHOUT_CASES names {name}, which is not a function"
                    for name in excused]


def main():
    arguments = sys.argv[1:]
    cases = arguments[:1] == ["--cases"]
    rest = arguments[1:] if cases else arguments
    if len(rest) > 1 or any(a.startswith("-") for a in rest):
        print(__doc__, end="")
        return 0 if rest[:1] in (["-h"], ["--help"]) else 2
    root = pathlib.Path(rest[0] if rest else ".")
    names = functions(root)
    if cases:
        names = {name: header for name, header in names.items()
                 if header.startswith("ops/")}
        wrong = without_cases(root, names)
    else:
        wrong = untested(root, names)
    for line in wrong:
        print(line)
    print(f"{len(names)} public functions, {len(wrong)} "
          f"{'complaints' if cases else 'without a test'}")
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())
