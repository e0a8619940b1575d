// The mesh as a grid of ranks along two axes, with what each rank holds or receives.

const METRICS = {
  memory: "memory of tensors", sends: "received at this operator", sum: "received up to here",
};
const MOST_CELLS = 64;

// Bytes on each rank of the parameters and of what is in use after operator `at`.
function memory_by_rank(rec, run, at) {
  const all = rec.once("parameter bytes", () => rec.parameters.reduce((sum, p) => {
    bytes_by_rank(rec, p.spec).forEach((n, r) => { sum[r] += n; });
    return sum;
  }, new Float64Array(rec.world))).slice();
  const weights = new Map();
  for (const [op] of rec.alive(run, at)) {
    const out = rec.call(op)?.out ?? [], part = made_share(rec, run, op);
    for (const spec of out) weights.set(spec, (weights.get(spec) ?? 0) + part);
  }
  for (const [spec, weight] of weights) bytes_by_rank(rec, spec).forEach((n, r) => { all[r] += n * weight; });
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
const ranks_of_run = (rec, run) => rec.once(run.operators, () => {
  if (rec.runs.length < 2) return null;
  const used = new Set();
  for (const op of run.operators) for (const s of rec.call(op)?.out ?? []) used.add(rec.specs[s].mesh);
  return new Set([...used].map((m) => rec.meshes[m]).filter((mesh) => rec.place_of(mesh, run.rank) >= 0 && mesh.size < rec.world)
    .flatMap((mesh) => mesh.ranks ?? Array.from({ length: mesh.size }, (_, r) => r)));
});

function mesh_grid(rec, run, at, x, y, fixed) {
  const mesh = rec.mesh, metric = state.metric ?? "memory", ours = ranks_of_run(rec, run);
  const values = metric === "memory" ? memory_by_rank(rec, run, at)
    : received_by_rank(rec, metric === "sends" ? [run.operators[at]].filter(Boolean) : run.operators.slice(0, at + 1));
  const largest = values.reduce((a, b) => Math.max(a, b), 0);
  const size = (a) => a === undefined ? 1 : Math.min(MOST_CELLS, mesh.axes[a].size);
  const cell = Math.max(12, Math.min(96, 640 / size(x))), high = Math.min(cell, Math.max(16, Math.min(52, 640 / size(y)))), left = 44, top = 20;
  // Of a long axis, some coordinates from the fixed one on.
  const first = (a) => a === undefined ? 0 : Math.min(fixed[a], mesh.axes[a].size - size(a));
  const [defs, hatch] = pattern("#7f7f7f", 1), cells = [];
  for (let j = 0; j < size(y); ++j) for (let i = 0; i < size(x); ++i) {
    const place = [...fixed];
    if (x !== undefined) place[x] = first(x) + i;
    if (y !== undefined) place[y] = first(y) + j;
    const rank = rec.rank_at(mesh, place_at(mesh, place)), other = ours?.size && !ours.has(rank), share = values[rank] / (largest || 1);
    const at_ = { x: left + i * cell, y: top + j * high }, ink = other ? "var(--ink)" : share > 0.5 ? "#fff" : "#111";
    cells.push(draw("g", { class: "box cell", "data-rank": rank, click: () => go({ rank }) },
      draw("title", {}, `rank ${rank}: ${other ? "another stage" : byteText(values[rank])}`),
      draw("rect", { ...at_, width: cell - 1, height: high - 1,
        fill: other ? hatch : `color-mix(in oklab, #08519c ${Math.round(100 * share)}%, #eff3ff)` }),
      cell > 26 && draw("text", { x: at_.x + cell / 2, y: at_.y + high / 2 + (cell > 56 && high > 30 && !other ? -3 : 4), "text-anchor": "middle", fill: ink }, `${rank}`),
      cell > 56 && high > 30 && !other && draw("text", { x: at_.x + cell / 2, y: at_.y + high / 2 + 12, "text-anchor": "middle", class: "small", fill: ink }, byteText(values[rank]))),
    rank === state.rank && draw("rect", { ...at_, width: cell - 1, height: high - 1, class: "mark" }));
  }
  const heads = [x !== undefined && draw("text", { x: left, y: 13, class: "small" }, `${mesh.axes[x].name} ${first(x)}–${first(x) + size(x) - 1} →`),
    y !== undefined && draw("text", { x: 2, y: top + 14, class: "small" }, `${mesh.axes[y].name} ↓`)];
  const cut = [x, y].filter((a) => a !== undefined && mesh.axes[a].size > MOST_CELLS);
  const spread = [...values].filter((_, r) => !ours?.size || ours.has(r));
  const least = spread.reduce((a, b) => Math.min(a, b), Infinity), most = spread.indexOf(largest);
  return [el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Mesh" },
    picture(`Ranks of ${mesh.text}, coloured by ${METRICS[metric]}: at most ${byteText(largest)}`, left + cell * size(x) + 4, top + high * size(y) + 4, defs, cells, heads)),
  el("p", { class: "note" }, largest ? `The darkest has ${byteText(largest)}, the lightest of all ranks ${byteText(least)}. ` : "No rank has any. ",
    cut.map((a) => `${MOST_CELLS} of ${whole(mesh.axes[a].size)} coordinates of ${mesh.axes[a].name} are drawn. `),
    ours?.size ? `Hatched ranks belong to other stages, which run other operators. ` : "",
    metric === "memory" ? `Computed from the layouts of the parameters and of the operators’ outputs in use; gradients and the optimizer’s state are not in it. Rank ${run.rank} ran, and counted `
      : "A collective counts with the bytes of the rank that receives the most of it, for each rank of its mesh. ",
    metric === "memory" && run.operators[at] && [bytes(rec.memory(run.operators[at])), " of all kinds here."]),
  state.rank !== undefined && el("p", { class: "answer" }, rank_link(state.rank, { op: at }),
    rec.place_of(mesh, state.rank) >= 0 ? ` (${coordinate_text(mesh, coordinate(mesh, rec.place_of(mesh, state.rank)))}): ` : ": ",
    bytes(values[state.rank]), `, ${METRICS[metric]}.`)];
}

