// SPDX-License-Identifier: Apache-2.0
// The form of the playground: what a person asks is in the address before "#", and the
// answer replaces the records of the page. playground.h says what the server answers.
const { show, show_instead, el, copier, byteText } = globalThis.dtensor_page;
const { tabs } = JSON.parse(document.getElementById("form").textContent);
const PAUSE = 150;  // ms without typing before a question is asked
const client = Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("");

let tab = tabs[0];
let values = {};  // by a field's name: the texts that are given
let records = [];
let asked = null;  // the question on its way
let timer = 0;

const field_of = (name) => tab.fields.find((f) => f.name === name);
const is_switch = (field) => field.type === "";
// A field whose name begins with "_" is for this page alone.
const is_flag = (field) => !field.name.startsWith("_");
const given = (name) => values[name]?.[0] ?? "";

function initial(which) {
  return Object.fromEntries(which.fields.filter((f) => f.value !== undefined).map((f) => [f.name, [f.value].flat()]));
}
function read_address() {
  const query = new URLSearchParams(location.search);
  tab = tabs.find((t) => t.id === query.get("tab")) ?? tabs[0];
  values = Object.fromEntries(tab.fields.filter((f) => query.has(f.name)).map((f) => [f.name, query.getAll(f.name)]));
  if (!Object.keys(values).length) values = initial(tab);
}
// [[name, text], ...] of what is given, in the order of the fields.
const pairs = (fields) => fields.flatMap((f) => (values[f.name] ?? []).filter((text) => is_switch(f) || text !== "")
  .map((text) => [f.name, text]));
const address = () => `?${new URLSearchParams([["tab", tab.id], ...pairs(tab.fields)])}`;
function keep_address(is_new_step) {
  history[is_new_step ? "pushState" : "replaceState"](null, "", address() + location.hash);
}
const quoted = (text) => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
function command() {
  const flags = pairs(tab.fields.filter(is_flag)).flatMap(([name, text]) =>
    is_switch(field_of(name)) ? [`--${name}`] : [`--${name}`, quoted(text)]);
  return [tab.command, ...flags].join(" ");
}

// The parts of the form that stay while it changes.
const fields = el("div", { class: "fields" });
const heads = el("ul", {});
const command_line = el("code", { id: "command" });
const error = el("p", { id: "error", role: "alert", tabindex: 0, hidden: true });
const clock = el("span", { "aria-hidden": "true" });
const verdict = el("div", { id: "verdict", "aria-live": "polite" });
const cancel = el("button", { type: "button", hidden: true, click: () => stop("The question was cancelled.") }, "Cancel");

function changed(at_once) {
  keep_address(false);
  command_line.textContent = command();
  clearTimeout(timer);
  timer = setTimeout(ask, at_once ? 0 : PAUSE);
}
function set(name, texts, at_once) {
  values[name] = texts;
  changed(at_once);
}

