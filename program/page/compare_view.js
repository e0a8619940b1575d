// SPDX-License-Identifier: Apache-2.0
// Two records beside each other: what changed in all, and operator by operator.

const TOTALS = { bytes: "Received by the rank with the most", by_all: "Received by all ranks",
  communication_us: "Communication", work_us: "Operators’ work", peak_bytes: "Peak memory" };

// Operators by module, phase, name and occurrence, which two records have in common.
function keyed(rec, run) {
  const seen = new Map(), all = new Map();
  run.operators.forEach((op, i) => {
    const name = `${rec.path(op)}\n${rec.phase(op)}\n${rec.name(op)}`, n = seen.get(name) ?? 0;
    seen.set(name, n + 1);
    all.set(`${name}\n${n}`, i);
  });
  return all;
}
function change(a, b, show) {
  if (a === b) return "equal";
  if (a === undefined || b === undefined) return "–";
  const sign = b > a ? "+" : "−", by = Math.abs(b - a);
  return [sign, show(by), a ? ` (${sign}${(100 * by / a).toFixed(1)} %)` : ""];
}
// An operator as two records compare it.
function facts(rec, op) {
  return op && { layouts: rec.layouts(op), sent: rec.sent(op), us: rec.sent_us(op) + rec.work_us(op),
    how: rec.events_of(op).map((e) => `${e.kind} ${over(rec, e)}`).join() };
}
function compared(pair, runs) {
  const at = pair.map((rec, k) => keyed(rec, runs[k])), keys = new Set([...at[0].keys(), ...at[1].keys()]);
  return [...keys].map((key) => {
    const indices = at.map((map) => map.get(key)), ops = indices.map((i, k) => runs[k].operators[i]);
    const [x, y] = ops.map((op, k) => facts(pair[k], op));
    return { key, indices, ops, x, y, moved: (y?.sent ?? 0) - (x?.sent ?? 0),
      differs: !x || !y || Object.keys(x).some((name) => x[name] !== y[name]) };
  });
}
// Operators of equal layers that differ in the same way are one row.
const like = ({ key, x, y }) => `${any_layer(key.split("\n").slice(0, 3).join("\n"))} ${JSON.stringify([x, y])}`;
function difference_row(pair, places, rows) {
  const [{ key, indices, ops, x, y }] = rows, n = rows.length, k = x ? 0 : 1;
  const [path, phase, name] = key.split("\n"), where = n > 1 ? any_layer(path) : path;
  const facts_of = (op, rec) => [rec.layouts(op) && code(rec.layouts(op)), " ", chips(rec, op),
    n > 1 && op.sends && el("small", {}, `each of ${n}`)];
  const cell = (op, rec) => el("td", {}, op ? facts_of(op, rec) : "not there");
  return el("tr", {},
    el("td", {}, n > 1 && `${whole(n)} × `,
      link(`#${indices[k]} ${name}`, "operator", { op: indices[k], r: places[k] }), " ",
      el("span", { class: "path" }, where && `${where}, `, phase)),
    ops.map((op, i) => cell(op, pair[i])),
    el("td", { class: "number" }, change(n * (x?.sent ?? 0), n * (y?.sent ?? 0), bytes)),
    el("td", { class: "number" }, change(n * (x?.us ?? 0), n * (y?.us ?? 0), time)));
}

function compare_view() {
  const first = state.r ?? 0, wanted = Number(state.b);
  const second = records[wanted] && wanted !== first ? wanted : first === 0 ? 1 : 0;
  const pair = [records[first], records[second]];
  if (!pair[1]) return [el("h1", {}, "Compare"), el("p", {}, "This page has one record.")];
  const runs = pair.map((rec) => rec.runs[state.run ?? 0] ?? rec.runs[0] ?? { operators: [] });
  const heads = ["", ...pair.map((rec) => `#${rec.title}`), "#Change"];
  const others = records.map((r, i) => [i, r.title]).filter(([i]) => i !== first);
  const kinds = pair.map((rec, k) => new Map(sums(rec, runs[k].operators, (e) => `${e.kind} ${over(rec, e)}`)));
  const rows = compared(pair, runs);
  const changed = rows.filter((row) => row.differs), moved = (same) => Math.abs(same.length * same[0].moved);
  const groups = grouped(changed, like).sort((p, q) => moved(q) - moved(p));
  const list = table("Operators that differ", ["Operator", ...pair.map((r) => r.title), "#Received", "#Time"], []);
  return [el("h1", {}, "Compare"), refused_strategies(),
    el("p", {}, link(pair[0].title, "overview"), " ", records.length > 2
      ? labelled("with", choice("with", others, second, (b) => go({ b })))
      : ["with ", link(pair[1].title, "overview", { r: second, run: undefined })]),
    el("h2", {}, "In all"),
    table("Totals", heads, Object.entries(TOTALS).map(([name, text]) => {
      const show = name.endsWith("us") ? time : bytes, [a, b] = pair.map((rec) => rec.totals[name]);
      return [text, show(a), show(b), change(a, b, show)];
    })),
    el("h2", {}, "By collective"),
    table("Received by collective", heads, [...new Set(kinds.flatMap((map) => [...map.keys()]))].map((k) => {
      const [a, b] = kinds.map((map) => map.get(k)?.bytes ?? 0), [kind, ...rest] = k.split(" ");
      return [chip(kind, rest.join(" ")), bytes(a), bytes(b), change(a, b, bytes)];
    })),
    el("h2", {}, "Operator by operator"),
    el("p", {}, `${whole(changed.length)} of ${count(rows.length, "operator")} differ`,
      changed.length > 0 && ", those whose bytes differ the most first", "."),
    changed.length > 0 && long(groups, 100, (same) => difference_row(pair, [first, second], same),
      list.querySelector("tbody"), list)];
}
