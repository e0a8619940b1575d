// One tensor: its boxes to scale on two of its dimensions, the ranks that hold them,
// and a move drawn before and after.

const MOST_PARTS = 64, MOST_PIECES = 256;

// What is drawn of dimension d over so many pixels: the ranges of its parts side by
// side, of a sample of the parts if there are many.
function drawn_parts(rec, spec, d, pixels) {
  if (d === undefined) return { pieces: [{ part: 0, at: 0, size: pixels }], empty: [] };
  const parts = parts_of(rec.dims[spec.dims[d]]), sampled = parts.length > MOST_PARTS;
  const chosen = sampled ? Array.from({ length: MOST_PARTS }, (_, i) => Math.floor(i * parts.length / MOST_PARTS))
    : parts.map((_, i) => i);
  let pieces = chosen.flatMap((part) => parts[part].filter(([lo, hi]) => hi > lo).map((range) => ({ part, range })))
    .sort((a, b) => a.range[0] - b.range[0]);
  const cut = pieces.length > MOST_PIECES ? pieces.length : 0;
  pieces = pieces.slice(0, MOST_PIECES);
  const total = pieces.reduce((n, p) => n + p.range[1] - p.range[0], 0);
  let at = 0;
  for (const p of pieces) {
    p.at = at;
    at += p.size = pixels * (p.range[1] - p.range[0]) / (total || 1);
  }
  return { pieces, empty: chosen.filter((p) => !length_of(parts[p])), parts: parts.length, sampled, cut };
}
// The dimensions to draw, down and across: those that are split, then the longest.
function chosen_dims(rec, spec) {
  const split = (d) => rec.dims[spec.dims[d]].axes?.length ? 1 : 0;
  const order = spec.shape.map((_, d) => d).sort((a, b) => split(b) - split(a) || spec.shape[b] - spec.shape[a] || a - b);
  return order.slice(0, 2).sort((a, b) => a - b);
}
// The ranks of each pair of parts of the two dimensions: "part,part" -> ranks.
function holders_of(rec, spec, rows, cols) {
  const mesh = rec.meshes[spec.mesh], holders = new Map();
  for (let place = 0; place < mesh.size; ++place) {
    const at = coordinate(mesh, place);
    const key = [rows, cols].map((d) => d === undefined ? 0 : part_index(rec, spec, d, at)).join();
    if (!holders.has(key)) holders.set(key, []);
    holders.get(key).push(rec.rank_at(mesh, place));
  }
  for (const ranks of holders.values()) ranks.sort((a, b) => a - b);
  return holders;
}
// What ranks that share a box are to each other.
function sharing(rec, spec, rows, cols) {
  const { partial, copies } = axes_of(rec, spec), axes = rec.meshes[spec.mesh].axes;
  const size = (list) => list.reduce((n, a) => n * axes[a].size, 1), names = (list) => list.map((a) => axes[a].name).join(", ");
  const terms = [...partial.keys()];
  const others = spec.dims.flatMap((d, i) => i === rows || i === cols ? [] : rec.dims[d].axes ?? []);
  return { terms: size(terms), copies: size(copies), others: size(others), text: [
    size(terms) > 1 && `${whole(size(terms))} ranks along ${names(terms)} hold a term each; the value is their ${[...new Set(partial.values())].join(", ")} (lines)`,
    size(copies) > 1 && `${whole(size(copies))} ranks along ${names(copies)} hold a copy each (dots)`,
    size(others) > 1 && `${whole(size(others))} ranks along ${names(others)} hold parts along a dimension that is not drawn`,
  ].filter(Boolean) };
}

