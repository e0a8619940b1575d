// SPDX-License-Identifier: Apache-2.0
// The sums of all that is sent: by kind of collective, axis, module and operator.

// Sums over events by key(event, op): [key, {bytes, us, times}], the largest first.
function sums(rec, operators, key) {
  const all = new Map();
  for (const op of operators) for (const e of rec.events_of(op)) {
    const k = key(e, op), sum = all.get(k) ?? { bytes: 0, us: 0, times: 0 };
    sum.bytes += e.bytes;
    sum.us += e.us;
    sum.times += e.times ?? 1;
    all.set(k, sum);
  }
  return [...all].sort((a, b) => b[1].bytes - a[1].bytes || b[1].us - a[1].us);
}
function sums_table(head, list, show, colour) {
  const result = table(`Received by ${head.toLowerCase()}`, [head, "#Received", "", "#Time", "#Collectives"], []);
  const row = ([key, s]) => el("tr", {}, el("td", {}, show(key)), el("td", { class: "number" }, bytes(s.bytes)),
    el("td", {}, bar(s.bytes / list[0][1].bytes, colour?.(key))), el("td", { class: "number" }, time(s.us)),
    el("td", { class: "number" }, whole(s.times)));
  return [el("h2", {}, `By ${head.toLowerCase()}`), long(list, 30, row, result.querySelector("tbody"), result)];
}

function totals_view({ rec, run }) {
  const under = state.path ?? "", names = under.split(".").filter(Boolean);
  const inside = (op) => !under || rec.path(op) === under || rec.path(op).startsWith(`${under}.`);
  const operators = run.operators.filter(inside), by = (key) => sums(rec, operators, key);
  const all = by(() => "")[0]?.[1];
  const module = (e, op) => {
    const parts = rec.path(op).split(".").filter(Boolean);
    return parts.length > names.length ? parts.slice(0, names.length + 1).join(".") : "";
  };
  const crumbs = names.map((name, i) => [" › ", link(name, "totals", { path: names.slice(0, i + 1).join(".") })]);
  return [el("h1", {}, "Totals"),
    el("p", {}, under && ["Of ", link("the program", "totals"), crumbs, ". "],
      all ? [`Rank ${run.rank}’s ${count(all.times, "collective")} receive `, bytes(all.bytes), " in ",
        time(all.us), "."] : "Nothing is sent."),
    all && [
      sums_table("Collective", by((e) => e.kind), (k) => chip(k), colourOf),
      sums_table("Axis", by((e) => rec.axes(e.mesh, e.axes)), (k) => k),
      sums_table("Module", by(module), (k) => k ? link(k, "totals", { path: k }) : `${under || "the program"} itself`),
      sums_table("Operator", by((e, op) => `${rec.name(op)} ${rec.path(op)} ${rec.phase(op)}`), (k) => {
        const [name, ...rest] = k.split(" ");
        return [link(name, "program", { q: k, sends: 1 }), " ", el("span", { class: "path" }, rest.join(" "))];
      })],
    !under && rec.collectives.length > 0 && [el("h2", {}, "As the program’s table says it"),
      table("Collectives", ["Axis", "Kind", "Operator", "Phase", "#Count", "#Bytes predicted"],
        rec.collectives.map((c) =>
          [c.axis, chip(c.kind), c.op, c.phase, whole(c.count), whole(c.bytes_predicted)]))]];
}