// One control for a text of a field; `i` counts the texts of a flag that repeats.
function control(field, i) {
  const id = `field-${field.name}${i ? `-${i}` : ""}`;
  const text = values[field.name]?.[i] ?? "";
  const update = (value) => {
    const texts = [...(values[field.name] ?? [])];
    while (texts.length < i) texts.push("");
    texts[i] = value;
    set(field.name, texts);
  };
  const common = { id, title: field.help, "aria-describedby": "error" };
  if (is_switch(field))
    return el("input", { ...common, type: "checkbox", checked: values[field.name] !== undefined,
      change: (e) => { e.target.checked ? set(field.name, [""]) : (delete values[field.name], changed()); } });
  if (field.type.includes("|"))
    return el("select", { ...common, change: (e) => update(e.target.value) },
      ["", ...field.type.split("|")].map((option) => el("option", { value: option, selected: option === text },
        option || (field.default ? `${field.default} (default)` : "–"))));
  return el("input", { ...common, type: "text", value: text, placeholder: field.default ?? "", autocomplete: "off",
    spellcheck: "false", autocapitalize: "off", inputmode: field.type === "N" ? "numeric" : undefined,
    input: (e) => {
      update(e.target.value);
      if (field.name === "mesh") document.getElementById("axes").replaceChildren(...axes());
    } });
}
const label_of = (field) => field.label ?? field.name.replace(/^_/, "");
function labelled(field) {
  const id = `field-${field.name}`;
  const parts = [el("label", { for: id }, label_of(field))];
  const count = field.repeats ? Math.max(1, values[field.name]?.length ?? 0) : 1;
  for (let i = 0; i < count; ++i) {
    const input = control(field, i);
    if (i) input.setAttribute("aria-label", `${label_of(field)} ${i + 1}`);
    parts.push(input);
  }
  if (field.repeats) {
    parts.push(el("button", { id: `add-${field.name}`, type: "button", click: () => {
      values[field.name] = [...(values[field.name]?.length ? values[field.name] : [""]), ""];
      draw();
      document.getElementById(`${id}-${values[field.name].length - 1}`)?.focus();
    } }, `Add ${label_of(field)}`));
    if (count > 1) parts.push(el("button", { type: "button", click: () => {
      values[field.name] = values[field.name].slice(0, -1);
      draw();
      changed();
    } }, "Remove the last"));
  }
  if (field.name === "mesh") parts.push(el("span", { id: "axes" }, axes()));
  return el("div", { class: "field" }, parts);
}

// Buttons that double or halve an axis of the mesh.
function axes() {
  const text = given("mesh") || field_of("mesh").default || "";
  const named = text.split(",").map((part) => /^\s*(\w+)=(\d+)\s*$/.exec(part));
  if (named.includes(null)) return [];
  const with_axis = (i, size) => named.map(([, name, n], k) => `${name}=${k === i ? size : n}`).join(",");
  const button = (i, size, word, sign) => el("button", { id: `${word}-${i}`, type: "button",
    disabled: size < 1 || !Number.isInteger(size), "aria-label": `${word} ${named[i][1]}`, title: `${named[i][1]}=${size}`,
    click: () => {
      set("mesh", [with_axis(i, size)], true);
      draw();
      document.getElementById(`${word}-${i}`).focus();
    } }, `${named[i][1]} ${sign} 2`);
  return named.flatMap(([, , n], i) => [button(i, 2 * n, "Double", "×"), button(i, n / 2, "Halve", "÷")]);
}

function presets() {
  if (!tab.presets) return [];
  const same = tab.presets.findIndex((p) => Object.entries(p.values).every(([name, text]) => given(name) === text));
  return [el("div", { class: "field" }, el("label", { for: "preset" }, "Size"),
    el("select", { id: "preset", change: (e) => {
      for (const [name, text] of Object.entries(tab.presets[e.target.value]?.values ?? {})) values[name] = [text];
      draw();
      changed(true);
      document.getElementById("preset").focus();
    } }, el("option", { value: "" }, "other sizes"),
      tab.presets.map((p, i) => el("option", { value: i, selected: i === same }, p.title))))];
}

function draw() {
  heads.replaceChildren(...tabs.map((t) => el("li", {}, el("a", { href: `?tab=${t.id}`,
    "aria-current": t === tab ? "page" : undefined, click: (e) => {
      e.preventDefault();
      tab = t;
      values = initial(t);
      keep_address(true);
      draw();
      changed(true);
      heads.querySelector("[aria-current]").focus();
    } }, t.title))));
  const open = fields.querySelector("details")?.open;
  const more = tab.fields.filter((f) => f.more);
  fields.replaceChildren(...presets(), ...tab.fields.filter((f) => !f.more).map(labelled),
    ...(more.length ? [el("details", { open }, el("summary", {}, "More flags"),
      el("div", { class: "fields" }, more.map(labelled)))] : []));
  command_line.textContent = command();
}