function tensor_figure(rec, index, title) {
  const spec = rec.specs[index], [first, second] = chosen_dims(rec, spec);
  const valid = (d, other) => d < spec.shape.length ? d : other;
  const rows = valid(state.rows, first), cols = valid(state.cols, second) === rows ? (rows === first ? second : first) : valid(state.cols, second);
  const length = (d) => d === undefined ? 1 : Math.max(1, spec.shape[d]);
  const left = 62, top = 22, width = 420;
  const height = Math.max(96, Math.min(420, width * (cols === undefined ? 0.6 : length(rows) / length(cols))));
  const down = drawn_parts(rec, spec, rows, height), across = drawn_parts(rec, spec, cols, width);
  const holders = holders_of(rec, spec, rows, cols), share = sharing(rec, spec, rows, cols);
  const style = share.terms > 1 ? (share.copies > 1 ? 3 : 1) : share.copies > 1 ? 2 : 0;
  const order = new Map([...holders].sort((a, b) => a[1][0] - b[1][0]).map(([key], i) => [key, i]));
  const fills = COLOURS.map((colour) => pattern(colour, style));
  const boxes = [], marks = [];
  for (const r of down.pieces) for (const c of across.pieces) {
    const key = `${r.part},${c.part}`, ranks = holders.get(key) ?? [], mine = ranks.includes(state.rank);
    const at = { x: left + c.at, y: top + r.at, width: c.size, height: r.size };
    const text = `${ranks.length === 1 ? "rank" : "ranks"} ${ranges(ranks, 3)}`;
    const note = [share.terms > 1 && `${share.terms} terms`, share.copies > 1 && `${share.copies} copies`].filter(Boolean).join(", ");
    // A click on a box of several ranks chooses one after the other.
    const choose = () => go({ rank: ranks[(ranks.indexOf(state.rank) + 1) % ranks.length] });
    const room = (t, n) => c.size > 6.2 * t.length && r.size > 13 * n;
    boxes.push(draw("g", { class: mine ? "box mine" : "box", click: choose, "data-ranks": ranks.join(" ") },
      draw("title", {}, `${text}${note ? `, ${note}` : ""}${r.range ? `; dimension ${rows}: ${span(r.range)}` : ""}${c.range ? `; dimension ${cols}: ${span(c.range)}` : ""}`),
      draw("rect", { ...at, fill: fills[order.get(key) % COLOURS.length][1] }),
      room(text, 1) && draw("text", { x: at.x + c.size / 2, y: at.y + r.size / 2 + (note && room(note, 2) ? -2 : 4), "text-anchor": "middle" }, text),
      room(text, 1) && note && room(note, 2) && draw("text", { x: at.x + c.size / 2, y: at.y + r.size / 2 + 12, "text-anchor": "middle", class: "small" }, note)));
    if (mine) marks.push(draw("rect", { ...at, class: "mark" }));
  }
  let free = -9;  // labels must not overlap
  for (const r of down.pieces) if (r.range && r.at + r.size / 2 > free + 12) {
    free = r.at + r.size / 2;
    marks.push(draw("text", { x: left - 5, y: top + free + 4, "text-anchor": "end", class: "small" }, span(r.range)));
  }
  free = -99;
  for (const c of across.pieces) if (c.range && c.at + c.size / 2 - 3.4 * span(c.range).length > free) {
    free = c.at + c.size / 2 + 3.4 * span(c.range).length;
    marks.push(draw("text", { x: left + c.at + c.size / 2, y: top - 7, "text-anchor": "middle", class: "small" }, span(c.range)));
  }
  if (state.row !== undefined) {
    const find = (list) => list.find((p) => p.range && p.range[0] <= state.row && state.row < p.range[1]);
    const put = (p) => p.at + p.size * (state.row + 0.5 - p.range[0]) / (p.range[1] - p.range[0]);
    const dim = state.dim ?? 0, hit = find(dim === rows ? down.pieces : dim === cols ? across.pieces : []);
    if (hit) marks.push(dim === rows ? draw("path", { class: "row", d: `M${left} ${top + put(hit)}h${width}` })
      : draw("path", { class: "row", d: `M${left + put(hit)} ${top}v${height}` }));
  }
  const label = `${title ?? ""} ${rec.text(index)} on ${rec.meshes[spec.mesh].text}: ${count(holders.size, "box", "boxes")}`;
  const notes = [...share.text,
    ...[[rows, down], [cols, across]].flatMap(([d, list]) => [
      list.sampled && `${MOST_PARTS} of ${whole(list.parts)} parts of dimension ${d} are drawn, beside each other`,
      list.cut && `the first ${MOST_PIECES} of ${whole(list.cut)} ranges of dimension ${d} are drawn`,
      list.empty.length > 0 && `${count(list.empty.length, "part")} of dimension ${d} ${list.empty.length === 1 ? "is" : "are"} empty`])].filter(Boolean);
  return el("figure", {}, el("figcaption", {}, title && [el("strong", {}, title), " "], code(rec.text(index)), ` on ${rec.meshes[spec.mesh].text}`),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Drawing of ${title ?? "the tensor"}` },
      picture(label, left + width + 6, top + height + 6, fills.map(([defs]) => defs), boxes, marks)),
    el("p", { class: "note" }, rows === undefined ? "One number. " : cols === undefined ? `Dimension ${rows} runs down. `
      : `Dimension ${rows} runs down, dimension ${cols} across, each to its own scale. `, notes.length > 0 && `${notes.join("; ")}.`));
}

const rank_link = (rank, values) => link(`rank ${rank}`, "rank", { rank, op: state.op, ...values });
function held_table(rec, index) {
  const spec = rec.specs[index], mesh = rec.meshes[spec.mesh], all = bytes_by_rank(rec, index);
  const step = Math.max(1, Math.ceil(mesh.size / MOST_PARTS)), places = [];
  for (let place = 0; place < mesh.size; place += step) places.push(place);
  return el("details", {}, el("summary", {}, "The same as a table"),
    table(step > 1 ? `Each ${step}th of ${whole(mesh.size)} ranks` : "Ranks and what they hold",
      ["Rank", "Place", ...spec.shape.map((_, d) => `Dimension ${d}`), "#Elements", "#Memory"], places.map((place) => {
        const rank = rec.rank_at(mesh, place), box = box_of(rec, spec, rank);
        return [rank_link(rank), coordinate_text(mesh, coordinate(mesh, place)), ...box.map(spans), whole(elements(box)), bytes(all[rank])];
      })));
}
function axes_table(rec, spec) {
  const { partial } = axes_of(rec, spec), mesh = rec.meshes[spec.mesh];
  return table("What each axis of the mesh does", ["Axis", "#Ranks", "Effect"], mesh.axes.map((axis, a) => {
    const d = spec.dims.findIndex((k) => rec.dims[k].axes?.includes(a));
    const lengths = d < 0 ? [] : [...new Set(parts_of(rec.dims[spec.dims[d]]).map(length_of))].sort((x, y) => y - x);
    return [axis.name, whole(axis.size), partial.has(a) ? `each rank holds a term of the ${partial.get(a)}` : d < 0 ? "each rank holds a copy"
      : `splits dimension ${d} (parts of ${lengths.slice(0, 3).map(whole).join(", ")}${lengths.length > 3 ? ", ..." : ""})`];
  }));
}
// The answer to "which ranks hold index `row` of dimension `dim`".
function row_answer(rec, index, dim, row) {
  const spec = rec.specs[index];
  if (!(row < spec.shape[dim])) return `Dimension ${dim} has ${count(spec.shape[dim], "index", "indices")}: 0 to ${whole(spec.shape[dim] - 1)}.`;
  const parts = parts_of(rec.dims[spec.dims[dim]]).map((list) => list.some(([lo, hi]) => lo <= row && row < hi));
  const ranks = [...holders_of(rec, spec, dim, undefined)].filter(([key]) => parts[parseInt(key)]).flatMap(([, r]) => r).sort((a, b) => a - b);
  const what = spec.shape.length > 1 ? `Index ${row} of dimension ${dim}` : `Element ${row}`;
  return `${what} lies on ${ranks.length === rec.world ? `all ${count(ranks.length, "rank")}` : `${ranks.length === 1 ? "rank" : `${count(ranks.length, "rank")}:`} ${ranges(ranks)}`}` +
    `${spec.partials?.length ? ", as terms of a sum" : ""}.`;
}
function rank_answer(rec, index) {
  const spec = rec.specs[index], box = box_of(rec, spec, state.rank), mesh = rec.meshes[spec.mesh];
  if (!box) return el("span", {}, rank_link(state.rank), ` is not in the mesh ${mesh.text}, and holds nothing of it.`);
  return el("span", {}, rank_link(state.rank), ` (${coordinate_text(mesh, coordinate(mesh, rec.place_of(mesh, state.rank)))}) holds `,
    box.length ? box.map((list, d) => `${d ? "; " : ""}dimension ${d}: ${spans(list)}`) : "the number",
    `. ${count(elements(box), "element")}, `, bytes(bytes_by_rank(rec, index)[state.rank]), ".");
}
function matrix(rec, move) {
  const rows = needed(rec, rec.specs[move.from], rec.specs[move.to]);
  if (!rows) return el("p", { class: "note" }, "Who sends to whom is shown for moves without partial values, of up to 64 ranks.");
  const largest = Math.max(...rows.flat());
  if (!largest) return el("p", {}, "Each rank has what it needs: nothing has to be sent.");
  return [el("p", { class: "note" }, "Elements that each rank needs and lacks, below the nearest rank that has them. No plan can send a rank less than its row’s sum."),
    table("Elements needed", ["To \\ from", ...rows.map((_, r) => `#${r}`), "#Sum"], rows.map((row, r) => [`rank ${r}`,
      ...row.map((n) => n ? el("span", { class: "heat", style: `--heat:${(15 + 45 * n / largest).toFixed(0)}%` }, whole(n)) : ""),
      whole(row.reduce((a, b) => a + b))]))];
}

