// SPDX-License-Identifier: Apache-2.0
// The mesh as a grid of ranks along two axes, with what each rank holds or receives.

const METRICS = { memory: "memory", sends: "received at this operator", sum: "received up to here" };
const MOST_CELLS = 64;  // along an axis; more ranks than that are joined where they are equal

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

// Neighbouring coordinates of an axis that look alike, as [first, last].
function alike(size, look) {
  const runs = [];
  let before;
  for (let i = 0; i < size; ++i) {
    const now = look(i);
    if (now === before) runs.at(-1)[1] = i;
    else runs.push([i, i]);
    before = now;
  }
  return runs;
}
const numbers = (first, last) => Array.from({ length: last - first + 1 }, (_, i) => first + i);
const fixed_field = (mesh, a, fixed) => number_field(`fixed${a}`, mesh.axes[a].size - 1, fixed[a], "change",
  (n) => go({ fixed: fixed.map((old, k) => k === a ? n : old).join() }));

// One rank, or several that are equal.
function rank_cell(ranks, at, value, share, hatch) {
  const { x, y, width, height } = at, two = width > 56 && height > 30 && !hatch, several = ranks.length > 1;
  const ink = hatch ? "var(--ink)" : share > 0.5 ? "#fff" : "#111";
  const fill = hatch ?? `color-mix(in oklab, #08519c ${Math.round(100 * share)}%, #eff3ff)`;
  const name = several ? count(ranks.length, "rank") : `${ranks[0]}`;
  const holds = hatch ? "another stage" : `${byteText(value)}${several ? " each" : ""}`;
  const line = (text, dy, kind) => draw("text", { x: x + width / 2, y: y + height / 2 + dy, "text-anchor": "middle",
    fill: ink, class: kind }, text);
  return draw("g", { class: "box cell", "data-ranks": ranges(ranks), click: () => go({ rank: next_rank(ranks) }) },
    draw("title", {}, `${several ? "ranks" : "rank"} ${ranges(ranks)}: ${holds}`), draw("rect", { ...at, fill }),
    width > 7 * name.length + 6 && line(name, two ? -3 : 4), two && line(byteText(value), 12, "small"),
    ranks.includes(state.rank) && draw("rect", { ...at, class: "mark", fill: "none" }));
}
function mesh_grid(rec, run, values, ours, x, y, fixed) {
  const { mesh } = rec, left = 44, top = 20, size = (a) => a === undefined ? 1 : mesh.axes[a].size;
  const is_other = (rank) => ours && !ours.has(rank);
  const largest = values.reduce((most, n, rank) => is_other(rank) ? most : Math.max(most, n), 0);
  const rank_at = (i, j) => {
    const place = [...fixed];
    if (x !== undefined) place[x] = i;
    if (y !== undefined) place[y] = j;
    return rec.rank_at(mesh, place_at(mesh, place));
  };
  // With more ranks than MOST_CELLS, equal neighbours are one cell. If many cells are left
  // along an axis, some are drawn, from the fixed coordinate on.
  const look = (ranks) => ranks.map((rank) => is_other(rank) ? "other" : values[rank]).join();
  const joins = size(x) * size(y) > MOST_CELLS;
  const columns = alike(size(x), (i) => joins ? look(numbers(0, size(y) - 1).map((j) => rank_at(i, j))) : i);
  const rows = alike(size(y), (j) => joins ? look(numbers(0, size(x) - 1).map((i) => rank_at(i, j))) : j);
  const drawn = (a, runs) => {
    if (runs.length <= MOST_CELLS) return runs;
    const first = Math.min(runs.findIndex(([, last]) => last >= fixed[a]), runs.length - MOST_CELLS);
    return runs.slice(first, first + MOST_CELLS);
  };
  const across = drawn(x, columns), down = drawn(y, rows);
  const wide = Math.max(12, Math.min(96, 640 / across.length));
  const high = Math.min(wide, Math.max(16, Math.min(52, 640 / down.length)));
  const [defs, hatch] = pattern("#7f7f7f", 1);
  const cells = down.flatMap((row, j) => across.map((column, i) => {
    const ranks = numbers(...row).flatMap((r) => numbers(...column).map((c) => rank_at(c, r))).sort((a, b) => a - b);
    const at = { x: left + i * wide, y: top + j * high, width: wide - 1, height: high - 1 };
    const value = values[ranks[0]];
    return rank_cell(ranks, at, value, value / (largest || 1), is_other(ranks[0]) ? hatch : undefined);
  }));
  const head = (a, text, at) => a !== undefined && draw("text", { ...at, class: "small" }, text);
  const some = [[x, across, columns], [y, down, rows]].filter(([, part, all]) => part.length < all.length);
  return [scrolled("Ranks", picture(
    `Ranks of ${mesh.text}, coloured by ${METRICS[state.metric ?? "memory"]}: at most ${byteText(largest)}`,
    left + wide * across.length + 4, top + high * down.length + 4, defs, cells,
    head(x, `${mesh.axes[x]?.name} ${across[0][0]}–${across.at(-1)[1]} →`, { x: left, y: 13 }),
    head(y, `${mesh.axes[y]?.name} ↓`, { x: 2, y: top + 14 }))),
  columns.length * rows.length < size(x) * size(y) &&
    el("p", { class: "note" }, "Neighbours that are equal are one cell."),
  some.map(([a, part]) => el("p", { class: "note" }, `Coordinates ${part[0][0]} to ${part.at(-1)[1]} of ` +
    `${mesh.axes[a].name}, of ${whole(size(a))}, are drawn, `, labelled("from", fixed_field(mesh, a, fixed))))];
}
function mesh_note(rec, run, at, values, ours) {
  const some = [...values].filter((_, r) => !ours || ours.has(r)), memory = (state.metric ?? "memory") === "memory";
  const most = some.reduce((a, b) => Math.max(a, b), 0), least = some.reduce((a, b) => Math.min(a, b), most);
  return el("p", { class: "note" },
    most ? `Of all ranks, the darkest has ${byteText(most)}, the lightest ${byteText(least)}. ` : "No rank has any. ",
    ours && "Hatched ranks belong to other stages, which run other operators. ",
    memory ? `Rank ${run.rank} ran, and its memory was counted; that of others follows from it: their parameters and ` +
      "outputs by their layouts, their gradients and the optimizer’s state in proportion to their parameters."
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
    const values = metric === "memory" ? sum_by_rank(rec, memory_by_rank(rec, run, i)) : received_by_rank(rec, past);
    const place = state.rank === undefined ? -1 : rec.place_of(mesh, state.rank);
    refill(grid, mesh_grid(rec, run, values, ours, x, y, fixed),
      state.rank !== undefined && el("p", { class: "answer" },
        link(`rank ${state.rank}`, "rank", { rank: state.rank, op: i }),
        place < 0 ? ": " : ` (${coordinate_text(mesh, coordinate(mesh, place))}): `,
        ours && !ours.has(state.rank) ? "it belongs to another stage."
          : [bytes(values[state.rank]), `, ${METRICS[metric]}.`]),
      mesh_note(rec, run, i, values, ours));
    refill(name, op ? operator_link(rec, op, i) : "no operator");
  };
  update();
  // Axes that are not drawn have a coordinate to choose.
  const others = axes.filter(([a]) => a !== x && a !== y);
  return [el("h1", {}, `Mesh ${mesh.text}`),
    el("div", { class: "controls" },
      labelled("Colour", choice("metric", Object.entries(METRICS), state.metric ?? "memory",
        (metric) => { adjust({ metric }); update(); })),
      axes.length > 1 && [labelled("Across", choice("cols", axes, x, (a) => go({ cols: a }))),
        labelled("Down", choice("rows", axes, y, (a) => go({ rows: a })))],
      others.map(([a, text]) => labelled(text, fixed_field(mesh, a, fixed))),
      labelled("Rank", rank_field(rec, state.rank))),
    run.operators.length > 0 && slider(run, at, update), el("p", {}, "After ", name), grid];
}
