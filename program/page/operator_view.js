// SPDX-License-Identifier: Apache-2.0
// One operator: its rule, the candidates with their prices, and what it sent.

const PRICES = [["comm_us", "sending inputs"], ["work_us", "work"], ["reduce_us", "later reductions"]];
const KEEPS = {
  parameter: "a parameter: it stays where it is",
  "gather on use": "a parameter that is gathered where it is used",
};

const price_of = (c) => PRICES.reduce((n, [key]) => n + (c[key] ?? 0), 0);
function price_bar(candidate, largest) {
  return el("span", { class: "bar price", "aria-hidden": "true" }, PRICES.map(([key], i) =>
    el("i", { class: `price${i}`, style: `width:${(100 * (candidate[key] ?? 0) / (largest || 1)).toFixed(2)}%` })));
}
function candidate_row(c, largest) {
  const texts = [c.chosen ? el("strong", {}, "chosen") : "", code(c.split || "–"), code((c.in ?? []).join(" · ")), code((c.out ?? []).join(" · ")),
    price_bar(c, largest)];
  return el("tr", { class: c.chosen ? "chosen" : undefined }, texts.map((text) => el("td", {}, text)),
    [c.comm_us, c.work_us, c.reduce_us, price_of(c)].map((us) => el("td", { class: "number" }, time(us))),
    el("td", {}, c.why_not));
}
function candidates_table(call) {
  const list = call.candidates, largest = Math.max(...list.map(price_of));
  return [
    el("p", { class: "legend" }, PRICES.map(([, text], i) =>
      el("span", { class: "chip" }, el("i", { class: `price${i}`, "aria-hidden": "true" }), text))),
    table("Candidates, the cheapest first",
      ["", "Split", "Inputs", "Outputs", "", "#sending", "#work", "#later", "#in all", "Why not"],
      list.map((c) => candidate_row(c, largest))),
    call.more_candidates > 0 &&
      el("p", { class: "note" }, `${count(call.more_candidates, "more candidate")} cost more.`)];
}
function steps_table(rec, move) {
  return table(`Plan: ${rec.layout(move.from)} to ${rec.layout(move.to)}`,
    ["Step", "Collective", "Over", "From", "To", "#Received", "#By all ranks", "#Time"],
    move.steps.map((s, i) => [i + 1, chip(s.kind), s.axes?.length ? rec.axes(rec.specs[move.from].mesh, s.axes) : "",
      code(s.from), code(s.to), bytes(s.bytes), bytes(s.by_all), time(s.us)]));
}
const spec_link = (rec, index, values) => link(rec.text(index), "tensor", { spec: index, ...values });
// Specs of an operator's outputs; equal ones are said once.
const output_links = (rec, specs, values) => grouped(specs, (s) => s).map((same) =>
  [same.length > 1 && `${same.length} × `, spec_link(rec, same[0], values), " "]);

