// What is sent in all: by kind of collective, axis, module and operator.

// Sums over a run's events by key(event, op): [key, {bytes, us, times}], the largest first.
function sums(rec, run, key) {
  const all = new Map();
  for (const op of run.operators) for (const e of rec.events_of(op)) {
    const k = key(e, op), sum = all.get(k) ?? { bytes: 0, us: 0, times: 0 };
    sum.bytes += e.bytes;
    sum.us += e.us;
    sum.times += e.times ?? 1;
    all.set(k, sum);
  }
  return [...all].sort((a, b) => b[1].bytes - a[1].bytes || b[1].us - a[1].us);
}
function sums_table(caption, head, list, show, colour) {
  const largest = list[0]?.[1].bytes;
  const result = table(caption, [head, "#Received", "", "#Time", "#Collectives"], []);
  long(list, 30, ([key, s]) => el("tr", {}, [show(key), bytes(s.bytes), bar(s.bytes / largest, colour?.(key)), time(s.us), whole(s.times)]
    .map((x, i) => el("td", { class: i % 2 || i === 4 ? "number" : undefined }, x))), result.querySelector("tbody"), result);
  return result;
}
function totals_view({ rec, run }) {
  const under = state.path ?? "", depth = under ? under.split(".").length : 0;
  const inside = (op) => !under || rec.path(op) === under || rec.path(op).startsWith(`${under}.`);
  const part = { operators: run.operators.filter(inside) };
  const module = (op) => {
    const names = rec.path(op).split(".").filter(Boolean);
    return names.length > depth ? names.slice(0, depth + 1).join(".") : "";
  };
  const all = sums(rec, part, () => "")[0]?.[1], crumbs = under.split(".").filter(Boolean);
  return [el("h1", {}, "Totals"),
    el("p", {}, under ? ["Of ", link("the program", "totals"), crumbs.map((name, i) => [" › ", link(name, "totals", { path: crumbs.slice(0, i + 1).join(".") })]), ". "] : "",
      all ? [`Rank ${run.rank}’s ${count(all.times, "collective")} receive `, bytes(all.bytes), " in ", time(all.us), "."] : "Nothing is sent."),
    all && [
      el("h2", {}, "By collective"), sums_table("Received by collective", "Collective", sums(rec, part, (e) => e.kind), (k) => chip(k), colourOf),
      el("h2", {}, "By axis"), sums_table("Received by axis", "Axis", sums(rec, part, (e) => rec.axes(e.mesh, e.axes)), (k) => k),
      el("h2", {}, "By module"), sums_table("Received by module", "Module", sums(rec, part, (e, op) => module(op)), (k) =>
        k ? link(k, "totals", { path: k }) : el("span", {}, under ? `${under} itself` : "the program itself")),
      el("h2", {}, "By operator"), sums_table("Received by operator", "Operator", sums(rec, part, (e, op) => `${rec.name(op)} ${rec.path(op)} ${rec.phase(op)}`), (k) => {
        const [name, ...rest] = k.split(" ");
        return [link(name, "program", { q: k, sends: 1 }), " ", el("span", { class: "path" }, rest.join(" "))];
      })],
    !under && rec.collectives.length > 0 && [el("h2", {}, "As the program’s table says it"),
      table("Collectives", ["Axis", "Kind", "Operator", "Phase", "#Count", "#Bytes predicted"], rec.collectives.map((c) =>
        [c.axis, chip(c.kind), c.op, c.phase, whole(c.count), whole(c.bytes_predicted)]))]];
}
