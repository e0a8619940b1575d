// SPDX-License-Identifier: Apache-2.0
// The part of a tensor that each rank holds, from its spec alone.

function coordinate(mesh, place) {
  const at = new Array(mesh.axes.length);
  for (let a = at.length - 1; a >= 0; --a) {
    at[a] = place % mesh.axes[a].size;
    place = Math.floor(place / mesh.axes[a].size);
  }
  return at;
}
const place_at = (mesh, at) => mesh.axes.reduce((n, axis, a) => n * axis.size + at[a], 0);
const coordinate_text = (mesh, at) => mesh.axes.map((axis, a) => `${axis.name} ${at[a]}`).join(", ");

// The half-open ranges of each part of a dimension.
const parts_memory = new WeakMap();
function parts_of(dim) {
  let parts = parts_memory.get(dim);
  if (parts) return parts;
  if (dim.parts) parts = dim.parts;
  else if (!dim.axes?.length) parts = [[[0, dim.size]]];
  else {
    parts = [];
    let at = 0;
    for (const [size, times] of dim.runs)
      for (let i = 0; i < times; ++i, at += size) parts.push([[at, at + size]]);
  }
  parts_memory.set(dim, parts);
  return parts;
}
const length_of = (list) => list.reduce((n, [lo, hi]) => n + Math.max(0, hi - lo), 0);
const overlap = (a, b) => a.reduce((n, [lo, hi]) => n + b.reduce(
  (m, [l, h]) => m + Math.max(0, Math.min(hi, h) - Math.max(lo, l)), 0), 0);

// Whether the record says which rank has which part: of thousands of pieces, it does not.
const is_listed = (rec, spec) => spec.dims.every((d) => {
  const dim = rec.dims[d];
  return !dim.axes?.length || dim.runs || dim.parts;
});
// The part of dimension d that the rank at a coordinate has.
function part_index(rec, spec, d, at) {
  const dim = rec.dims[spec.dims[d]];
  if (!dim.axes?.length) return 0;
  const axes = dim.parts ? [...dim.axes].sort((a, b) => a - b) : dim.axes;
  return axes.reduce((n, a) => n * rec.meshes[spec.mesh].axes[a].size + at[a], 0);
}
// The ranges of each dimension that a rank of the run holds, or null if it is not in the mesh.
function box_of(rec, spec, rank) {
  const mesh = rec.meshes[spec.mesh], place = rec.place_of(mesh, rank);
  if (place < 0 || !is_listed(rec, spec)) return null;
  const at = coordinate(mesh, place);
  return spec.dims.map((d, i) => parts_of(rec.dims[d])[part_index(rec, spec, i, at)]);
}
const elements = (box) => box ? box.reduce((n, list) => n * length_of(list), 1) : 0;
// Bytes of one element: a spec's bytes are those of the largest part.
function element_bytes(rec, spec) {
  const largest = spec.dims.reduce((n, d) => n * Math.max(...parts_of(rec.dims[d]).map(length_of)), 1);
  return largest ? spec.bytes / largest : 0;
}
// Bytes of a tensor on each rank of the run; those of the largest part if the parts are not listed.
function bytes_by_rank(rec, index) {
  return rec.once(`bytes ${index}`, () => {
    const spec = rec.specs[index], mesh = rec.meshes[spec.mesh], all = new Float64Array(rec.world);
    if (!is_listed(rec, spec)) {
      for (let place = 0; place < mesh.size; ++place) all[rec.rank_at(mesh, place)] = spec.bytes;
      return all;
    }
    const one = element_bytes(rec, spec);
    const lengths = spec.dims.map((d) => parts_of(rec.dims[d]).map(length_of));
    for (let place = 0; place < mesh.size; ++place) {
      const at = coordinate(mesh, place);
      all[rec.rank_at(mesh, place)] =
        lengths.reduce((n, parts, d) => n * parts[part_index(rec, spec, d, at)], one);
    }
    return all;
  });
}
// The share of an operator's outputs that is new memory: a view of another tensor is
// not. `makes` is measured on the rank that ran.
function made_share(rec, run, op) {
  const here = (rec.call(op)?.out ?? []).reduce((n, i) => n + (bytes_by_rank(rec, i)[run.rank] ?? 0), 0);
  return here ? op.makes / here : 1;
}
// Axes of a spec's mesh by what they do to it.
function axes_of(rec, spec) {
  const split = new Set(spec.dims.flatMap((d) => rec.dims[d].axes ?? []));
  const partial = new Map((spec.partials ?? []).map((p) => [p.axis, p.op]));
  const copies = rec.meshes[spec.mesh].axes.map((_, a) => a).filter((a) => !split.has(a) && !partial.has(a));
  return { partial, copies };
}
// Elements that each rank lacks of `to`, by the rank that holds them in `from`: of
// several holders, the one whose coordinates differ least. Null if parts have to be
// combined, or for many ranks. No plan can send less than the sums of the rows.
function needed(rec, from, to, most = 64) {
  if (from.partials?.length || to.partials?.length || rec.world > most) return null;
  if (!is_listed(rec, from) || !is_listed(rec, to)) return null;
  const source = rec.meshes[from.mesh], holders = new Map();
  for (let place = 0; place < source.size; ++place) {
    const at = coordinate(source, place), key = from.dims.map((_, d) => part_index(rec, from, d, at)).join();
    if (!holders.has(key)) holders.set(key, []);
    holders.get(key).push({ rank: rec.rank_at(source, place), at });
  }
  return Array.from({ length: rec.world }, (_, rank) => {
    const row = new Array(rec.world).fill(0), want = box_of(rec, to, rank);
    if (!want) return row;
    const place = rec.place_of(source, rank), me = place < 0 ? null : coordinate(source, place);
    const distance = (h) => me ? h.at.filter((x, a) => x !== me[a]).length : 0;
    for (const list of holders.values()) {
      const have = box_of(rec, from, list[0].rank);
      const common = want.reduce((n, w, d) => n * overlap(w, have[d]), 1);
      if (!common || list.some((h) => h.rank === rank)) continue;
      row[list.reduce((best, h) => distance(h) < distance(best) ? h : best).rank] += common;
    }
    return row;
  });
}
