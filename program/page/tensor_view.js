// SPDX-License-Identifier: Apache-2.0
// One tensor, or a move of it: its boxes, who holds an index, and who needs what from whom.

const rank_link = (rank) => link(`rank ${rank}`, "rank", { rank, op: state.op });

function held_table(rec, index) {
  const spec = rec.specs[index], mesh = rec.meshes[spec.mesh], all = bytes_by_rank(rec, index);
  const step = Math.max(1, Math.ceil(mesh.size / MOST_PARTS)), rows = [];
  for (let place = 0; place < mesh.size; place += step) {
    const rank = rec.rank_at(mesh, place), box = box_of(rec, spec, rank);
    rows.push([rank_link(rank), coordinate_text(mesh, coordinate(mesh, place)), ...box.map(spans),
      whole(elements(box)), bytes(all[rank])]);
  }
  return el("details", {}, el("summary", {}, "The same as a table"),
    table(step > 1 ? `One of ${step} ranks, of ${whole(mesh.size)}` : "Ranks and what they hold",
      ["Rank", "Place", ...spec.shape.map((_, d) => `Dimension ${d}`), "#Elements", "#Memory"], rows));
}
function axes_table(rec, spec) {
  const { partial } = axes_of(rec, spec), mesh = rec.meshes[spec.mesh];
  const effect = (a) => {
    if (partial.has(a)) return `each rank holds a term of the ${partial.get(a)}`;
    const d = spec.dims.findIndex((k) => rec.dims[k].axes?.includes(a));
    if (d < 0) return "each rank holds a copy";
    const lengths = [...new Set(parts_of(rec.dims[spec.dims[d]]).map(length_of))].sort((x, y) => y - x).map(whole);
    return `splits dimension ${d} (parts of ${lengths.slice(0, 3).join(", ")}${lengths.length > 3 ? ", ..." : ""})`;
  };
  return table("What each axis of the mesh does", ["Axis", "#Ranks", "Effect"],
    mesh.axes.map((axis, a) => [axis.name, whole(axis.size), effect(a)]));
}
// The answer to "which ranks hold index `row` of dimension `dim`".
function row_answer(rec, index, dim, row) {
  const spec = rec.specs[index], size = spec.shape[dim];
  if (!(row < size)) return `Dimension ${dim} has ${count(size, "index", "indices")}: 0 to ${whole(size - 1)}.`;
  const held = parts_of(rec.dims[spec.dims[dim]]).map((list) => list.some(([lo, hi]) => lo <= row && row < hi));
  const ranks = [...holders_of(rec, spec, dim, undefined)].filter(([key]) => held[parseInt(key)])
    .flatMap(([, some]) => some).sort((a, b) => a - b);
  const where = ranks.length === 1 ? `rank ${ranks[0]}` : ranks.length === rec.world ? `all ${whole(rec.world)} ranks`
    : `${count(ranks.length, "rank")}: ${ranges(ranks)}`;
  return `${spec.shape.length > 1 ? `Index ${row} of dimension ${dim}` : `Element ${row}`} lies on ${where}` +
    `${spec.partials?.length ? ", as terms of a sum" : ""}.`;
}
function rank_answer(rec, index) {
  const spec = rec.specs[index], box = box_of(rec, spec, state.rank), mesh = rec.meshes[spec.mesh];
  if (!box) return [rank_link(state.rank), ` is not in the mesh ${mesh.text}, and holds nothing of it.`];
  const at = coordinate(mesh, rec.place_of(mesh, state.rank));
  return [rank_link(state.rank), ` (${coordinate_text(mesh, at)}) holds `,
    box.length ? box.map((list, d) => `${d ? "; " : ""}dimension ${d}: ${spans(list)}`) : "the number",
    `. ${count(elements(box), "element")}, `, bytes(bytes_by_rank(rec, index)[state.rank]), "."];
}
function matrix(rec, move) {
  const rows = needed(rec, rec.specs[move.from], rec.specs[move.to]);
  if (!rows) return el("p", { class: "note" },
    "Who sends to whom is shown for moves without partial values, of up to 64 ranks.");
  const largest = Math.max(...rows.flat());
  if (!largest) return el("p", {}, "Each rank has what it needs: nothing has to be sent.");
  const heat = (n) => n > 0 &&
    el("span", { class: "heat", style: `--heat:${(15 + 45 * n / largest).toFixed(0)}%` }, whole(n));
  return [el("p", { class: "note" }, "Elements that each rank needs and lacks, below the nearest rank that has them. " +
    "No plan can send a rank less than its row’s sum."),
  table("Elements needed", ["To \\ from", ...rows.map((_, r) => `#${r}`), "#Sum"],
    rows.map((row, r) => [`rank ${r}`, ...row.map(heat), whole(row.reduce((a, b) => a + b))]))];
}

