#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws one step of a trace as an SVG picture.

  tools/trace_svg.py trace.json trace.svg              the last step
  tools/trace_svg.py trace.json trace.svg --step 2     the step of this number

Time goes to the right. Each rank has three lines: the named spans inside the
step, the operators, and the collectives. A collective is light while its rank
waits for the last member. Work that is too short to be seen is not labelled;
a pointer over a box shows its name, module and time.
"""
import argparse
import json
import sys
from html import escape

WIDTH, LEFT, MARGIN, LINE, GAP = 1100, 70, 24, 22, 14
COLOURS = {"span": "#dfe4ea", "operator": "#6fa8e8", "collective": "#d78f24"}
WAITING = "#f7d9a8"
KINDS = ("span", "operator", "collective")


def read(path):
    """The complete events of the ranks' own threads."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return [e for e in events if e["ph"] == "X" and e["tid"] == 0]


def steps(events):
    """The number of each step, and when its first rank begins and the last ends."""
    found = {}
    for e in events:
        if e["name"] == "step" and "number" in e["args"]:
            begin, end = found.get(e["args"]["number"], (float("inf"), 0))
            found[e["args"]["number"]] = (min(begin, e["ts"]),
                                          max(end, e["ts"] + e["dur"]))
    return found


def outermost(events):
    """Leaves out events inside others; `events` are in the order of a track."""
    kept, end = [], float("-inf")
    for e in events:
        if e["ts"] >= end:
            kept.append(e)
            end = e["ts"] + e["dur"]
    return kept


def label(e):
    args = e["args"]
    of = args.get("module") or args.get("op") or ""
    text = f"{e['name']}{' of ' + of if of else ''}: {e['dur'] / 1000:.3f} ms"
    if args.get("waited us", 0) > 0:
        text += f", of which it waited {args['waited us'] / 1000:.3f} ms"
    return text


class Picture:
    def __init__(self, begin, end):
        self.begin, self.per = begin, (WIDTH - LEFT - MARGIN) / (end - begin)
        self.parts = []

    def text(self, x, y, text, size=12, more=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y}" font-size="{size}" {more}>'
                          f"{escape(text)}</text>")

    def box(self, ts, dur, y, fill, title):
        x, w = LEFT + (ts - self.begin) * self.per, max(dur * self.per, 0.3)
        self.parts.append(
            f'<rect x="{x:.2f}" y="{y}" width="{w:.2f}" height="{LINE - 3}" '
            f'fill="{fill}"><title>{escape(title)}</title></rect>')
        return x, w

    def event(self, e, y):
        kind = e["cat"]
        x, w = self.box(e["ts"], e["dur"], y, COLOURS[kind], label(e))
        waited = e["args"].get("waited us", 0)
        if kind == "collective" and waited > 0:
            self.box(e["ts"], min(waited, e["dur"]), y, WAITING, label(e))
        if w > 6.5 * len(e["name"]):
            self.text(x + w / 2, y + 14, e["name"], 11,
                      'text-anchor="middle" pointer-events="none"')


def draw(events, number, begin, end):
    inside = [e for e in events if begin <= e["ts"] and e["ts"] + e["dur"] <= end
              and e["name"] != "step"]
    picture = Picture(begin, end)
    picture.text(MARGIN, 32, f"step {number}: {(end - begin) / 1000:.1f} ms", 18)
    y = 50
    for rank in sorted({e["pid"] for e in inside}):
        picture.text(MARGIN, y + 14, f"rank {rank}")
        for kind in KINDS:
            for e in outermost([e for e in inside
                                if e["pid"] == rank and e["cat"] == kind]):
                picture.event(e, y)
            y += LINE
        y += GAP
    x = LEFT
    legend = [(COLOURS[k], k) for k in KINDS] + [(WAITING, "waits for a rank")]
    for colour, text in legend:
        picture.parts.append(f'<rect x="{x}" y="{y}" width="14" height="14" '
                             f'fill="{colour}"/>')
        picture.text(x + 20, y + 12, text)
        x += 40 + 7 * len(text)
    height = y + 30
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
            f'height="{height}" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif">\n'
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
            + "\n".join(picture.parts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="a file that --trace wrote")
    parser.add_argument("svg", help="the file to write")
    parser.add_argument("--step", type=int, help="default: the last one")
    args = parser.parse_args()
    try:
        events = read(args.trace)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"trace_svg.py: {args.trace} is not a trace: {error}")
    found = steps(events)
    number = max(found, default=None) if args.step is None else args.step
    if number not in found:
        sys.exit(f"trace_svg.py: {args.trace} has no step {number}; it has "
                 f"{', '.join(map(str, sorted(found))) or 'none'}")
    with open(args.svg, "w", encoding="utf-8") as file:
        file.write(draw(events, number, *found[number]))


if __name__ == "__main__":
    main()
