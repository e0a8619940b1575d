// SPDX-License-Identifier: Apache-2.0
// The mesh as a grid of ranks along two axes, with what each rank holds or receives.

const METRICS = { memory: "memory of tensors", sends: "received at this operator", sum: "received up to here" };
const MOST_CELLS = 64;

// Bytes on each rank of the parameters and of what is in use after operator `at`.
function memory_by_rank(rec, run, at) {
  const all = rec.once("parameter bytes", () => rec.parameters.reduce((sum, p) => {
    bytes_by_rank(rec, p.spec).forEach((n, r) => { sum[r] += n; });
    return sum;
  }, new Float64Array(rec.world))).slice();
  const shares = new Map();  // of each spec, how often it is in use
  for (const [op] of rec.alive(run, at)) {
    const share = made_share(rec, run, op);
    for (const spec of rec.call(op)?.out ?? []) shares.set(spec, (shares.get(spec) ?? 0) + share);
  }
  for (const [spec, share] of shares) bytes_by_rank(rec, spec).forEach((n, r) => { all[r] += n * share; });
  return all;
}
// At most so many bytes that each rank receives: an event tells those of the rank with the most.
function received_by_rank(rec, operators) {
  const all = new Float64Array(rec.world), of = new Float64Array(rec.meshes.length);
  for (const op of operators) for (const e of rec.events_of(op)) of[e.mesh ?? 0] += e.bytes;
  rec.meshes.forEach((mesh, m) => {
    for (let place = 0; of[m] && place < mesh.size; ++place) all[rec.rank_at(mesh, place)] += of[m];
  });
  return all;
}
// The ranks of a pipeline's stage: those of the meshes on which the rank that ran
// makes tensors. Null if all ranks do the same.
const ranks_of_run = (rec, run) => rec.once(run.operators, () => {
  if (rec.runs.length < 2) return null;
  const used = new Set(run.operators.flatMap((op) => rec.call(op)?.out ?? []).map((s) => rec.specs[s].mesh));
  const meshes = [...used].map((m) => rec.meshes[m])
    .filter((mesh) => rec.place_of(mesh, run.rank) >= 0 && mesh.size < rec.world);
  const ranks = meshes.flatMap((mesh) => Array.from({ length: mesh.size }, (_, place) => rec.rank_at(mesh, place)));
  return ranks.length ? new Set(ranks) : null;
});

