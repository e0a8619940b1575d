// SPDX-License-Identifier: Apache-2.0
// The first page: the question and the answer in brief.

function tile(name, value, note) {
  return el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value, note && el("small", {}, note)));
}
function command_box(text) {
  const shown = el("pre", { tabindex: 0 }, text);
  return el("div", { class: "command" }, shown, copier("Copy the command", shown));
}
const operator_link = (rec, op, i) => [link(`#${i} ${rec.name(op)}`, "operator", { op: i }), " ",
  el("span", { class: "path" }, rec.path(op) || "the program itself", ", ", rec.phase(op))];

// The operators that send the most; equal ones of equal layers are one row.
function senders_table(rec, run) {
  const senders = run.operators.map((op, i) => [rec.sent(op), op, i]).filter(([n]) => n > 0);
  const size = (same) => same.length * same[0][0];
  const like = (op) => `${rec.name(op)} ${any_layer(rec.path(op))} ${op.phase}`;
  const makers = (i) => rec.sums_taken(run, i).map((by) => like(run.operators[by]));
  const groups = grouped(senders, ([, op, i]) => `${like(op)} ${op.sends} ${makers(i)}`)
    .sort((a, b) => size(b) - size(a)).slice(0, 8);
  if (!groups.length) return el("p", {}, "No operator sends anything.");
  return table("Operators that send the most", ["Operator", "#Each", "#In all", "", "#Time in all", "Collectives"],
    groups.map((same) => {
      const [n, op, i] = same[0];
      return [[same.length > 1 && `${whole(same.length)} × `, operator_link(rec, op, i)], bytes(n), bytes(size(same)),
        bar(size(same) / size(groups[0])), time(same.length * rec.sent_us(op)),
        [chips(rec, op), sum_taken_note(rec, run, i)]];
    }));
}

// The strategies that a comparison refused have no record.
function refused_strategies() {
  const refused = records.flatMap((r) => r.refused);
  return refused.length > 0 && [el("h2", {}, "Strategies that cannot run"),
    el("ul", { class: "plain" }, refused.map((r) => el("li", {}, code(r.strategy), ": ", r.reason)))];
}

// The largest parameter, of those that are split if there are any.
function largest_parameter(rec) {
  const size = ({ spec }) => rec.specs[spec].shape.reduce((n, length) => n * length, 1);
  const split = ({ spec }) => rec.specs[spec].dims.some((d) => rec.dims[d].axes?.length) ? 1 : 0;
  return rec.parameters.filter(({ spec }) => is_listed(rec, rec.specs[spec]))
    .sort((a, b) => split(b) - split(a) || size(b) - size(a))[0];
}

function overview_view({ rec, run }) {
  const { totals } = rec, peak = rec.peak(run), only_moves = !rec.calls.length && rec.moves.length > 0;
  const predicted = rec.machine ? `predicted for ${rec.machine}` : "predicted", drawn = largest_parameter(rec);
  return [
    el("h1", {}, rec.title),
    rec.command && command_box(rec.command),
    el("dl", { class: "tiles" },
      tile("Mesh", rec.mesh.text, count(rec.mesh.size, "rank")),
      tile("Received", bytes(totals.bytes), "by the rank that receives the most"),
      tile("Received in all", bytes(totals.by_all), "by all ranks together"),
      tile("Communication", time(totals.communication_us), predicted),
      tile("Operators’ work", time(totals.work_us), predicted),
      tile("Peak memory", bytes(totals.peak_bytes), "of one rank"),
      tile("Operators", whole(run.operators.length), rec.runs.length > 1 ? `of ${count(rec.runs.length, "stage")}: ` +
        `those of rank ${run.rank}` : "in one step")),
    refused_strategies(),
    only_moves ? rec.moves.map((move, m) => [el("h2", {}, code(rec.text(move.from)), " to ", code(rec.layout(move.to))),
      steps_table(rec, move), el("p", {}, link("Draw it before and after", "tensor", { move: m }))])
      : [el("h2", {}, "Which operators send the most"), senders_table(rec, run)],
    run.operators.length > 8 ? el("p", {}, link("See the program", "program"), ", its modules and its operators.")
      : [el("h2", {}, "Operators"), el("ul", { class: "plain" }, run.operators.map((op, i) =>
        el("li", {}, operator_link(rec, op, i), " ", rec.layouts(op) && code(rec.layouts(op))))),
      layout_legend(rec, run.operators.map((op) => rec.layouts(op)).join(" "))],
    run.operators.length > 0 && el("p", {}, "Memory is largest after ",
      operator_link(rec, run.operators[peak], peak), ": ", bytes(rec.memory(run.operators[peak])), ". ",
      link("See what is in use there", "memory", { op: peak }), "."),
    drawn && [el("h2", {}, `Which rank holds what of ${drawn.name}`), tensor_figure(rec, drawn.spec),
      layout_legend(rec, rec.layout(drawn.spec)),
      el("p", {}, `The model has ${count(rec.parameters.length, "parameter tensor")}. `,
        link("See the others", "tensors"), ".")],
    el("p", { class: "note" }, `${rec.program} ${rec.library && `with dtensor ${rec.library}`}. `,
      rec.prices && `Times follow the prices${rec.machine && ` of ${rec.machine}`}: ${rec.prices}. `,
      rec.machine === "CPU ranks" && ["Those of GPUs are taken with ", code("--cost h100"), "."]),
  ];
}

function pictures_view({ rec }) {
  return [el("h1", {}, "Pictures"), rec.pictures.length ? rec.pictures.map((p) => el("figure", {},
    el("img", { src: `data:image/svg+xml,${encodeURIComponent(p.svg)}`, alt: p.title ?? p.name }),
    el("figcaption", {}, p.title ?? p.name))) : el("p", {}, "This record has no pictures.")];
}
