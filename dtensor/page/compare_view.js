// Two records beside each other: what changed in all, and operator by operator.

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
  if (a === b || a === undefined || b === undefined) return a === b ? "equal" : "–";
  return [b > a ? "+" : "−", show(Math.abs(b - a)), a ? ` (${b > a ? "+" : "−"}${(100 * Math.abs(b - a) / a).toFixed(1)} %)` : ""];
}
function compare_view() {
  const other = records[state.b] && state.b !== String(state.r ?? 0) ? Number(state.b) : (state.r ?? 0) === 0 ? 1 : 0;
  const pair = [records[state.r ?? 0], records[other]];
  if (!pair[1]) return [el("h1", {}, "Compare"), el("p", {}, "This page has one record.")];
  const runs = pair.map((rec) => rec.runs[state.run ?? 0] ?? rec.runs[0] ?? { operators: [] });
  const [a, b] = pair, names = ["bytes", "communication_us", "work_us", "peak_bytes"];
  const texts = ["Received by the rank with the most", "Communication", "Operators’ work", "Peak memory"];
  const show = (name) => name.endsWith("us") ? time : bytes;
  const kinds = pair.map((rec, k) => new Map(sums(rec, runs[k], (e) => `${e.kind} ${over(rec, e)}`)));
  const at = pair.map((rec, k) => keyed(rec, runs[k])), keys = [...new Set([...at[0].keys(), ...at[1].keys()])];
  const rows = keys.map((key) => {
    const ops = pair.map((rec, k) => runs[k].operators[at[k].get(key)]);
    const say = ops.map((op, k) => op && { layouts: pair[k].layouts(op), sent: pair[k].sent(op), how: pair[k].events_of(op).map((e) => `${e.kind} ${over(pair[k], e)}`).join(), us: pair[k].sent_us(op) + pair[k].work_us(op) });
    const [x, y] = say;
    return { key, ops, say, moved: x && y ? y.sent - x.sent : (y ?? x).sent * (y ? 1 : -1), differs: !x || !y || x.layouts !== y.layouts || x.sent !== y.sent || x.us !== y.us || x.how !== y.how };
  });
  const changed = rows.filter((r) => r.differs).sort((p, q) => Math.abs(q.moved) - Math.abs(p.moved));
  const cell = (row, k) => el("td", {}, row.ops[k] ? [code(row.say[k].layouts), " ", chips(pair[k], row.ops[k])] : "not there");
  const heads = ["Operator", a.title, b.title, "#Received", "#Time"];
  const list = table("Operators that differ", heads, []);
  const show_row = (row) => {
    const [path, phase, name] = row.key.split("\n"), [x, y] = row.say, k = row.ops[0] ? 0 : 1;
    const index = at[k].get(row.key), r = k ? other : state.r;
    return el("tr", {}, el("td", {}, link(`#${index} ${name}`, "operator", { op: index, r }), " ", el("span", { class: "path" }, path, ", ", phase)),
      cell(row, 0), cell(row, 1), el("td", { class: "number" }, change(x?.sent ?? 0, y?.sent ?? 0, bytes)), el("td", { class: "number" }, change(x?.us ?? 0, y?.us ?? 0, time)));
  };
  long(changed, 100, show_row, list.querySelector("tbody"), list);
  return [el("h1", {}, "Compare"),
    el("p", {}, link(a.title, "overview", {}), " with ", records.length > 2
      ? choice("with", records.map((r, i) => [i, r.title]).filter(([i]) => i !== (state.r ?? 0)), other, (i) => go({ b: i }))
      : link(b.title, "overview", { r: other, run: undefined })),
    el("h2", {}, "In all"), table("Totals", ["", `#${a.title}`, `#${b.title}`, "#Change"], names.map((n, i) =>
      [texts[i], show(n)(a.totals[n]), show(n)(b.totals[n]), change(a.totals[n], b.totals[n], show(n))])),
    el("h2", {}, "By collective"), table("Received by collective", ["", `#${a.title}`, `#${b.title}`, "#Change"],
      [...new Set([...kinds[0].keys(), ...kinds[1].keys()])].map((k) => {
        const [x, y] = kinds.map((m) => m.get(k)?.bytes ?? 0);
        return [chip(k.split(" ")[0], k.slice(k.indexOf(" ") + 1)), bytes(x), bytes(y), change(x, y, bytes)];
      })),
    el("h2", {}, "Operator by operator"),
    el("p", {}, `${whole(changed.length)} of ${count(rows.length, "operator")} differ${changed.length ? ", those whose bytes differ the most first" : ""}.`),
    changed.length > 0 && list];
}
