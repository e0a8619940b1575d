# SPDX-License-Identifier: Apache-2.0
"""Random bugs: edits of statements that stand on one line.

draw() picks statements at random, at most two of each file, and one edit of
each: another comparison or arithmetic operator, && for || and min for max and
the reverse, 0 for 1, true for false, a negated condition, a dropped call. The
edited line contains both versions, and MUT(k) selects the new one. Statements
that only reserve memory, x.reserve(n), are left out: no result shows an edit.
"""

import collections
import os
import random
import re
from dataclasses import dataclass

from planted_bugs import Bug

OPERATORS = {
    "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/",
    "+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=",
}
PER_FILE = 2
FOLDERS = "dtensor/", "placement/", "ops/", "nn/", "program/", "programs/report/"
# Sources that need nvcc or NCCL, and the source for builds without MPI.
NOT_BUILT = re.compile(r"/(cuda|cuda_plugin|nccl)/|/no_mpi\.cc$")

# clang-format puts spaces around operators, but not around a template's < >.
_OPERATOR = re.compile(
    "(?<= )(%s)(?= )" % "|".join(map(re.escape, OPERATORS)))
_LOGICAL = re.compile(r"(?<= )(&&|\|\|)(?= )")
_MIN_MAX = re.compile(r"\bstd::(min|max)\b")
_NUMBER = re.compile(r"(?<![\w.'])([01])(?=(\.0?)?[fFuUlL]*(?![\w.']))")
_BOOL = re.compile(r"\b(true|false)\b")
_TEMPLATE = re.compile(r"(?<=\w)<[^<>;(){}=&|]*>")
_LEFT_ALONE = re.compile(
    r"\s*(#|:(?!:)|[?.,<>)|&\]]|(case|default|using|typedef|template|namespace|"
    r"friend|extern|virtual|enum|struct|class|union|goto|asm|public|private|"
    r"protected)\b)|.*\b(constexpr|consteval|constinit|static_assert|operator|"
    r"__attribute__|alignas)\b|.*(\.|->)reserve\(.*\);$")
_HEADER = re.compile(r"(?:\} )?(?:else )?(if|while|for|switch) (?=\()")
_ASSIGNMENT = re.compile(r" (?:[-+*/%|&^]|<<|>>)?= ")


@dataclass(frozen=True)
class Drawn(Bug):
    """A bug with one edit, which replaces a line of the original text."""
    original: str = ""
    edited: str = ""
    kind: str = ""


