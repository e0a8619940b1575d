// SPDX-License-Identifier: Apache-2.0
// The memory of each rank, and all that one of them holds.

// Bytes on each rank of the parameters.
const parameters_by_rank = (rec) => rec.once("parameter bytes", () => rec.parameters.reduce((sum, p) => {
  bytes_by_rank(rec, p.spec).forEach((n, r) => { sum[r] += n; });
  return sum;
}, new Float64Array(rec.world)));
// Bytes on each rank of the outputs that are in use after operator `at`.
function outputs_by_rank(rec, run, at) {
  const all = new Float64Array(rec.world), shares = new Map();  // of each spec, how often it is in use
  for (const [op] of rec.alive(run, at)) {
    const share = made_share(rec, run, op);
    for (const spec of rec.call(op)?.out ?? []) shares.set(spec, (shares.get(spec) ?? 0) + share);
  }
  for (const [spec, share] of shares) bytes_by_rank(rec, spec).forEach((n, r) => { all[r] += n * share; });
  return all;
}
// Bytes of each kind of memory after operator `at`, by rank. They were counted on the
// rank that ran. Another rank has larger or smaller parts of the parameters and of the
// outputs, and as much more or less of gradients and state as of parameters.
function memory_by_rank(rec, run, at) {
  const counted = run.operators[at]?.memory ?? [], ran = run.rank;
  const parameters = parameters_by_rank(rec), outputs = outputs_by_rank(rec, run, at);
  return rec.memory_kinds.map((kind, k) => {
    const n = counted[k] ?? 0;
    const in_proportion = (r) => parameters[ran] ? n * parameters[r] / parameters[ran] : n;
    const of = { parameters: (r) => n + parameters[r] - parameters[ran], gradients: in_proportion,
      state: in_proportion, activations: (r) => n + outputs[r] - outputs[ran] }[kind] ?? (() => n);
    return Float64Array.from({ length: rec.world }, (_, r) => of(r));
  });
}
const sum_by_rank = (rec, kinds) =>
  Float64Array.from({ length: rec.world }, (_, r) => kinds.reduce((n, kind) => n + kind[r], 0));

// All that a rank holds when an operator has run; equal tensors of equal layers are one line.
function rank_view({ rec, run, at }) {
  const rank = state.rank ?? run.rank, { mesh } = rec, place = rec.place_of(mesh, rank), op = run.operators[at];
  const parameters = rec.parameters.map((p, i) => ({ bytes: bytes_by_rank(rec, p.spec)[rank], spec: p.spec,
    key: any_layer(p.name), show: () => [link(p.name, "tensor", { param: i, rank }), " (parameter)"] }));
  const kinds = memory_by_rank(rec, run, at), ours = ranks_of_run(rec, run);
  const outputs = rec.alive(run, at).flatMap(([o, i]) => (rec.call(o)?.out ?? []).map((spec, k) => ({
    bytes: bytes_by_rank(rec, spec)[rank] * made_share(rec, run, o), spec,
    key: `${k} ${o.call} ${o.phase} ${any_layer(rec.path(o))}`, show: () => operator_link(rec, o, i) })));
  const size = (group) => group.length * group[0].bytes, held = [...parameters, ...outputs].filter((t) => t.bytes > 0);
  const groups = grouped(held, (t) => `${t.key} ${t.spec} ${t.bytes}`)
    .sort((a, b) => size(b) - size(a));
  // Beside what is listed: kinds of which no tensor is known, and moved inputs and buffers.
  const listed = groups.reduce((n, group) => n + size(group), 0);
  const known = { activations: outputs.reduce((n, t) => n + t.bytes, 0), parameters: parameters_by_rank(rec)[rank] };
  const names = { activations: "moved inputs and buffers", gathered: "gathered parameters" };
  const rest = rec.memory_kinds.map((kind, k) => [kinds[k][rank] - (known[kind] ?? 0), names[kind] ?? kind])
    .filter(([n]) => n >= 1);
  const part = (spec) => is_listed(rec, rec.specs[spec])
    ? box_of(rec, rec.specs[spec], rank).map(spans).join(" × ") || "the number" : "parts that are not listed";
  return [el("h1", {}, `Rank ${rank}`),
    el("p", {}, place >= 0 && `At ${coordinate_text(mesh, coordinate(mesh, place))} of ${mesh.text}. `,
      link("Show it in the mesh", "mesh", { rank, op: at }), "."),
    el("div", { class: "controls" }, labelled("Rank", rank_field(rec, rank))),
    op && el("p", {}, "After ", operator_link(rec, op, at), ours && !ours.has(rank)
      ? ", of another stage, it holds of these:"
      : [", it holds ", bytes(kinds.reduce((n, kind) => n + kind[rank], 0)), ": ",
        rest.map(([n, text]) => [bytes(n), ` of ${text}, `]), bytes(listed), " of these:"]),
    plain_list(groups, 100, (group) => {
      const [{ spec, bytes: one, show: name }] = group, several = group.length > 1;
      return el("li", {}, bytes(size(group)), " ", bar(size(group) / size(groups[0])), " ",
        several && [`${whole(group.length)} × `, bytes(one), ": "], name(),
        several && " and the like in other layers", ", ",
        link(rec.text(spec), "tensor", { spec, rank, op: at }), ": ", part(spec));
    }),
    run.rank !== rank && el("p", { class: "note" },
      `Rank ${run.rank} ran, and its memory was counted; that of rank ${rank} follows from it.`)];
}
