// SPDX-License-Identifier: Apache-2.0
// A record as docs/record.md describes it, with what the views look up in it.

class Rec {
  constructor(json) {
    if (json.version > 1) throw new Error(`its version is ${json.version}, and the page reads version 1`);
    const lists = ["meshes", "dims", "specs", "moves", "calls", "events", "paths", "phases", "runs", "parameters",
      "collectives", "pictures", "memory_kinds", "refused"];
    for (const name of lists) this[name] = json[name] ?? [];
    this.totals = json.totals ?? {};
    for (const name of ["title", "program", "command", "library", "prices", "machine"]) this[name] = json[name] ?? "";
    for (const mesh of this.meshes) mesh.size = mesh.axes.reduce((n, axis) => n * axis.size, 1);
    this.mesh = this.meshes[json.mesh ?? 0] ?? { text: "one rank", axes: [], size: 1 };
    this.world = this.meshes.reduce(
      (n, mesh) => mesh.ranks ? mesh.ranks.reduce((m, r) => Math.max(m, r + 1), n) : Math.max(n, mesh.size), 1);
    this.runs.forEach((run) => run.operators ??= []);
    this.remembered = new Map();
  }
  // compute() the first time, then the same again.
  once(key, compute) {
    if (!this.remembered.has(key)) this.remembered.set(key, compute());
    return this.remembered.get(key);
  }

  call(op) { return this.calls[op.call]; }
  name(op) { return this.call(op)?.op ?? op.move ?? op.kernel ?? "move"; }
  path(op) { return this.paths[op.path] ?? ""; }
  phase(op) { return this.phases[op.phase] ?? ""; }
  events_of(op) { return (op.sends ?? []).map((i) => this.events[i]); }
  sent(op) { return this.events_of(op).reduce((n, e) => n + e.bytes, 0); }
  sent_us(op) { return this.events_of(op).reduce((n, e) => n + e.us, 0); }
  work_us(op) { return this.call(op)?.work_us ?? 0; }
  axes(mesh, axes) {
    return axes?.length ? axes.map((a) => this.meshes[mesh]?.axes[a]?.name ?? a).join(",") : "between meshes";
  }
  shape(spec) { return `${spec.dtype}[${spec.shape.join(", ")}]`; }
  text(index) {
    const spec = this.specs[index];
    return spec ? `${this.shape(spec)} (${spec.layout})` : "?";
  }
  // A layout's text, without the list of pieces that a zig-zag has.
  layout(index) {
    const text = this.specs[index]?.layout || "R";
    return text.length > 22 ? text.replace(/\([^()]{8,}\)/g, "(...)") : text;
  }
  // "P⇒R · R,S1 → S0,S1": inputs as given, where they were moved to, and outputs. Of a
  // move that no operator made, the first two tensors.
  layouts(op) {
    const call = this.call(op), moves = op.moves ?? [];
    if (!call) return moves.slice(0, 2).map((m) => this.change(m)).join(" · ") +
      (moves.length > 2 ? ` and ${moves.length - 2} more` : "");
    return this.once(call, () => {
      const inputs = (call.in ?? []).map((i, k) => {
        const to = call.to?.[k] ?? i;
        return to === i ? this.layout(i) : `${this.layout(i)}⇒${this.layout(to)}`;
      });
      return `${inputs.join(" · ")} → ${(call.out ?? []).map((i) => this.layout(i)).join(" · ")}`;
    });
  }
  // The same with shapes and dtypes.
  tensors(op) {
    const call = this.call(op), texts = (list) => (list ?? []).map((i) => this.text(i)).join(", ");
    return call && `${texts(call.in)} → ${texts(call.out)}`;
  }
  change(move) { return `${this.layout(this.moves[move].from)} ⇒ ${this.layout(this.moves[move].to)}`; }
  // The moves of an operator's inputs, and those that were made meanwhile or without an
  // operator: [the input's number or undefined, index into moves].
  moves_of(op) {
    return [...(this.call(op)?.moves ?? []).map((m, i) => [i, m]).filter(([, m]) => m !== null && m !== undefined),
      ...(op.moves ?? []).map((m) => [undefined, m])];
  }
  // The operators whose outputs are in use after operator `at`, without those of
  // their outputs that are not: they were freed by `until`, or one of `frees`.
  alive(run, at) {
    return run.operators.map((op, i) => [op, i]).filter(
      ([op, i]) => i <= at && op.makes > 0 && (op.until === undefined || op.until > at)).map(([op, i]) => {
      const freed = (op.frees ?? []).reduce((n, [by, bytes]) => n + (by <= at ? bytes : 0), 0);
      return [freed ? { ...op, makes: op.makes - freed } : op, i];
    });
  }
  // The operators that made the partial sums that operator i combines, as indices.
  sums_taken(run, i) {
    const op = run.operators[i], call = this.call(op), partials = (spec) => this.specs[spec].partials?.length ?? 0;
    return [...new Set((op.sums ?? []).filter(([k]) => partials(call.to[k]) < partials(call.in[k]))
      .map(([, by]) => this.origin(run, by)))];
  }
  // The operator that made a sum which operator i has or hands on, such as a scaling.
  origin(run, i) {
    const op = run.operators[i], call = this.call(op);
    const handed_on = (op.sums ?? []).filter(([k]) => call.to[k] === call.in[k]);
    return handed_on.length === 1 ? this.origin(run, handed_on[0][1]) : i;
  }
  // The reverse: the operators that combine the sum that operator i made.
  sums_left(run, i) {
    return this.once(`sums ${this.runs.indexOf(run)}`, () => {
      const left = new Map();
      run.operators.forEach((_, taker) => {
        for (const by of this.sums_taken(run, taker)) left.set(by, [...left.get(by) ?? [], taker]);
      });
      return left;
    }).get(i) ?? [];
  }
  memory(op) { return (op.memory ?? []).reduce((n, m) => n + m, 0); }
  peak(run) {
    return this.once(run, () => run.operators.reduce(
      (best, op, i) => this.memory(op) > this.memory(run.operators[best]) ? i : best, 0));
  }
  // The ranks of the run at a mesh's places, and the reverse.
  rank_at(mesh, place) { return mesh.ranks ? mesh.ranks[place] : place; }
  place_of(mesh, rank) {
    if (!mesh.ranks) return rank < mesh.size ? rank : -1;
    return this.once(mesh, () => new Map(mesh.ranks.map((r, i) => [r, i]))).get(rank) ?? -1;
  }
}

// Items with equal keys, together: lists in the order of their first items.
function grouped(items, key) {
  const groups = new Map();
  for (const item of items) {
    const k = key(item);
    if (groups.has(k)) groups.get(k).push(item);
    else groups.set(k, [item]);
  }
  return [...groups.values()];
}
// "blocks.*.attn" of any layer's path.
const any_layer = (path) => path.replace(/(^|\.)\d+(?=\.|$)/g, "$1*");

const records_in_page = () => [...document.querySelectorAll("script.record")].map((s) => JSON.parse(s.textContent));