function say(sentence) {
  error.textContent = sentence;
  error.hidden = !sentence;
  for (const input of fields.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  const flag = /\[--([a-z0-9-]+)\]/.exec(sentence)?.[1];
  const input = document.getElementById(`field-${flag}`);
  input?.setAttribute("aria-invalid", "true");
  if (input?.closest("details")) input.closest("details").open = true;
}
function rest() {
  clearInterval(asked?.ticks);
  asked = null;
  clock.textContent = "";
  cancel.hidden = true;
  document.getElementById("main").removeAttribute("aria-busy");
}
function stop(sentence) {
  asked?.abort.abort();
  rest();
  if (!sentence) return;
  say(sentence);
  show_instead("There is no answer yet.");
}

async function ask() {
  stop();
  const question = { abort: new AbortController() };
  asked = question;
  show_instead("The answer is being computed ...");
  const begun = performance.now();
  const seconds = () => ((performance.now() - begun) / 1000).toFixed(1);
  question.ticks = setInterval(() => {
    clock.textContent = `${seconds()} s`;
    cancel.hidden = false;
    document.getElementById("main").setAttribute("aria-busy", "true");
  }, 250);
  const query = new URLSearchParams([...pairs(tab.fields.filter(is_flag)), ["client", client]]);
  let answer, sentence = "";
  try {
    const response = await fetch(`${tab.path}?${query}`, { signal: question.abort.signal });
    answer = await response.json();
    if (!response.ok) sentence = answer.error ?? `The server answered with ${response.status}.`;
  } catch (e) {
    if (e.name === "AbortError") return;
    sentence = "The server does not answer; start it again.";
  }
  if (asked !== question) return;
  rest();
  say(sentence);
  if (sentence) return show_instead("There is no answer yet.");
  // The command stands in the form, as a person would write it.
  records = [answer].flat().map((record) => ({ ...record, command: "" }));
  const took = seconds();
  show(records);
  clock.textContent = `answered in ${took} s`;
  judge();
}

// Whether each record fits into the memory that is given, and what sends most.
function judge() {
  const gibibytes = Number(given("_memory"));
  verdict.replaceChildren();
  if (!(gibibytes > 0) || !records.every((r) => r.totals)) return;
  const fits = (r) => r.totals.peak_bytes <= gibibytes * 2 ** 30;
  const time = (r) => r.totals.communication_us + r.totals.work_us;
  const cheapest = records.filter(fits).sort((a, b) => time(a) - time(b))[0];
  const most = (r) => {
    const row = [...(r.collectives ?? [])].sort((a, b) => b.bytes_predicted - a.bytes_predicted)[0];
    return row ? `${row.kind} over ${row.axis} for ${row.op}, ${row.phase}` : "nothing is sent";
  };
  const number = (n, digits) => n.toLocaleString("en-US", { maximumFractionDigits: digits });
  verdict.append(el("table", {},
    el("caption", {}, `On GPUs with ${gibibytes} GiB, at the prices of ${records[0].machine}`),
    el("thead", {}, el("tr", {}, ["Strategy", "Fits", "Peak", "Work and sending, ms", "Sends most"].map((head) =>
      el("th", { scope: "col" }, head)))),
    el("tbody", {}, records.map((r) => el("tr", { class: r === cheapest ? "cheapest" : undefined },
      el("th", { scope: "row" }, r.title), el("td", {}, fits(r) ? r === cheapest ? "yes, the cheapest" : "yes" : "no"),
      el("td", {}, el("span", { class: "number" }, byteText(r.totals.peak_bytes))), el("td", {}, number(time(r) / 1e3, 1)),
      el("td", {}, most(r)))))));
  const refused = records.flatMap((r) => r.refused ?? []);
  if (refused.length) verdict.append(el("p", {}, "These strategies cannot run:"),
    el("ul", {}, refused.map((r) => el("li", {}, el("code", {}, r.strategy), `: ${r.reason}`))));
}

document.getElementById("question").append(
  el("form", { "aria-label": "Question", submit: (e) => { e.preventDefault(); changed(true); } },
    el("nav", { "aria-label": "Questions", hidden: tabs.length < 2 }, heads), fields,
    el("p", { class: "command" }, command_line, " ", copier("Copy", command_line)),
    el("p", { class: "progress" }, clock, " ", cancel), error, verdict));
addEventListener("popstate", () => {
  const before = address();
  read_address();
  if (address() === before) return;  // only the view has changed
  draw();
  changed(true);
});
read_address();
draw();
changed(true);