function mesh_view({ rec, run, at }) {
  const { mesh } = rec, axes = mesh.axes.map((axis, a) => [a, `${axis.name} (${axis.size})`]);
  const x = axes[state.cols] ? state.cols : axes.length ? axes.length - 1 : undefined;
  const y = axes[state.rows] && state.rows !== x ? state.rows : axes.map(([a]) => a).filter((a) => a !== x).at(-1);
  const given = (state.fixed ?? "").split(",").map(Number);
  const fixed = mesh.axes.map((axis, a) => given[a] < axis.size && given[a] >= 0 ? Math.floor(given[a]) : 0);
  const grid = el("div", {}), name = el("span", { class: "at" });
  const update = () => {
    const i = Math.min(state.op ?? at, Math.max(0, run.operators.length - 1));
    grid.replaceChildren(...mesh_grid(rec, run, i, x, y, fixed).flat().filter(Boolean));
    name.replaceChildren(...run.operators.length ? operator_link(rec, run.operators[i], i) : ["no operators"]);
  };
  update();
  return [el("h1", {}, `Mesh ${mesh.text}`),
    el("div", { class: "controls" },
      labelled("Colour", choice("metric", Object.entries(METRICS), state.metric ?? "memory", (metric) => { adjust({ metric }); update(); })),
      axes.length > 1 && [labelled("Across", choice("cols", axes, x, (a) => go({ cols: a }))), labelled("Down", choice("rows", axes, y, (a) => go({ rows: a })))],
      axes.filter(([a]) => (a !== x && a !== y) || mesh.axes[a].size > MOST_CELLS).map(([a, text]) => labelled(a === x || a === y ? `${text} from` : text, el("input", { id: `fixed${a}`, type: "number", min: 0, max: mesh.axes[a].size - 1,
        value: fixed[a], change: (e) => go({ fixed: fixed.map((n, k) => k === a ? e.target.value : n).join() }) }))),
      labelled("Rank", el("input", { id: "rank", type: "number", min: 0, max: rec.world - 1, value: state.rank,
        change: (e) => go({ rank: e.target.value === "" ? undefined : e.target.value }) }))),
    run.operators.length > 0 && slider(run, at, update), el("p", {}, "After ", name), grid];
}
// Moves along the operators.
const slider = (run, at, update) => el("label", { class: "slider" }, "Operator",
  el("input", { id: "slider", type: "range", min: 0, max: run.operators.length - 1, value: state.op ?? at,
    input: (e) => { adjust({ op: Number(e.target.value) }); update(); } }));

function rank_view({ rec, run, at }) {
  const rank = state.rank ?? run.rank, mesh = rec.mesh, place = rec.place_of(mesh, rank);
  const part = (index) => spec_parts(rec, index, rank);
  const rows = [
    ...rec.parameters.map((p, i) => ({ n: bytes_by_rank(rec, p.spec)[rank], key: `parameter ${any_layer(p.name)}`, spec: p.spec,
      show: () => [link(p.name, "tensor", { param: i, rank }), " (parameter)"] })),
    ...rec.alive(run, at).flatMap(([op, i]) => (rec.call(op)?.out ?? []).map((spec, k) => ({
      n: bytes_by_rank(rec, spec)[rank] * made_share(rec, run, op), key: `${k} ${op.call} ${op.phase} ${op.makes} ${any_layer(rec.path(op))}`, spec,
      show: () => operator_link(rec, op, i) }))),
  ].filter(({ n }) => n > 0);
  const size = (group) => group.length * group[0].n, body = el("ul", { class: "plain" });
  const groups = grouped(rows, (row) => `${row.key} ${row.spec} ${row.n}`).sort((a, b) => size(b) - size(a));
  const all = groups.reduce((n, group) => n + size(group), 0);
  long(groups, 100, (group) => el("li", {}, bytes(size(group)), " ", bar(size(group) / size(groups[0])), " ",
    group.length > 1 && [`${whole(group.length)} × `, bytes(group[0].n), ": "], group[0].show(), group.length > 1 && " and the like in other layers", ", ",
    link(rec.text(group[0].spec), "tensor", { spec: group[0].spec, rank, op: at }), ": ", part(group[0].spec)), body);
  return [el("h1", {}, `Rank ${rank}`),
    el("p", {}, place < 0 ? "" : `At ${coordinate_text(mesh, coordinate(mesh, place))} of ${mesh.text}. `, link("Show it in the mesh", "mesh", { rank, op: at }), "."),
    el("div", { class: "controls" }, labelled("Rank", el("input", { id: "rank", type: "number", min: 0, max: rec.world - 1, value: rank,
      change: (e) => go({ rank: e.target.value }) }))),
    run.operators[at] && el("p", {}, "After ", operator_link(rec, run.operators[at], at), ", it holds ", bytes(all), ` in ${count(rows.length, "tensor")}:`),
    body, el("p", { class: "note" }, "Computed from the layouts of the parameters and of the operators’ outputs in use.")];
}
const spec_parts = (rec, index, rank) => {
  const box = box_of(rec, rec.specs[index], rank);
  return box?.length ? box.map((list, d) => `${d ? " × " : ""}${spans(list)}`).join("") : "the number";
};