function tensors_of(rec, call, i) {
  const row = (role, k, note) =>
    [role, spec_link(rec, k, { op: i }), rec.meshes[rec.specs[k].mesh].text, bytes(rec.specs[k].bytes), note];
  const inputs = (call.in ?? []).flatMap((k, n) => {
    const to = call.to?.[n] ?? k, move = call.moves?.[n];
    const first = row(`input ${n}`, k, KEEPS[call.keep?.[n]] ?? "");
    if (to === k) return [first];
    return [first, row(`input ${n}, moved`, to,
      typeof move === "number" ? link("before and after", "tensor", { move, op: i }) : "")];
  });
  return table("Tensors", ["", "Tensor", "Mesh", "#Largest part", ""],
    [...inputs, ...(call.out ?? []).map((k, n) => row(`output ${n}`, k, ""))]);
}
// The tensors whose plan has a step like a collective, which that step may be; else
// what the collective says of itself.
function reason(rec, op, e) {
  const same = (s) => s.kind === e.kind && `${s.axes ?? ""}` === `${e.axes ?? ""}`;
  const moved = rec.moves_of(op).filter(([, m]) => rec.moves[m].steps.some(same));
  return moved.length ? moved.map(([n, m]) => `${n === undefined ? e.op : `input ${n}`}: ${rec.change(m)}`).join(", ")
    : e.op;
}
// Equal collectives are one row.
function events_table(rec, op) {
  const events = rec.events_of(op);
  const ran = events.some((e) => e.counted !== undefined);  // a dry run counts nothing
  return table("Sent", ["Collective", "For", "Over", "Mesh", "#Received", ...ran ? ["#Counted on this rank"] : [],
    "#By all ranks", "#Time", "#Times"],
    grouped(events, (e) => e).map((same) => {
      const [e] = same, n = same.length;
      return [chip(e.kind), reason(rec, op, e), rec.axes(e.mesh, e.axes), rec.meshes[e.mesh]?.text ?? "",
        bytes(n * e.bytes), ...ran ? [bytes(n * e.counted)] : [], bytes(n * e.by_all),
        time(n * e.us), whole(n * (e.times ?? 1))];
    }));
}
function moves_of(rec, op, i) {
  return rec.moves_of(op).map(([n, m]) => {
    const move = rec.moves[m];
    return [el("h3", {}, n !== undefined && `Input ${n}: `, code(rec.text(move.from)), " to ", code(rec.layout(move.to))),
      steps_table(rec, move), el("p", {}, link("Draw it before and after", "tensor", { move: m, op: i }))];
  });
}
// Partial sums that other operators made and this one takes, and the reverse.
function sums_of(rec, run, i) {
  const list = (text, others) => others.length > 0 && el("p", {}, text,
    others.map((o, n) => [n > 0 && ", ", operator_link(rec, run.operators[o], o)]), ".");
  return [list("The sum that it takes was made by ", rec.sums_taken(run, i)),
    list("Its output is a sum that is taken later, by ", rec.sums_left(run, i))];
}
function memory_of(rec, run, op, i) {
  const until = run.operators[op.until];
  return el("p", {}, bytes(rec.memory(op)), ` in use on rank ${run.rank} after it`,
    op.makes > 0 && ["; its outputs hold ", bytes(op.makes), " of new memory, ",
      until ? ["until ", link(`#${op.until} ${rec.name(until)}`, "operator", { op: op.until })] : "to the end"], ". ",
    link("What is in use here", "memory", { op: i }), ", ", link("the mesh here", "mesh", { op: i }), ".");
}

function operator_view({ rec, run }) {
  const i = state.op ?? 0, op = run.operators[i];
  if (!op) return [el("h1", {}, "Operator"), el("p", {}, "This record has no operators.")];
  const call = rec.call(op), moves = moves_of(rec, op, i), layouts = rec.layouts(op);
  const step = (text, k) => run.operators[k] ? link(text, "operator", { op: k }) : null;
  return [
    el("h1", {}, `#${i} ${rec.name(op)}`),
    el("p", {}, rec.path(op) && ["in ", link(rec.path(op), "program", { q: rec.path(op) }), ", "], rec.phase(op), ". ",
      step("← previous", i - 1), " ", step("next →", i + 1)),
    layouts && [el("p", { class: "layouts" }, code(layouts)), layout_legend(rec,
      [layouts, ...(call?.candidates ?? []).flatMap((c) => [...c.in ?? [], ...c.out ?? []])].join(" "))],
    op.move && el("p", {}, "No operator asked for this: it moves data for the program itself."),
    op.kernel && el("p", {}, `A kernel of the optimizer, which updates ${count(op.tensors, "tensor")}. It touches `,
      rec.memory_kinds.map((kind, k) => [kind, op.touches[k]]).filter(([, n]) => n > 0)
        .map(([kind, n], k) => [k > 0 && ", ", bytes(n), ` of ${kind}`]), "."),
    call?.args && el("p", {}, "Arguments: ", code(call.args)),
    call?.why && el("p", { class: "why" }, call.why),
    call?.rule && [el("p", {}, "Rule: ", code(call.rule),
      call.split !== undefined && [". Split: ", code(call.split || "none")]), rule_legend(call.rule)],
    call && el("p", { class: "note" }, "Predicted: sending the inputs takes ", time(call.comm_us), ", computing ",
      time(call.work_us), ", reductions that are put off ", time(call.reduce_us), "."),
    call?.candidates?.length > 0 && [el("h2", {}, "Candidates"), candidates_table(call)],
    el("h2", {}, "What it sends"),
    op.sends?.length ? events_table(rec, op) : el("p", {}, moves.length
      ? "Nothing: what the plans below would send was there already, or they send nothing." : "Nothing."),
    sums_of(rec, run, i),
    moves.length > 0 && [el("h2", {}, call ? "How its inputs move" : "How tensors move"), moves],
    call && [el("h2", {}, "Tensors"), tensors_of(rec, call, i)],
    el("h2", {}, "Memory"), memory_of(rec, run, op, i),
  ];
}
