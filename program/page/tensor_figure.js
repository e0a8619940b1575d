// SPDX-License-Identifier: Apache-2.0
// A tensor's boxes to scale on two of its dimensions, and the ranks that hold them.

const MOST_PARTS = 64, MOST_PIECES = 256;
const FIGURE = { left: 92, top: 22, width: 420 };

// The pieces of dimension d over so many pixels: the ranges of its parts side by side,
// or those of a sample of the parts if there are many.
function drawn_parts(rec, spec, d, pixels) {
  if (d === undefined) return { pieces: [{ part: 0, at: 0, size: pixels }], notes: [] };
  const parts = parts_of(rec.dims[spec.dims[d]]), sampled = parts.length > MOST_PARTS;
  const chosen = sampled ? Array.from({ length: MOST_PARTS }, (_, i) => Math.floor(i * parts.length / MOST_PARTS))
    : parts.map((_, i) => i);
  const all = chosen.flatMap((part) => parts[part].filter(([lo, hi]) => hi > lo).map((range) => ({ part, range })))
    .sort((a, b) => a.range[0] - b.range[0]);
  const pieces = all.slice(0, MOST_PIECES), total = length_of(pieces.map((p) => p.range)) || 1;
  let at = 0;
  for (const p of pieces) {
    p.at = at;
    at += p.size = pixels * length_of([p.range]) / total;
  }
  const empty = parts.filter((part) => !length_of(part)).length;
  return { pieces, notes: [
    sampled && `${MOST_PARTS} of ${whole(parts.length)} parts of dimension ${d} are drawn, beside each other`,
    all.length > MOST_PIECES && `the first ${MOST_PIECES} of ${whole(all.length)} ranges of dimension ${d} are drawn`,
    empty > 0 && `${count(empty, "part")} of dimension ${d} ${empty === 1 ? "is" : "are"} empty`].filter(Boolean) };
}
// The dimensions to draw, down and across: those that are split, then the longest.
function chosen_dims(rec, spec) {
  const split = (d) => rec.dims[spec.dims[d]].axes?.length ? 1 : 0;
  const order = spec.shape.map((_, d) => d)
    .sort((a, b) => split(b) - split(a) || spec.shape[b] - spec.shape[a] || a - b);
  return order.slice(0, 2).sort((a, b) => a - b);
}
// The same, unless somebody chose others.
function drawn_dims(rec, spec) {
  const [first, second] = chosen_dims(rec, spec), valid = (d, other) => d < spec.shape.length ? d : other;
  const rows = valid(state.rows, first), cols = valid(state.cols, second);
  return [rows, cols === rows ? (rows === first ? second : first) : cols];
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
// How the ranks of one box share it: copies, partial sums, other dimensions.
function sharing(rec, spec, rows, cols) {
  const { partial, copies } = axes_of(rec, spec), axes = rec.meshes[spec.mesh].axes, terms = [...partial.keys()];
  const others = spec.dims.flatMap((d, i) => i === rows || i === cols ? [] : rec.dims[d].axes ?? []);
  const size = (list) => list.reduce((n, a) => n * axes[a].size, 1);
  const along = (list) => `${whole(size(list))} ranks along ${list.map((a) => axes[a].name).join(", ")} hold`;
  const ops = [...new Set(partial.values())].join(", ");
  return { terms: size(terms), copies: size(copies), notes: [
    size(terms) > 1 && `${along(terms)} a term each; the value is their ${ops} (lines)`,
    size(copies) > 1 && `${along(copies)} a copy each (dots)`,
    size(others) > 1 && `${along(others)} parts along a dimension that is not drawn`].filter(Boolean) };
}

// A click on a box of several ranks chooses one after the other.
const next_rank = (ranks) => ranks[(ranks.indexOf(state.rank) + 1) % ranks.length];

// One box: a rectangle, its ranks if there is room, and the same as a tooltip.
function box_shape(r, c, ranks, note, fill, dims) {
  const at = { x: FIGURE.left + c.at, y: FIGURE.top + r.at, width: c.size, height: r.size };
  const name = `${ranks.length === 1 ? "rank" : "ranks"} ${ranges(ranks, 3)}`;
  const where = [r, c].map((p, i) => p.range ? `; dimension ${dims[i]}: ${span(p.range)}` : "").join("");
  const room = (text, lines) => c.size > 6.2 * text.length && r.size > 13 * lines;
  const two = note && room(name, 2) && room(note, 2), middle = at.y + r.size / 2;
  const line = (text, y, kind) =>
    draw("text", { x: at.x + c.size / 2, y, "text-anchor": "middle", class: kind }, text);
  const choose = () => go({ rank: next_rank(ranks) });
  return draw("g", { class: "box", click: choose, "data-ranks": ranks.join(" ") },
    draw("title", {}, `${name}${note && `, ${note}`}${where}`), draw("rect", { ...at, fill }),
    room(name, 1) && line(name, middle + (two ? -2 : 4)), two && line(note, middle + 12, "small"),
    ranks.includes(state.rank) && draw("rect", { ...at, class: "mark", fill: "none" }));
}
// The ranges beside the boxes, where they do not overlap.
function range_labels(down, across) {
  const { left, top } = FIGURE, labels = [];
  let free = -9;
  for (const { range, at, size } of down.pieces) if (range && at + size / 2 > free + 12) {
    free = at + size / 2;
    labels.push(draw("text", { x: left - 5, y: top + free + 4, "text-anchor": "end", class: "small" }, span(range)));
  }
  free = -99;
  for (const { range, at, size } of across.pieces) {
    const middle = at + size / 2, half = range && 3.4 * span(range).length;
    if (!range || middle - half < free) continue;
    free = middle + half;
    labels.push(draw("text", { x: left + middle, y: top - 7, "text-anchor": "middle", class: "small" }, span(range)));
  }
  return labels;
}
// A line at the index that somebody asked for.
function row_mark(rows, cols, down, across, height) {
  const { left, top, width } = FIGURE, dim = state.dim ?? 0;
  const pieces = dim === rows ? down.pieces : dim === cols ? across.pieces : [];
  const hit = pieces.find((p) => p.range && p.range[0] <= state.row && state.row < p.range[1]);
  if (!hit) return null;
  const at = hit.at + hit.size * (state.row + 0.5 - hit.range[0]) / length_of([hit.range]);
  const d = dim === rows ? `M${left} ${top + at}h${width}` : `M${left + at} ${top}v${height}`;
  return draw("path", { class: "row", d });
}

function tensor_figure(rec, index, title) {
  const spec = rec.specs[index], dims = drawn_dims(rec, spec), [rows, cols] = dims, { left, top, width } = FIGURE;
  const length = (d) => Math.max(1, spec.shape[d]);
  const ratio = cols === undefined ? 0.6 : length(rows) / length(cols);
  const height = Math.max(96, Math.min(width, width * ratio));
  const down = drawn_parts(rec, spec, rows, height), across = drawn_parts(rec, spec, cols, width);
  const holders = holders_of(rec, spec, rows, cols), share = sharing(rec, spec, rows, cols);
  const style = (share.terms > 1 ? 1 : 0) + (share.copies > 1 ? 2 : 0);
  const fills = COLOURS.map((colour) => pattern(colour, style));
  const order = new Map([...holders].sort((a, b) => a[1][0] - b[1][0]).map(([key], i) => [key, i]));
  const note = [share.terms > 1 && `${share.terms} terms`, share.copies > 1 && `${share.copies} copies`]
    .filter(Boolean).join(", ");
  const boxes = down.pieces.flatMap((r) => across.pieces.map((c) => {
    const key = `${r.part},${c.part}`;
    return box_shape(r, c, holders.get(key) ?? [], note, fills[order.get(key) % COLOURS.length][1], dims);
  }));
  const on = `on ${rec.meshes[spec.mesh].text}`;
  const label = `${title ?? ""} ${rec.text(index)} ${on}: ${count(holders.size, "box", "boxes")}`;
  const notes = [...share.notes, ...down.notes, ...across.notes];
  return el("figure", {},
    el("figcaption", {}, title && [el("strong", {}, title), " "], code(rec.text(index)), " ", on),
    scrolled(`Drawing of ${title ?? "the tensor"}`, picture(label, left + width + 6, top + height + 6,
      fills.map(([defs]) => defs), boxes, range_labels(down, across), row_mark(rows, cols, down, across, height))),
    el("p", { class: "note" }, rows === undefined ? "One number. "
      : cols === undefined ? `Dimension ${rows} runs down. `
      : `Dimension ${rows} runs down, dimension ${cols} across, each to its own scale. `,
    notes.length > 0 && `${notes.join("; ")}.`));
}