function tensor_view({ rec, run }) {
  const move = rec.moves[state.move], parameter = rec.parameters[state.param];
  const index = move ? move.to : parameter ? parameter.spec : state.spec ?? 0, spec = rec.specs[index];
  if (!spec) return [el("h1", {}, "Tensor"), el("p", {}, "This record has no tensors.")];
  const dims = spec.shape.map((n, d) => [d, `dimension ${d} (${whole(n)})`]), dim = Math.min(state.dim ?? 0, spec.shape.length - 1);
  const answer = el("p", { role: "status" }), figures = el("div", { class: "figures" });
  const update = () => {
    figures.replaceChildren(...(move ? [tensor_figure(rec, move.from, "Before"), tensor_figure(rec, move.to, "After")] : [tensor_figure(rec, index)]));
    answer.textContent = state.row === undefined || !dims.length ? ""
      : `${move ? "After the move: " : ""}${row_answer(rec, index, dim, state.row)}`;
  };
  const number = (e) => e.target.value === "" ? undefined : Math.max(0, Math.floor(Number(e.target.value)));
  update();
  return [
    el("h1", {}, move ? "A move" : parameter ? parameter.name : "A tensor"),
    state.op !== undefined && el("p", {}, "At ", operator_link(rec, run.operators[state.op], state.op), "."),
    el("div", { class: "controls" },
      dims.length > 0 && labelled("Which rank holds row", el("input", { id: "row", type: "number", min: 0, max: spec.shape[dim] - 1, value: state.row,
        input: (e) => { adjust({ row: number(e) }); update(); } })),
      dims.length > 1 && labelled("of", choice("dim", dims, dim, (d) => go({ dim: d }))),
      labelled("Show rank", el("input", { id: "rank", type: "number", min: 0, max: rec.world - 1, value: state.rank, change: (e) => go({ rank: number(e) }) })),
      dims.length > 2 && [labelled("Down", choice("rows", dims, state.rows ?? chosen_dims(rec, spec)[0], (d) => go({ rows: d }))),
        labelled("Across", choice("cols", dims, state.cols ?? chosen_dims(rec, spec)[1], (d) => go({ cols: d })))]),
    answer, figures,
    state.rank !== undefined && (move ? [["Before: ", move.from], ["After: ", move.to]] : [["", index]]).map(([when, k]) =>
      el("p", { class: "answer" }, when, rank_answer(rec, k))),
    move ? [steps_table(rec, move), el("h2", {}, "Who needs what from whom"), matrix(rec, move)] : axes_table(rec, spec),
    held_table(rec, index),
  ];
}

