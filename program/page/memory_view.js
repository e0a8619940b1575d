// SPDX-License-Identifier: Apache-2.0
// Memory over the operators by kind, and what is in use at one of them.

const CHART = { width: 760, height: 260, left: 64, right: 8, top: 18, bottom: 24 };

// The operators that are drawn: of those that share a pixel, the one with the most memory.
function sampled_operators(rec, run, most = 700) {
  return rec.once(`sample ${rec.runs.indexOf(run)}`, () => {
    const all = run.operators.length, drawn = Math.min(all, most), list = [];
    for (let i = 0; i < drawn; ++i) {
      const end = Math.floor((i + 1) * all / drawn);
      let best = Math.floor(i * all / drawn);
      for (let k = best; k < end; ++k)
        if (rec.memory(run.operators[k]) > rec.memory(run.operators[best])) best = k;
      list.push(best);
    }
    return list;
  });
}
const kind_fill = (kind) => pattern(COLOURS[kind % COLOURS.length], kind % 6);

function memory_chart(rec, run, at) {
  const { width, height, left, right, top, bottom } = CHART;
  const list = sampled_operators(rec, run), peak = rec.peak(run), n = run.operators.length;
  const largest = rec.memory(run.operators[peak]) || 1;
  const x = (i) => left + (width - left - right) * (n > 1 ? i / (n - 1) : 0.5);
  const y = (m) => top + height * (1 - m / largest);
  const of = (i, kind) => run.operators[i].memory?.[kind] ?? 0;
  // Activations, which come and go, are on top.
  const kinds = rec.memory_kinds.map((_, k) => k).filter((k) => list.some((i) => of(i, k) > 0))
    .sort((a, b) => (a === 0) - (b === 0) || a - b);
  const below = list.map(() => 0);
  const areas = kinds.map((kind) => {
    const point = (i, j) => `${x(i).toFixed(1)} ${y(below[j]).toFixed(1)}`, lower = list.map(point);
    list.forEach((i, j) => { below[j] += of(i, kind); });
    const [defs, fill] = kind_fill(kind), d = `M${[...list.map(point), ...lower.reverse()].join("L")}Z`;
    return [defs, draw("path", { d, fill, stroke: COLOURS[kind % COLOURS.length] },
      draw("title", {}, rec.memory_kinds[kind]))];
  });
  const text = (at_x, at_y, anchor, content) =>
    draw("text", { x: at_x, y: at_y, "text-anchor": anchor, class: "small" }, content);
  const mark = (i, content, name) => [draw("path", { class: name, d: `M${x(i)} ${top - 4}V${top + height}` }),
    text(Math.min(width - 60, Math.max(left + 60, x(i))), 11, "middle", content)];
  const lines = [0, 0.25, 0.5, 0.75, 1].map((s) => [text(left - 5, y(s * largest) + 4, "end", byteText(s * largest)),
    draw("path", { class: "line", d: `M${left} ${y(s * largest)}H${width - right}` })]);
  const chart = picture(
    `Memory of rank ${run.rank} over ${count(n, "operator")}: at most ${byteText(largest)}, after operator ${peak}`,
    width, top + height + bottom, areas, lines, text(left, top + height + 16, "start", "operator 0"),
    text(width - right, top + height + 16, "end", `operator ${n - 1}`), at !== peak && mark(peak, "peak", "peak"),
    mark(at, at === peak ? `peak, operator ${at}` : `operator ${at}`, "row"));
  chart.addEventListener("click", (e) => {
    const box = chart.getBoundingClientRect(), pixel = (e.clientX - box.left) / box.width * width - left;
    go({ op: Math.max(0, Math.min(n - 1, Math.round(pixel / (width - left - right) * (n - 1)))) });
  });
  const legend = kinds.reverse().map((kind) => {
    const [defs, fill] = kind_fill(kind), size = { width: 16, height: 12 };
    return el("span", { class: "chip" }, draw("svg", { ...size, "aria-hidden": "true" }, defs,
      draw("rect", { ...size, fill })), rec.memory_kinds[kind]);
  });
  return [el("p", { class: "legend" }, legend), scrolled("Chart", chart)];
}

function kinds_table(rec, run, op) {
  const all = rec.memory(op);
  const rows = rec.memory_kinds.map((kind, k) => [kind, bytes(op.memory?.[k] ?? 0),
    bar((op.memory?.[k] ?? 0) / all, COLOURS[k % COLOURS.length]), bytes(run.memory?.[kind])]);
  return table("By kind", ["Kind", "#In use here", "", "#Its own peak"],
    [...rows, ["all", bytes(all), "", bytes(run.memory?.peak)]]);
}
// The outputs of operators; equal ones of equal layers are one line.
function alive_list(rec, run, alive) {
  const size = (group) => group.length * group[0][0].makes;
  const groups = grouped(alive, ([op]) => `${op.call} ${op.move} ${op.makes} ${op.phase} ${any_layer(rec.path(op))}`)
    .sort((a, b) => size(b) - size(a));
  return plain_list(groups, 50, (group) => {
    const [op, i] = group[0], several = group.length > 1;
    const end = Math.max(...group.map(([one]) => one.until ?? run.operators.length));
    return el("li", {}, bytes(size(group)), " ", bar(size(group) / size(groups[0])), " ",
      several && [`${whole(group.length)} × `, bytes(op.makes), ": "], operator_link(rec, op, i),
      several && el("span", { class: "path" }, ` and in ${any_layer(rec.path(op)) || "the program itself"}`), ": ",
      output_links(rec, rec.call(op)?.out ?? [], { op: i }),
      run.operators[end] ? ["until ", link(`#${end}`, "operator", { op: end })] : "to the end");
  });
}

// Moves along the operators; what follows is drawn at most once a frame.
function slider(run, at, update) {
  let frame = 0;
  const moved = (e) => {
    adjust({ op: Number(e.target.value) });
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(update);
  };
  return el("label", { class: "slider" }, "Operator", el("input", { id: "slider", type: "range", min: 0,
    max: run.operators.length - 1, value: state.op ?? at, input: moved }));
}

function memory_view({ rec, run, at }) {
  if (!run.operators.length) return [el("h1", {}, "Memory"), el("p", {}, "This record has no operators.")];
  const body = el("div", {}), peak = rec.peak(run), within = run.memory?.peak > rec.memory(run.operators[peak]);
  const update = () => {
    const i = state.op ?? at, op = run.operators[i], alive = rec.alive(run, i);
    refill(body, memory_chart(rec, run, i),
      el("h2", {}, "After ", operator_link(rec, op, i)), kinds_table(rec, run, op),
      within && el("p", { class: "note" }, "The peak of ", bytes(run.memory.peak),
        " lies within an operator, between two of these numbers, or in a later step."),
      rec.runs.length > 1 && table("Peaks of the stages", ["Stage", "#Peak"], rec.runs.map((r, k) =>
        [link(`${k + 1}: rank ${r.rank}`, "memory", { run: k }), bytes(r.memory?.peak)])),
      el("h2", {}, "Outputs in use"),
      el("p", {}, `${count(alive.length, "operator")} made what is in use here: `,
        bytes(alive.reduce((n, [o]) => n + o.makes, 0)),
        ". It need not add up to the activations: moved inputs and buffers are not outputs. ",
        link("All that one rank holds here", "rank", { op: i, rank: state.rank ?? run.rank })),
      alive_list(rec, run, alive));
  };
  update();
  return [el("h1", {}, "Memory"),
    el("p", {}, `Rank ${run.rank}, after each operator. Click the chart, or move the slider. `,
      link("Go to the peak", "memory", { op: peak })), slider(run, at, update), body];
}