def masked(text):
    """The text with comments and strings blanked out, of the same length."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^()\\\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
        r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)

    def blank(match):
        got = match.group()
        fill = " " if got[0] == "/" else "_"
        inner = re.sub(r"[^\n]", fill, got)
        return inner if fill == " " else got[-1] + inner[1:-1] + got[-1]

    return token.sub(blank, text)


def without_templates(line):
    """The masked line without template arguments, of the same length."""
    while True:
        less = _TEMPLATE.sub(lambda m: "$" * len(m.group()), line)
        if less == line:
            return line
        line = less


def collapsed(text):
    """The text with each outermost pair of brackets replaced by @s."""
    before = None
    while before != text:
        before = text
        text = re.sub(r"\([^(){}\[\]]*\)|\[[^(){}\[\]]*\]|\{[^(){}\[\]]*\}",
                      lambda m: "@" * len(m.group()), text)
    return text


@dataclass(frozen=True)
class Unit:
    """The part of a line that is written twice. Its kind is "condition",
    "return", "value" (of a declaration) or "statement"."""
    kind: str
    begin: int
    end: int


def units(line):
    """The units of a masked line without templates."""
    found, flat = [], collapsed(line)
    at = len(line) - len(line.lstrip())
    while match := _HEADER.match(line, at):
        begin = match.end() + 1
        end = begin
        while flat[end:end + 1] == "@":
            end += 1
        end -= 1  # the closing bracket
        part = collapsed(line[begin:end])
        if match[1] == "for" and part.count(";") == 2:
            first, last = part.index(";") + 1, part.rindex(";")
            if part[first:last].strip():
                found.append(Unit("condition", begin + first + 1, begin + last))
        elif match[1] in ("if", "while") and not re.search(" = |;", part):
            found.append(Unit("condition", begin, end))
        at = end + 1
        at += len(line[at:]) - len(line[at:].lstrip())
    if line.startswith("else ", at):
        at += len("else ")
    end = line.rstrip().rfind(";")
    if end < at or flat.count(";", at) != 1:
        return found
    own = flat[at:end]
    if re.match(r"return [^{]", line[at:]):
        found.append(Unit("return", at, end + 1))
    elif not re.match(r"(return|throw|delete|else|do|new)\b|@", own):
        assignment = _ASSIGNMENT.search(own)
        head = own[:assignment.start()] if assignment else own
        if not re.search(r"\s", head.split(", ")[0]):
            found.append(Unit("statement", at, end + 1))
        elif assignment and assignment.group() == " = ":
            value = at + assignment.end()
            if line[value] not in "{[" and "," not in own[assignment.end():]:
                found.append(Unit("value", value, end))
    return found


def statement_lines(text):
    """(line number from 1, the line, the line masked and without templates) of
    each statement that stands on one line."""
    before = ""
    for number, (line, mask) in enumerate(
            zip(text.split("\n"), masked(text).split("\n")), 1):
        mask = mask.rstrip()
        # Code in namespaces is not indented, so lines without indentation are
        # not statements.
        if (before[-1:] in list(";{}:") and mask[-1:] in (";", "{")
                and line.startswith("  ") and not _LEFT_ALONE.match(mask)):
            closed = collapsed(mask.strip().removeprefix("} ").removesuffix("{"))
            if not re.search(r"[](){}[]", closed):
                yield number, line, without_templates(mask)
        if mask.strip():
            before = mask


def edits(line, mask):
    """(kind, begin, end, new text) of each possible edit of a statement."""
    for match in _OPERATOR.finditer(mask):
        # Not in concatenations of strings, for which there is only +.
        if '"' not in (mask[match.start() - 2], mask[match.end() + 1:][:1]):
            yield "operator", *match.span(), OPERATORS[match[1]]
    for match in _LOGICAL.finditer(mask):
        yield "logical", *match.span(), {"&&": "||", "||": "&&"}[match[1]]
    for match in _MIN_MAX.finditer(mask):
        yield "min/max", *match.span(1), {"min": "max", "max": "min"}[match[1]]
    for match in _NUMBER.finditer(mask):
        yield "constant", *match.span(1), {"0": "1", "1": "0"}[match[1]]
    for match in _BOOL.finditer(mask):
        yield "bool", *match.span(), {"true": "false", "false": "true"}[match[1]]
    for unit in units(mask):
        old = line[unit.begin:unit.end]
        if unit.kind == "condition":
            yield "negated", unit.begin, unit.end, f"!({old})"
        elif unit.kind == "statement" and re.fullmatch(
                r"[\w:.$>@*-]*@;", collapsed(mask)[unit.begin:unit.end]):
            yield "dropped", unit.begin, unit.end, ";"


def planted(line, mask, edit, number):
    """(the line with both versions, the edited line). The first is None if one
    line cannot contain both versions."""
    kind, begin, end, new = edit
    old = line[begin:end]
    edited = line[:begin] + new + line[end:]
    switch = f"MUT({number})"
    if kind in ("constant", "bool"):
        end += re.match(r"[\w.]*", line[end:]).end()
        new += line[begin + len(old):end]
        both = f"({switch} ? {new} : {line[begin:end]})"
        return line[:begin] + both + line[end:], edited
    around = [u for u in units(mask) if u.begin <= begin and end <= u.end]
    if not around:
        return None, edited
    unit = around[-1]
    old = line[unit.begin:unit.end]
    new = edited[unit.begin:unit.end + len(edited) - len(line)]
    both = {
        "condition": f"{switch} ? bool({new}) : bool({old})",
        "value": f"{switch} ? ({new}) : ({old})",
        "return": f"{{ if ({switch}) {new} {old} }}",
        "statement": f"{{ if ({switch}) {{ {new} }} else {{ {old} }} }}",
    }[unit.kind]
    return line[:unit.begin] + both + line[unit.end:], edited


def draw(texts, count, seed):
    """Draws at most `count` bugs from `texts`, the source of each file. Whether
    a statement is drawn depends only on the other statements of its file."""
    statements = []
    for file in texts:
        seen = collections.Counter()
        for number, line, mask in statement_lines(texts[file]):
            possible = [e for e in edits(line, mask)
                        if planted(line, mask, e, 0)[0]]
            if possible:
                chance = random.Random(f"{seed} {file} {line} {seen[line]}")
                seen[line] += 1
                statements.append((chance.random(), file, number, line, mask,
                                   possible, chance))
    bugs, taken = [], collections.Counter()
    for _, file, number, line, mask, possible, chance in sorted(
            statements, key=lambda s: s[:3]):
        if len(bugs) == count:
            break
        if taken[file] == PER_FILE:
            continue
        taken[file] += 1
        # Choose the kind first, since there are more operators than anything
        # else.
        kind = chance.choice(sorted({e[0] for e in possible}))
        edit = chance.choice([e for e in possible if e[0] == kind])
        k = len(bugs) + 1
        both, edited = planted(line, mask, edit, k)
        original, edited = line.strip(), edited.strip()
        bugs.append(Drawn(
            k, f"line {number}: {original} -> {edited}", [(file, line, both)],
            line=number, original=original, edited=edited, kind=kind))
    return bugs


def sources(root, files, folder=""):
    """The text of each file of the tree that may be edited, by name."""
    texts = {}
    for file in files:
        if (file.endswith(".cc") and file.startswith(FOLDERS)
                and not NOT_BUILT.search(file)
                and (file + "/").startswith(folder.rstrip("/") + "/" if folder
                                            else "")):
            with open(os.path.join(root, file)) as f:
                texts[file] = f.read()
    return texts
