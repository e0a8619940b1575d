// SPDX-License-Identifier: Apache-2.0
// The program as a tree of modules and operators, forward beside backward.

const COLUMNS = ["forward", "backward", "other phases"];
const column_of = (phase) => phase === "forward" ? 0 : phase === "backward" ? 1 : 2;
// The modules that somebody unfolded (by key) or folded ("-" and the key).
const unfolded = new Set();

// A module: the operators that it calls itself, and what all below it do, by column.
function module_node(name, path, parent) {
  return {
    name, path, parent, children: new Map(), own: [[], [], []],
    sums: COLUMNS.map(() => ({ operators: 0, kinds: new Map() })),
  };
}
function add_to_sum(sum, events) {
  ++sum.operators;
  for (const e of events) {
    const kind = sum.kinds.get(e.kind) ?? { bytes: 0, times: 0 };
    kind.bytes += e.bytes;
    ++kind.times;
    sum.kinds.set(e.kind, kind);
  }
}
function module_tree(rec, run, wanted) {
  const root = module_node("", ""), nodes = new Map();
  const node_of = (index) => {
    if (nodes.has(index)) return nodes.get(index);
    const path = rec.paths[index] ?? "";
    let node = root, at = "";
    for (const name of path ? path.split(".") : []) {
      at = at ? `${at}.${name}` : name;
      if (!node.children.has(name)) node.children.set(name, module_node(name, at, node));
      node = node.children.get(name);
    }
    nodes.set(index, node);
    return node;
  };
  run.operators.forEach((op, i) => {
    if (wanted && !wanted(op)) return;
    const column = column_of(rec.phase(op)), events = rec.events_of(op);
    let node = node_of(op.path);
    node.own[column].push(i);
    for (; node; node = node.parent) add_to_sum(node.sums[column], events);
  });
  sign(run, root, new Map());
  return root;
}
// Numbers modules so that equal numbers mean equal calls, whatever the modules' names are.
function sign(run, node, known) {
  const own = node.own.flat().map((i) => {
    const op = run.operators[i];
    return `${op.call ?? op.move ?? op.kernel}:${op.phase}:${op.sends ?? ""}`;
  });
  const below = [...node.children.values()].map((child) => `${child.name}=${sign(run, child, known)}`);
  const text = `${own.join(" ")}|${below.join(" ")}`;
  if (!known.has(text)) known.set(text, known.size);
  return (node.signature = known.get(text));
}
// A module's children; layers that follow each other and do the same are one list.
function folded_children(node) {
  const groups = [];
  for (const child of node.children.values()) {
    const last = groups.at(-1)?.at(-1);
    const next = last && /^\d+$/.test(child.name) && Number(child.name) === Number(last.name) + 1;
    if (next && child.signature === last.signature) groups.at(-1).push(child);
    else groups.push([child]);
  }
  return groups;
}

const over = (rec, e) => e.axes?.length ? `over ${rec.axes(e.mesh, e.axes)}` : "between meshes";
function chips(rec, op) {
  return grouped(rec.events_of(op), (e) => `${e.kind} ${over(rec, e)}`).map((same) => {
    const sum = same.reduce((n, e) => n + e.bytes, 0);
    return [chip(same[0].kind, `${over(rec, same[0])}, `, bytes(sum)), " "];
  });
}
// Links to the operators that made the sum which this one takes, or take the one it made.
function sum_note(rec, run, text, others) {
  return others.length > 0 && el("small", {}, text, others.map((o, n) => [n > 0 && ", ",
    link(`#${o} ${rec.name(run.operators[o])}`, "operator", { op: o }), " ", rec.path(run.operators[o])]), " ");
}
const sum_taken_note = (rec, run, i) => sum_note(rec, run, "sum of ", rec.sums_taken(run, i));
const sum_left_note = (rec, run, i) => sum_note(rec, run, "its sum is taken by ", rec.sums_left(run, i));
function operator_item(rec, run, i, column) {
  const op = run.operators[i], layouts = rec.layouts(op);
  return el("li", {}, link(`#${i} ${rec.name(op)}`, "operator", { op: i }), " ",
    column === 2 && el("small", {}, rec.phase(op), " "),
    layouts && el("code", { title: rec.tensors(op) }, layouts), " ", chips(rec, op),
    sum_taken_note(rec, run, i), sum_left_note(rec, run, i));
}
function sum_cell(sum, times) {
  if (!sum.operators) return null;
  const kinds = [...sum.kinds].map(([kind, { bytes: n, times: t }]) =>
    [chip(kind, `${whole(t * times)}×, `, bytes(n * times)), " "]);
  return [el("small", {}, count(sum.operators * times, "operator")), " ", kinds];
}
const cells = (columns, content) => columns.map((column) =>
  el("div", { class: "cell" }, el("span", { class: "phase" }, COLUMNS[column]), content(column)));