function tensors_view({ rec }) {
  const list = el("ul", { class: "plain" }), said = el("p", { role: "status", class: "note" });
  const update = () => {
    const words = (state.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (text) => words.every((w) => text.toLowerCase().includes(w));
    const parameters = rec.parameters.map((p, i) => [p, i]).filter(([p]) => fits(`${p.name} ${rec.text(p.spec)}`));
    said.textContent = `${whole(parameters.length)} of ${count(rec.parameters.length, "parameter")}.`;
    list.replaceChildren();
    long(parameters, 100, ([p, i]) => el("li", {}, link(p.name, "tensor", { param: i }), " ", code(rec.text(p.spec)), ` on ${rec.meshes[rec.specs[p.spec].mesh].text}, `,
      bytes(rec.specs[p.spec].bytes)), list);
  };
  update();
  const specs = el("ul", { class: "plain" });
  long(rec.specs.map((_, i) => i), 100, (i) => el("li", {}, spec_link(rec, i), ` on ${rec.meshes[rec.specs[i].mesh].text}`), specs);
  return [el("h1", {}, "Tensors"),
    rec.parameters.length > 0 && [el("h2", {}, "Parameters"), el("div", { class: "controls" }, labelled("Search", el("input", { id: "search", type: "search", value: state.q ?? "",
      input: (e) => { adjust({ q: e.target.value }); update(); } }))), said, list],
    el("h2", {}, "Every shape and layout in the record"), specs];
}
