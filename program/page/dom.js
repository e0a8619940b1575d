// SPDX-License-Identifier: Apache-2.0
// Elements, numbers with units, and the parts that all views draw with. Names in a
// record come from a program: they are only ever text nodes or attribute values.

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false));
  return node;
}
const refill = (node, ...children) => {
  node.replaceChildren();
  return filled(node, {}, children);
};
const el = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const whole = (n) => Math.round(n).toLocaleString("en-US");
function scaled(n, step, units) {
  let i = 0;
  for (; i + 1 < units.length && Math.abs(n) >= step; ++i) n /= step;
  const digits = Number.isInteger(n) || Math.abs(n) >= 100 ? 0 : Math.abs(n) >= 10 ? 1 : 2;
  return `${n.toLocaleString("en-US", { maximumFractionDigits: digits })} ${units[i]}`;
}
const byteText = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
const timeText = (us) => scaled(us, 1000, ["us", "ms", "s"]);
// The exact number is in a tooltip, and in an attribute for programs that read the page.
const bytes = (n) => !Number.isFinite(n) ? "–"
  : el("span", { class: "number", title: `${whole(n)} bytes`, "data-bytes": n }, byteText(n));
const time = (us) => us === undefined || us === null ? "–"
  : el("span", { class: "number", title: `${us} us`, "data-us": us }, timeText(us));
const code = (...text) => el("code", {}, ...text);

// "0–3, 8, 12–15" of ascending numbers; a long list is cut.
function ranges(numbers, most = 8) {
  const texts = [];
  for (let i = 0, j; i < numbers.length; i = j) {
    for (j = i + 1; j < numbers.length && numbers[j] === numbers[j - 1] + 1;) ++j;
    texts.push(j - i > 1 ? `${numbers[i]}${j - i > 2 ? "–" : ", "}${numbers[j - 1]}` : `${numbers[i]}`);
  }
  return texts.length > most ? `${texts.slice(0, most).join(", ")}, ...` : texts.join(", ");
}
const count = (n, one, many = `${one}s`) => `${whole(n)} ${n === 1 ? one : many}`;
const span = ([lo, hi]) => hi - lo === 1 ? `${lo}` : `${lo}–${hi - 1}`;
const spans = (list) => {
  const full = list.filter(([lo, hi]) => hi > lo);
  return full.length ? full.slice(0, 6).map(span).join(", ") + (full.length > 6 ? ", ..." : "") : "none";
};

// Okabe and Ito's colours, which the colour-blind tell apart. Text or a pattern
// always says the same as a colour.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00", "#7f7f7f"];
const KINDS = { "all-gather": 0, "reduce-scatter": 1, permute: 2, "all-to-all": 3, exchange: 4,
  "all-reduce": 5, "reduce-exchange": 6 };
const colourOf = (kind) => COLOURS[KINDS[kind] ?? 7];
const chip = (kind, ...text) => el("span", { class: "chip" },
  el("i", { style: `background:${colourOf(kind)}`, "aria-hidden": "true" }), kind, " ", ...text);

// Fills of SVG shapes: solid, and with lines or dots for those that see no colours.
let patterns = 0;
function pattern(colour, style) {
  const id = `pattern${++patterns}`;
  const line = (d) => draw("path", { d, stroke: "var(--ink)", "stroke-width": 1, fill: "none", opacity: 0.55 });
  const dot = draw("circle", { cx: 4, cy: 4, r: 1.2, fill: "var(--ink)", opacity: 0.6 });
  const corner = draw("circle", { cx: 2, cy: 2, r: 1.2, fill: "var(--ink)" });
  const mark = [[], [line("M0 8L8 0")], [dot], [line("M0 8L8 0"), corner],
    [line("M0 4H8")], [line("M4 0V8")]][style];
  const defs = draw("defs", {}, draw("pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
    draw("rect", { width: 8, height: 8, fill: colour, opacity: 0.45 }), mark));
  return [defs, `url(#${id})`];
}
const picture = (label, width, height, ...children) => draw("svg", { role: "img", "aria-label": label,
  viewBox: `0 0 ${width} ${height}`, width, height, class: "picture" }, ...children);

// A box of its own in which content wider than the screen scrolls.
const scrolled = (label, ...content) =>
  el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, ...content);
// A column whose head begins with "#" has numbers. A row is a list of cells, or a <tr>.
// A column of which nothing is known is left out.
function table(caption, heads, rows) {
  const known = heads.map((_, i) => !rows.length || rows.some((row) => row instanceof Node || row[i] !== "–"));
  const cells = (tag, list, scope) => list.map((content, i) => known[i] &&
    el(tag, { class: heads[i].startsWith("#") ? "number" : undefined, scope }, content));
  return scrolled(caption, el("table", {}, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, cells("th", heads.map((h) => h.replace(/^#/, "")), "col"))),
    el("tbody", {}, rows.map((row) => row instanceof Node ? row : el("tr", {}, cells("td", row))))));
}
const bar = (share, colour) => el("span", { class: "bar", "aria-hidden": "true" },
  el("i", { style: `width:${(100 * Math.min(1, share || 0)).toFixed(2)}%;background:${colour ?? "var(--accent)"}` }));
// Puts the first of many items into `list`, and after it, in `box`, a button for more
// of them. Returns the box.
function long(items, most, show, list, box = el("div", {}, list)) {
  let shown = 0;
  const more = el("button", { type: "button", class: "more", click: () => add() });
  const add = () => {
    const next = items.slice(shown, shown + most).map(show), pressed = document.activeElement === more;
    list.append(...next);
    shown += next.length;
    more.textContent = `Show more (${whole(items.length - shown)} left)`;
    if (shown < items.length) box.append(more);
    else more.remove();
    if (pressed && !more.isConnected) next[0].querySelector("a, button")?.focus();
  };
  add();
  return box;
}
// A button that copies the text of an element, and what it says then.
function copier(name, shown) {
  const said = el("span", { role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(shown.textContent);
      said.textContent = "Copied.";
    } catch {  // a browser may not let a file do so
      getSelection().selectAllChildren(shown);
      said.textContent = "Selected; copy it with the keyboard.";
    }
    // The text beside it may change.
    setTimeout(() => { said.textContent = ""; }, 3000);
  };
  return [el("button", { type: "button", click: copy }, name), " ", said];
}
const plain_list = (items, most, show) => long(items, most, show, el("ul", { class: "plain" }));
const labelled = (text, control) => el("label", { class: "control" }, text, " ", control);
const choice = (id, options, value, change) => el("select", { id, change: (e) => change(e.target.value) },
  options.map(([key, text]) => el("option", { value: key, selected: `${key}` === `${value}` }, text)));
