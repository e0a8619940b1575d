// SPDX-License-Identifier: Apache-2.0
// Which view shows: its state is in the address after "#", so that each state has a
// link and the back button works.

const VIEWS = {
  overview: ["Overview", overview_view],
  program: ["Program", program_view],
  tensors: ["Tensors", tensors_view],
  mesh: ["Mesh", mesh_view],
  memory: ["Memory", memory_view],
  totals: ["Totals", totals_view],
  pictures: ["Pictures", pictures_view, (records) => records.some((r) => r.pictures.length)],
  compare: ["Compare", compare_view, (records) => records.length > 1],
  operator: ["Operator", operator_view, () => false],
  tensor: ["Tensor", tensor_view, () => false],
  rank: ["Rank", rank_view, () => false],
};
const PARENTS = { operator: "program", tensor: "tensors", rank: "mesh" };
// Members of the state that are whole numbers.
const NUMBERS = ["r", "run", "op", "spec", "param", "move", "rank", "dim", "row", "rows", "cols"];

let records = [];
let shown = "";  // the view that is on the screen
let instead = "There is no record in this page.";

function state_of(hash) {
  const state = Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
  for (const name of NUMBERS) {
    const value = Number(state[name]);
    if (Number.isInteger(value) && value >= 0 && state[name] !== undefined) state[name] = value;
    else delete state[name];
  }
  if (!Object.hasOwn(VIEWS, state.view ?? "")) state.view = "overview";
  return state;
}
let state = state_of("");
function hash_of(values) {
  const kept = Object.entries(values).filter(([, v]) => v !== undefined && v !== null && v !== "" && v !== false);
  return `#${new URLSearchParams(kept)}`;
}
// The address of another view, of the same record and run.
const to = (view, values = {}) => hash_of({ view, r: state.r, run: state.run, ...values });
const link = (text, view, values, attributes) => el("a", { href: to(view, values), ...attributes }, text);
// Changes this view's state: a new step for the back button, or, while somebody types
// or drags, the same step.
const go = (changes) => { location.hash = hash_of({ ...state, ...changes }); };
function adjust(changes) {
  state = { ...state, ...changes };
  try {
    history.replaceState(null, "", hash_of(state));
  } catch {
    // Browsers limit how often; the next change has the whole state again.
  }
}

// The state, with the record and the run that it means; indices that do not exist are gone.
function context() {
  if (!(state.r < records.length)) delete state.r;
  const rec = records[state.r ?? 0];
  if (!(state.run < rec.runs.length)) delete state.run;
  const run = rec.runs[state.run ?? 0] ?? { rank: 0, operators: [], memory: {} };
  const limits = { op: run.operators.length, spec: rec.specs.length, param: rec.parameters.length,
    move: rec.moves.length, rank: rec.world };
  for (const [name, limit] of Object.entries(limits)) if (!(state[name] < limit)) delete state[name];
  return { rec, run, at: state.op ?? rec.peak(run) };
}

function choices() {
  const list = [];
  if (records.length > 1)
    list.push(labelled("Record", choice("record", records.map((r, i) => [i, `${i + 1}: ${r.title}`]), state.r ?? 0,
      (r) => go({ r, run: undefined, op: undefined, spec: undefined, param: undefined, move: undefined }))));
  const { runs } = records[state.r ?? 0];
  if (runs.length > 1)
    list.push(labelled("Stage", choice("run",
      runs.map((run, i) => [i, `${i + 1} of ${runs.length}: rank ${run.rank}`]),
      state.run ?? 0, (run) => go({ run, op: undefined }))));
  const dropped = runs[state.run ?? 0]?.dropped;
  if (dropped > 0) list.push(`The record leaves out the last ${count(dropped, "operator")}: sums are without them.`);
  return list;
}

function render_view() {
  state = state_of(location.hash);
  const main = document.getElementById("main"), focused = document.activeElement?.id;
  const title = document.getElementById("title"), views = document.getElementById("views");
  if (!records.length) {
    main.replaceChildren(el("p", {}, instead));
    return;
  }
  const c = context(), [name, view] = VIEWS[state.view];
  title.textContent = c.rec.title;
  document.title = `${name} · ${c.rec.title}`;
  refill(document.getElementById("choices"), choices());
  const current = PARENTS[state.view] ?? state.view;
  const tabs = Object.entries(VIEWS).filter(([, [, , when]]) => !when || when(records));
  refill(views, tabs.map(([key, [text]]) =>
    el("li", {}, link(text, key, {}, { "aria-current": key === current ? "page" : undefined }))));
  refill(main, view(c));
  const here = `${state.view} ${state.r ?? 0}`;
  // The element with the focus may be gone: its successor gets it, or the new view.
  if (shown && document.activeElement === document.body)
    ((focused && document.getElementById(focused)) || main).focus({ preventScroll: true });
  if (shown && here !== shown) scrollTo(0, 0);
  shown = here;
}

// A record that lacks what a view reads must not leave an old view on the screen.
function told(work) {
  try {
    work();
  } catch (error) {
    refill(document.getElementById("main"),
      el("p", { role: "alert" }, `This page cannot show its record: ${error.message}.`));
  }
}
const render = () => told(render_view);
// Shows other records in place of those on the page: the playground calls this.
const show = (list) => told(() => {
  records = list.map((json) => new Rec(json));
  render_view();
});

// The sentence stands in the place of records while there are none.
const show_instead = (sentence) => {
  instead = sentence;
  if (!records.length) render();
};

addEventListener("hashchange", render);
addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  if (e.target.matches?.("input[type=search]") && e.target.value) return;  // the browser clears it
  if (PARENTS[state.view]) location.hash = state.view === "tensor" && state.op !== undefined
    ? to("operator", { op: state.op }) : to(PARENTS[state.view], { op: state.op });
});
globalThis.dtensor_page = { show, show_instead, el, copier, byteText };
told(() => show(records_in_page()));