function rank_cell(rank, at, value, share, hatch) {
  const { x, y, width, height } = at, two = width > 56 && height > 30 && !hatch;
  const ink = hatch ? "var(--ink)" : share > 0.5 ? "#fff" : "#111";
  const fill = hatch ?? `color-mix(in oklab, #08519c ${Math.round(100 * share)}%, #eff3ff)`;
  const line = (text, dy, kind) => draw("text", { x: x + width / 2, y: y + height / 2 + dy, "text-anchor": "middle",
    fill: ink, class: kind }, text);
  return draw("g", { class: "box cell", "data-rank": rank, click: () => go({ rank }) },
    draw("title", {}, `rank ${rank}: ${hatch ? "another stage" : byteText(value)}`), draw("rect", { ...at, fill }),
    width > 26 && line(`${rank}`, two ? -3 : 4), two && line(byteText(value), 12, "small"),
    rank === state.rank && draw("rect", { ...at, class: "mark", fill: "none" }));
}
function mesh_grid(rec, run, values, ours, x, y, fixed) {
  const { mesh } = rec, largest = values.reduce((a, b) => Math.max(a, b), 0), left = 44, top = 20;
  const size = (a) => a === undefined ? 1 : Math.min(MOST_CELLS, mesh.axes[a].size);
  // A long axis shows some coordinates, from the fixed one on.
  const first = (a) => a === undefined ? 0 : Math.min(fixed[a], mesh.axes[a].size - size(a));
  const wide = Math.max(12, Math.min(96, 640 / size(x)));
  const high = Math.min(wide, Math.max(16, Math.min(52, 640 / size(y))));
  const [defs, hatch] = pattern("#7f7f7f", 1), cells = [];
  for (let j = 0; j < size(y); ++j) for (let i = 0; i < size(x); ++i) {
    const place = [...fixed];
    if (x !== undefined) place[x] = first(x) + i;
    if (y !== undefined) place[y] = first(y) + j;
    const rank = rec.rank_at(mesh, place_at(mesh, place));
    const at = { x: left + i * wide, y: top + j * high, width: wide - 1, height: high - 1 };
    const other = ours && !ours.has(rank);
    cells.push(rank_cell(rank, at, values[rank], values[rank] / (largest || 1), other ? hatch : undefined));
  }
  const head = (a, text, at) => a !== undefined && draw("text", { ...at, class: "small" }, text);
  return scrolled("Ranks", picture(
    `Ranks of ${mesh.text}, coloured by ${METRICS[state.metric ?? "memory"]}: at most ${byteText(largest)}`,
    left + wide * size(x) + 4, top + high * size(y) + 4, defs, cells,
    head(x, `${mesh.axes[x]?.name} ${first(x)}–${first(x) + size(x) - 1} →`, { x: left, y: 13 }),
    head(y, `${mesh.axes[y]?.name} ↓`, { x: 2, y: top + 14 })));
}
function mesh_note(rec, run, at, values, ours, axes) {
  const some = [...values].filter((_, r) => !ours || ours.has(r)), op = run.operators[at];
  const cut = axes.map((a) => rec.mesh.axes[a]).filter((axis) => axis?.size > MOST_CELLS);
  const most = some.reduce((a, b) => Math.max(a, b), 0), least = some.reduce((a, b) => Math.min(a, b), most);
  return el("p", { class: "note" },
    most ? `Of all ranks, the darkest has ${byteText(most)}, the lightest ${byteText(least)}. ` : "No rank has any. ",
    cut.map((axis) => `${MOST_CELLS} of ${whole(axis.size)} coordinates of ${axis.name} are drawn. `),
    ours && "Hatched ranks belong to other stages, which run other operators. ",
    (state.metric ?? "memory") === "memory" ? [
      "Computed from the layouts of the parameters and of the operators’ outputs in use; ",
      "gradients and the optimizer’s state are not in it.",
      op && [` Rank ${run.rank} ran, and counted `, bytes(rec.memory(op)), " of all kinds here."]]
      : "A collective counts for each rank of its mesh, with the bytes of the rank that receives the most of it.");
}