function module_name(node, last) {
  if (!node.parent) return "the program";
  const number = /^\d+$/.test(node.name) && node.parent.name;
  return `${number ? `${number}.` : ""}${node.name}${last ? `–${last.name}` : ""}`;
}

// A row that unfolds; what is below is built when somebody looks at it.
function module_row(c, columns, group, depth, open) {
  const { rec, run } = c, [node] = group, times = group.length, key = `${times} ${node.path}`;
  const body = el("ul", { class: "modules" }), box = el("div", {}, body);
  const button = el("button", { type: "button", class: "fold", id: encodeURIComponent(`module ${key}`),
    title: node.path || undefined, "aria-expanded": "false", style: `margin-left:${depth}rem` },
  el("span", { class: "name" }, module_name(node, times > 1 && group.at(-1))),
  times > 1 && el("small", {}, ` ${whole(times)} equal layers`));
  const each = (e) => e.target.closest("li.module").replaceWith(
    ...group.map((one) => module_row(c, columns, [one], depth, false)));
  const own = (k) => long(node.own[k], 12, (i) => operator_item(rec, run, i, k), el("ol", {}));
  const has_own = columns.some((k) => node.own[k].length);
  const build = () => {
    if (has_own) body.append(el("li", { class: "line own" }, el("div", {}), cells(columns, own)));
    if (times > 1) body.append(el("li", { class: "note line" }, `The operators shown are those of ${node.path}.`,
      el("div", {}, el("button", { type: "button", click: each }, `Show all ${times} layers`))));
    long(folded_children(node), 200, (g) => module_row(c, columns, g, depth + 1, open), body, box);
  };
  const set = (on) => {
    button.setAttribute("aria-expanded", on);
    box.hidden = !on;
    if (on && !body.childNodes.length) build();
  };
  button.addEventListener("click", () => {
    const on = box.hidden;
    unfolded.delete(on ? `-${key}` : key);
    unfolded.add(on ? key : `-${key}`);
    set(on);
  });
  // A module that only holds others shows them at once.
  const at_once = open || !node.parent || (!has_own && times === 1);
  set(!unfolded.has(`-${key}`) && (at_once || unfolded.has(key)));
  return el("li", { class: "module" },
    el("div", { class: "line" }, button, cells(columns, (k) => sum_cell(node.sums[k], times))), box);
}

const words_of = (text) => (text ?? "").toLowerCase().split(/\s+/).filter(Boolean);
function program_view(c) {
  const { rec, run } = c, result = el("div", { class: "tree" }), said = el("p", { role: "status", class: "note" });
  const text_of = (op) => rec.once(`text ${op.call ?? op.move ?? op.kernel} ${op.path} ${op.phase} ${op.sends}`, () =>
    [rec.name(op), rec.path(op), rec.phase(op), rec.layouts(op), ...rec.events_of(op).map((e) => e.kind)]
      .join(" ").toLowerCase());
  const update = () => {
    const words = words_of(state.q), all = !words.length && !state.sends;
    const wanted = (op) => (!state.sends || op.sends?.length) && words.every((w) => text_of(op).includes(w));
    const root = module_tree(rec, run, all ? undefined : wanted);
    const found = root.sums.reduce((n, s) => n + s.operators, 0);
    const columns = [0, 1, 2].filter((k) => root.sums[k].operators);
    result.style.setProperty("--columns", columns.length || 1);
    said.textContent = all ? `${count(found, "operator")}.`
      : `${whole(found)} of ${count(run.operators.length, "operator")}.`;
    const alone = !root.own.flat().length && root.children.size === 1;
    const top = alone ? root.children.values().next().value : root;
    result.replaceChildren(
      el("div", { class: "line head", "aria-hidden": "true" }, el("div", {}, "module"),
        columns.map((k) => el("div", {}, COLUMNS[k]))),
      el("ul", { class: "modules" }, found ? module_row(c, columns, [top], 0, !all && found <= 100)
        : el("li", {}, "No operator fits.")));
  };
  update();
  const search = el("input", { id: "search", type: "search", value: state.q ?? "",
    placeholder: "operator, module, layout, collective",
    input: (e) => { adjust({ q: e.target.value }); update(); } });
  const sends = el("input", { id: "sends", type: "checkbox", checked: !!state.sends,
    change: (e) => { adjust({ sends: e.target.checked ? 1 : undefined }); update(); } });
  return [el("h1", {}, "Program"),
    el("div", { class: "controls" }, labelled("Search", search),
      el("label", { class: "control" }, sends, " only what sends")),
    layout_legend(rec, run.operators.map((op) => rec.layouts(op)).join(" ")), said, result];
}
