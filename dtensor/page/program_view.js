// The program as a tree of modules and operators, forward beside backward.

const COLUMNS = ["forward", "backward", "other phases"];
const column_of = (phase) => phase === "forward" ? 0 : phase === "backward" ? 1 : 2;
const unfolded = new Set();  // keys of modules that somebody unfolded; "-" and a key: folded

// A module: the operators that it calls itself, and in all, by column.
function module_node(name, path, parent) {
  return { name, path, parent, children: new Map(), own: [[], [], []],
    sums: COLUMNS.map(() => ({ operators: 0, kinds: new Map() })) };
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
    for (; node; node = node.parent) {
      const sum = node.sums[column];
      ++sum.operators;
      for (const e of events) {
        const kind = sum.kinds.get(e.kind) ?? { bytes: 0, times: 0 };
        kind.bytes += e.bytes;
        ++kind.times;
        sum.kinds.set(e.kind, kind);
      }
    }
  });
  sign(rec, run, root, new Map());
  return root;
}
// Numbers modules so that equal numbers mean equal calls, whatever the modules' names are.
function sign(rec, run, node, known) {
  const own = node.own.flat().map((i) => {
    const op = run.operators[i];
    return `${op.call ?? `"${op.move}"`}:${op.phase}:${op.sends ?? ""}`;
  });
  const below = [...node.children.values()].map((child) => `${child.name}=${sign(rec, run, child, known)}`);
  const text = `${own.join(" ")}|${below.join(" ")}`;
  if (!known.has(text)) known.set(text, known.size);
  return (node.signature = known.get(text));
}
// A module's children; layers that follow each other and do the same are one list.
function folded_children(node) {
  const groups = [];
  for (const child of node.children.values()) {
    const last = groups.at(-1)?.at(-1);
    if (last && /^\d+$/.test(child.name) && Number(child.name) === Number(last.name) + 1 &&
        child.signature === last.signature) groups.at(-1).push(child);
    else groups.push([child]);
  }
  return groups;
}

const over = (rec, e) => e.axes?.length ? `over ${rec.axes(e.mesh, e.axes)}` : "between meshes";
function chips(rec, op) {
  const kinds = new Map();
  for (const e of rec.events_of(op)) {
    const key = `${e.kind} ${rec.axes(e.mesh, e.axes)}`;
    kinds.set(key, { kind: e.kind, over: over(rec, e), bytes: (kinds.get(key)?.bytes ?? 0) + e.bytes });
  }
  return [...kinds.values()].map(({ kind, over, bytes: n }) => [chip(kind, `${over}, `, bytes(n)), " "]);
}
function operator_item(rec, run, i, column) {
  const op = run.operators[i];
  return el("li", {}, link(`#${i} ${rec.name(op)}`, "operator", { op: i }), " ",
    column === 2 && el("small", {}, rec.phase(op), " "), rec.layouts(op) && code(rec.layouts(op)), " ", chips(rec, op));
}
function sum_cell(sum, times) {
  if (!sum.operators) return null;
  return [el("small", {}, count(sum.operators * times, "operator")), " ", [...sum.kinds].map(([kind, { bytes: n, times: t }]) =>
    [chip(kind, `${whole(t * times)}×, `, bytes(n * times)), " "])];
}
const cells = (columns, content) => columns.map((column) =>
  el("div", { class: "cell" }, el("span", { class: "phase" }, COLUMNS[column]), content(column)));

function module_row(c, columns, group, depth, open) {
  const { rec, run } = c, [node] = group, times = group.length, key = `${times} ${node.path}`;
  const last = times > 1 ? `–${group.at(-1).name}` : "";
  const body = el("ul", { class: "modules" });
  const button = el("button", { type: "button", class: "fold", id: `module ${key}`, "aria-expanded": "false",
    style: `margin-left:${depth}rem` },
    el("span", { class: "name" }, node.path || "the program", last), times > 1 && el("small", {}, ` ${whole(times)} equal layers`));
  const set = (on) => {
    button.setAttribute("aria-expanded", on);
    body.hidden = !on;
    if (!on || body.childNodes.length) return;
    if (columns.some((k) => node.own[k].length)) body.append(el("li", { class: "line own" }, el("div", {}),
      cells(columns, (k) => long(node.own[k], 12, (i) => operator_item(rec, run, i, k), el("ol", {})))));
    if (times > 1) body.append(el("li", { class: "note line" }, `The numbers of the operators are those of ${node.path}. `,
      el("button", { type: "button", click: (e) => e.target.closest("li.module").replaceWith(
        ...group.map((one) => module_row(c, columns, [one], depth, false))) }, `Show all ${times} layers`)));
    long(folded_children(node), 200, (g) => module_row(c, columns, g, depth + 1, open), body);
  };
  button.addEventListener("click", () => {
    const on = body.hidden;
    unfolded.delete(on ? `-${key}` : key);
    unfolded.add(on ? key : `-${key}`);
    set(on);
  });
  // A module that only holds others shows them at once.
  set(!unfolded.has(`-${key}`) && (open || unfolded.has(key) || !node.parent || !columns.some((k) => node.own[k].length) && times === 1));
  return el("li", { class: "module" }, el("div", { class: "line" }, button,
    cells(columns, (k) => sum_cell(node.sums[k], times))), body);
}

function program_view(c) {
  const { rec, run } = c, result = el("div", { class: "tree" }), said = el("p", { role: "status", class: "note" });
  const text_of = (op) => rec.once(`text ${op.call ?? op.move} ${op.path} ${op.phase} ${op.sends}`, () =>
    [rec.name(op), rec.path(op), rec.phase(op), rec.layouts(op), ...rec.events_of(op).map((e) => e.kind)]
      .join(" ").toLowerCase());
  const update = () => {
    const words = (state.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const all = !words.length && !state.sends;
    const wanted = all ? undefined : (op) => (!state.sends || op.sends?.length) && words.every((w) => text_of(op).includes(w));
    const root = module_tree(rec, run, wanted), found = root.sums.reduce((n, s) => n + s.operators, 0);
    const columns = [0, 1, 2].filter((k) => root.sums[k].operators);
    result.style.setProperty("--columns", columns.length || 1);
    said.textContent = all ? `${count(found, "operator")}.` : `${whole(found)} of ${count(run.operators.length, "operator")}.`;
    const top = !root.own.flat().length && root.children.size === 1 ? [...root.children.values()][0] : root;
    result.replaceChildren(el("div", { class: "line head", "aria-hidden": "true" }, el("div", {}, "module"),
      columns.map((k) => el("div", {}, COLUMNS[k]))), el("ul", { class: "modules" }, found ? module_row(c, columns, [top], 0,
      !all && found <= 100) : el("li", {}, "No operator fits.")));
  };
  update();
  return [el("h1", {}, "Program"), el("div", { class: "controls" },
    labelled("Search", el("input", { id: "search", type: "search", value: state.q ?? "",
      placeholder: "operator, module, layout, collective", input: (e) => { adjust({ q: e.target.value }); update(); } })),
    el("label", { class: "control" }, el("input", { id: "sends", type: "checkbox", checked: !!state.sends,
      change: (e) => { adjust({ sends: e.target.checked ? 1 : undefined }); update(); } }), " only what sends")),
  said, result];
}
