// The first page: the question and the answer in brief.

function tile(name, value, note) {
  return el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value, note && el("small", {}, note)));
}
function copied(text) {
  const said = el("span", { role: "status" });
  const copy = () => navigator.clipboard.writeText(text).then(
    () => { said.textContent = "Copied."; }, () => { said.textContent = "The browser did not allow it."; });
  return el("div", { class: "command" }, el("pre", { tabindex: 0 }, text),
    el("button", { type: "button", click: copy }, "Copy the command"), said);
}
const operator_link = (rec, op, i) => [link(`#${i} ${rec.name(op)}`, "operator", { op: i }), " ",
  el("span", { class: "path" }, rec.path(op) || "the program itself", ", ", rec.phase(op))];

function overview_view({ rec, run }) {
  const { totals } = rec, most = rec.most(run), peak = rec.peak(run);
  const senders = run.operators.map((op, i) => [rec.sent(op), op, i]).filter(([n]) => n > 0)
    .sort((a, b) => b[0] - a[0]).slice(0, 5);
  const largest = senders[0]?.[0];
  return [
    el("h1", {}, rec.title),
    rec.command && copied(rec.command),
    el("dl", { class: "tiles" },
      tile("Mesh", rec.mesh.text, count(rec.mesh.size, "rank")),
      tile("Received", bytes(totals.bytes), "by the rank that receives the most"),
      tile("Communication", time(totals.communication_us), "predicted"),
      tile("Operators’ work", time(totals.work_us), "predicted"),
      tile("Peak memory", bytes(totals.peak_bytes), "of one rank"),
      tile("Operators", whole(run.operators.length), rec.runs.length > 1 ? `of ${count(rec.runs.length, "stage")}: ` +
        `those of rank ${run.rank}` : "in one step")),
    el("h2", {}, "Which operators send the most"),
    most < 0 ? el("p", {}, "No operator sends anything.")
      : table("Operators that send the most", ["Operator", "#Received", "", "#Time", "Collectives"],
        senders.map(([n, op, i]) => [operator_link(rec, op, i), bytes(n), bar(n / largest), time(rec.sent_us(op)),
          chips(rec, op)])),
    run.operators.length > 0 && el("p", {}, "Memory is largest after ",
      operator_link(rec, run.operators[peak], peak), ": ", bytes(rec.memory(run.operators[peak])), ". ",
      link("See what is in use there", "memory", { op: peak }), "."),
    rec.parameters.length > 0 && el("p", {}, `The model has ${count(rec.parameters.length, "parameter tensor")}. `,
      link("See which rank holds which rows", "tensors"), "."),
    el("p", { class: "note" }, `${rec.program} ${rec.library && `with dtensor ${rec.library}`}. `,
      rec.prices && `Times follow the prices: ${rec.prices}`),
  ];
}

function pictures_view({ rec }) {
  return [el("h1", {}, "Pictures"), rec.pictures.length ? rec.pictures.map((p) => el("figure", {},
    el("img", { src: `data:image/svg+xml,${encodeURIComponent(p.svg)}`, alt: p.title ?? p.name }),
    el("figcaption", {}, p.title ?? p.name))) : el("p", {}, "This record has no pictures.")];
}