// A field for a whole number; an empty one means none.
function number_field(id, most, value, event, change) {
  const number = (text) => text === "" ? undefined : Math.max(0, Math.floor(Number(text)));
  return el("input", { id, type: "number", min: 0, max: most, value, [event]: (e) => change(number(e.target.value)) });
}
const rank_field = (rec, value) => number_field("rank", rec.world - 1, value, "change", (rank) => go({ rank }));

function tensor_view({ rec, run }) {
  const move = rec.moves[state.move], parameter = rec.parameters[state.param];
  const index = move ? move.to : parameter ? parameter.spec : state.spec ?? 0, spec = rec.specs[index];
  if (!spec) return [el("h1", {}, "Tensor"), el("p", {}, "This record has no tensors.")];
  if (!is_listed(rec, spec) || (move && !is_listed(rec, rec.specs[move.from])))
    return [el("h1", {}, parameter?.name ?? "A tensor"), el("p", {}, code(rec.text(index))),
      el("p", {}, "Its parts have so many pieces that the record does not list them."), move && steps_table(rec, move)];
  const dims = spec.shape.map((n, d) => [d, `dimension ${d} (${whole(n)})`]), [rows, cols] = drawn_dims(rec, spec);
  const dim = Math.min(state.dim ?? 0, dims.length - 1);
  const both = move && [["Before: ", move.from], ["After: ", move.to]];
  const answer = el("p", { role: "status" }), figures = el("div", { class: "figures" });
  const update = () => {
    refill(figures, move ? [tensor_figure(rec, move.from, "Before"), tensor_figure(rec, move.to, "After")]
      : tensor_figure(rec, index));
    answer.textContent = state.row === undefined || !dims.length ? ""
      : `${move ? "After the move: " : ""}${row_answer(rec, index, dim, state.row)}`;
  };
  update();
  return [
    el("h1", {}, move ? "A move" : parameter ? parameter.name : "A tensor"),
    state.op !== undefined && el("p", {}, "At ", operator_link(rec, run.operators[state.op], state.op), "."),
    el("div", { class: "controls" },
      dims.length > 0 && labelled("Which rank holds row",
        number_field("row", spec.shape[dim] - 1, state.row, "input", (row) => { adjust({ row }); update(); })),
      dims.length > 1 && labelled("of", choice("dim", dims, dim, (d) => go({ dim: d }))),
      labelled("Show rank", rank_field(rec, state.rank)),
      dims.length > 2 && [labelled("Down", choice("rows", dims, rows, (d) => go({ rows: d }))),
        labelled("Across", choice("cols", dims, cols, (d) => go({ cols: d })))]),
    answer, figures,
    state.rank !== undefined && (both ?? [["", index]]).map(([when, k]) =>
      el("p", { class: "answer" }, when, rank_answer(rec, k))),
    move ? [steps_table(rec, move), el("h2", {}, "Who needs what from whom"), matrix(rec, move)]
      : axes_table(rec, spec),
    held_table(rec, index),
  ];
}

function tensors_view({ rec }) {
  const list = el("div", {}), said = el("p", { role: "status", class: "note" });
  const on = (spec) => ` on ${rec.meshes[rec.specs[spec].mesh].text}`;
  const update = () => {
    const words = words_of(state.q), fits = (text) => words.every((w) => text.toLowerCase().includes(w));
    const found = rec.parameters.map((p, i) => [p, i]).filter(([p]) => fits(`${p.name} ${rec.text(p.spec)}`));
    said.textContent = `${whole(found.length)} of ${count(rec.parameters.length, "parameter")}.`;
    refill(list, plain_list(found, 100, ([p, i]) => el("li", {}, link(p.name, "tensor", { param: i }), " ",
      code(rec.text(p.spec)), on(p.spec), ", ", bytes(rec.specs[p.spec].bytes))));
  };
  update();
  const search = el("input", { id: "search", type: "search", value: state.q ?? "",
    input: (e) => { adjust({ q: e.target.value }); update(); } });
  return [el("h1", {}, "Tensors"),
    rec.parameters.length > 0 && [el("h2", {}, "Parameters"),
      el("div", { class: "controls" }, labelled("Search", search)), said, list],
    el("h2", {}, "Every shape and layout in the record"),
    plain_list(rec.specs.map((_, i) => i), 100, (i) => el("li", {}, spec_link(rec, i), on(i)))];
}