function mesh_view({ rec, run, at }) {
  const { mesh } = rec, axes = mesh.axes.map((axis, a) => [a, `${axis.name} (${axis.size})`]);
  const x = axes[state.cols] ? state.cols : axes.length ? axes.length - 1 : undefined;
  const y = axes[state.rows] && state.rows !== x ? state.rows : axes.map(([a]) => a).filter((a) => a !== x).at(-1);
  const given = (state.fixed ?? "").split(",").map(Number), ours = ranks_of_run(rec, run);
  const fixed = mesh.axes.map((axis, a) => given[a] < axis.size && given[a] >= 0 ? Math.floor(given[a]) : 0);
  const grid = el("div", {}), name = el("span", {});
  const update = () => {
    const i = Math.min(state.op ?? at, Math.max(0, run.operators.length - 1)), op = run.operators[i];
    const metric = state.metric ?? "memory", past = metric === "sum" ? run.operators.slice(0, i + 1) : op ? [op] : [];
    const values = metric === "memory" ? memory_by_rank(rec, run, i) : received_by_rank(rec, past);
    const place = state.rank === undefined ? -1 : rec.place_of(mesh, state.rank);
    refill(grid, mesh_grid(rec, run, values, ours, x, y, fixed),
      state.rank !== undefined && el("p", { class: "answer" },
        link(`rank ${state.rank}`, "rank", { rank: state.rank, op: i }),
        place < 0 ? ": " : ` (${coordinate_text(mesh, coordinate(mesh, place))}): `,
        bytes(values[state.rank]), `, ${METRICS[metric]}.`),
      mesh_note(rec, run, i, values, ours, [x, y]));
    refill(name, op ? operator_link(rec, op, i) : "no operator");
  };
  update();
  // Axes that are not drawn, or not as a whole, have a coordinate to choose.
  const others = axes.filter(([a]) => (a !== x && a !== y) || mesh.axes[a].size > MOST_CELLS);
  return [el("h1", {}, `Mesh ${mesh.text}`),
    el("div", { class: "controls" },
      labelled("Colour", choice("metric", Object.entries(METRICS), state.metric ?? "memory",
        (metric) => { adjust({ metric }); update(); })),
      axes.length > 1 && [labelled("Across", choice("cols", axes, x, (a) => go({ cols: a }))),
        labelled("Down", choice("rows", axes, y, (a) => go({ rows: a })))],
      others.map(([a, text]) => labelled(a === x || a === y ? `${text} from` : text,
        number_field(`fixed${a}`, mesh.axes[a].size - 1, fixed[a], "change",
          (n) => go({ fixed: fixed.map((old, k) => k === a ? n : old).join() })))),
      labelled("Rank", rank_field(rec, state.rank))),
    run.operators.length > 0 && slider(run, at, update), el("p", {}, "After ", name), grid];
}

// All that a rank holds when an operator has run; equal tensors of equal layers are one line.
function rank_view({ rec, run, at }) {
  const rank = state.rank ?? run.rank, { mesh } = rec, place = rec.place_of(mesh, rank), op = run.operators[at];
  const parameters = rec.parameters.map((p, i) => ({ bytes: bytes_by_rank(rec, p.spec)[rank], spec: p.spec,
    key: any_layer(p.name), show: () => [link(p.name, "tensor", { param: i, rank }), " (parameter)"] }));
  const outputs = rec.alive(run, at).flatMap(([o, i]) => (rec.call(o)?.out ?? []).map((spec, k) => ({
    bytes: bytes_by_rank(rec, spec)[rank] * made_share(rec, run, o), spec,
    key: `${k} ${o.call} ${o.phase} ${any_layer(rec.path(o))}`, show: () => operator_link(rec, o, i) })));
  const size = (group) => group.length * group[0].bytes, held = [...parameters, ...outputs].filter((t) => t.bytes > 0);
  const groups = grouped(held, (t) => `${t.key} ${t.spec} ${t.bytes}`)
    .sort((a, b) => size(b) - size(a));
  const part = (spec) => is_listed(rec, rec.specs[spec])
    ? box_of(rec, rec.specs[spec], rank).map(spans).join(" × ") || "the number" : "parts that are not listed";
  return [el("h1", {}, `Rank ${rank}`),
    el("p", {}, place >= 0 && `At ${coordinate_text(mesh, coordinate(mesh, place))} of ${mesh.text}. `,
      link("Show it in the mesh", "mesh", { rank, op: at }), "."),
    el("div", { class: "controls" }, labelled("Rank", rank_field(rec, rank))),
    op && el("p", {}, "After ", operator_link(rec, op, at), ", it holds ",
      bytes(groups.reduce((n, group) => n + size(group), 0)), ":"),
    plain_list(groups, 100, (group) => {
      const [{ spec, bytes: one, show: name }] = group, several = group.length > 1;
      return el("li", {}, bytes(size(group)), " ", bar(size(group) / size(groups[0])), " ",
        several && [`${whole(group.length)} × `, bytes(one), ": "], name(),
        several && " and the like in other layers", ", ",
        link(rec.text(spec), "tensor", { spec, rank, op: at }), ": ", part(spec));
    }),
    el("p", { class: "note" }, "Computed from the layouts of the parameters and of the operators’ outputs in use.")];
}
