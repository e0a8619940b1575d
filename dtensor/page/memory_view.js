// Memory over the operators by kind, and what is in use at one of them.

// At most so many operators are drawn: of those that share a pixel, the one with the most.
function sampled_operators(rec, run, most = 700) {
  return rec.once(`sample ${rec.runs.indexOf(run)}`, () => {
    const n = run.operators.length, list = [];
    for (let i = 0; i < Math.min(n, most); ++i) {
      const from = Math.floor(i * n / Math.min(n, most)), end = Math.floor((i + 1) * n / Math.min(n, most));
      let best = from;
      for (let k = from; k < end; ++k) if (rec.memory(run.operators[k]) > rec.memory(run.operators[best])) best = k;
      list.push(best);
    }
    return list;
  });
}
function memory_chart(rec, run, at) {
  const list = sampled_operators(rec, run), peak = rec.peak(run), n = run.operators.length;
  const width = 760, height = 260, left = 64, bottom = 24, top = 18, largest = rec.memory(run.operators[peak]) || 1;
  const x = (i) => left + (width - left - 8) * (n > 1 ? i / (n - 1) : 0.5), y = (m) => top + height * (1 - m / largest);
  const below = list.map(() => 0), kinds = rec.memory_kinds.map((_, k) => k).filter((k) => list.some((i) => run.operators[i].memory?.[k] > 0));
  // The kinds that stay are at the bottom.
  kinds.sort((a, b) => (a === 0) - (b === 0) || a - b);
  const areas = kinds.map((k) => {
    const lower = list.map((i, j) => [x(i), y(below[j])]);
    list.forEach((i, j) => { below[j] += run.operators[i].memory?.[k] ?? 0; });
    const upper = list.map((i, j) => [x(i), y(below[j])]);
    const [defs, fill] = pattern(COLOURS[k % 8], k % 6);
    return [defs, draw("path", { d: `M${[...upper, ...lower.reverse()].map((p) => p.map((v) => v.toFixed(1)).join(" ")).join("L")}Z`,
      fill, stroke: COLOURS[k % 8] }, draw("title", {}, rec.memory_kinds[k]))];
  });
  const mark = (i, text, name) => [draw("path", { class: name, d: `M${x(i)} ${top - 4}V${top + height}` }),
    draw("text", { x: Math.min(width - 60, Math.max(left + 60, x(i))), y: 11, "text-anchor": "middle", class: "small" }, text)];
  const chosen = (e) => {
    const box = e.currentTarget.getBoundingClientRect(), share = ((e.clientX - box.left) / box.width * width - left) / (width - left - 8);
    go({ op: Math.max(0, Math.min(n - 1, Math.round(share * (n - 1)))) });
  };
  const chart = picture(`Memory of rank ${run.rank} over ${count(n, "operator")}: at most ${byteText(largest)}, after operator ${peak}`,
    width, top + height + bottom, areas,
    [0, 0.25, 0.5, 0.75, 1].map((s) => [draw("text", { x: left - 5, y: y(s * largest) + 4, "text-anchor": "end", class: "small" }, byteText(s * largest)),
      draw("path", { class: "line", d: `M${left} ${y(s * largest)}H${width - 8}` })]),
    draw("text", { x: left, y: top + height + 16, class: "small" }, "operator 0"), draw("text", { x: width - 8, y: top + height + 16, "text-anchor": "end", class: "small" }, `operator ${n - 1}`),
    at !== peak && mark(peak, "peak", "peak"), mark(at, at === peak ? `peak, operator ${at}` : `operator ${at}`, "row"));
  chart.addEventListener("click", chosen);
  const legend = kinds.map((k) => {
    const [defs, fill] = pattern(COLOURS[k % 8], k % 6);
    return el("span", { class: "chip" }, draw("svg", { width: 16, height: 12, "aria-hidden": "true" }, defs, draw("rect", { width: 16, height: 12, fill })), rec.memory_kinds[k]);
  });
  return [el("p", { class: "legend" }, legend.reverse()), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Chart" }, chart)];
}

function memory_view({ rec, run, at }) {
  if (!run.operators.length) return [el("h1", {}, "Memory"), el("p", {}, "This record has no operators.")];
  const body = el("div", {}), peak = rec.peak(run);
  const update = () => {
    const i = state.op ?? at, op = run.operators[i], alive = rec.alive(run, i), list = el("ul", { class: "plain" });
    const size = (group) => group.length * group[0][0].makes;
    const groups = grouped(alive, ([o]) => `${o.call} ${o.move} ${o.makes} ${o.phase} ${any_layer(rec.path(o))}`).sort((a, b) => size(b) - size(a));
    long(groups, 50, (group) => {
      const [o, k] = group[0], ends = group.map(([one]) => one.until ?? run.operators.length - 1);
      return el("li", {}, bytes(size(group)), " ", bar(size(group) / size(groups[0])), " ", group.length > 1 && [`${whole(group.length)} × `, bytes(o.makes), ": "],
        operator_link(rec, o, k), group.length > 1 && el("span", { class: "path" }, ` and in ${any_layer(rec.path(o)) || "the program itself"}`), ": ",
        output_links(rec, rec.call(o)?.out ?? [], { op: k }), o.until === undefined ? "to the end" : ["until ", link(`#${Math.max(...ends)}`, "operator", { op: Math.max(...ends) })]);
    }, list);
    body.replaceChildren(...[memory_chart(rec, run, i),
      el("h2", {}, "After ", operator_link(rec, op, i)),
      table("By kind", ["Kind", "#In use here", "", "#Its own peak"], [
        ...rec.memory_kinds.map((kind, k) => [kind, bytes(op.memory?.[k] ?? 0), bar((op.memory?.[k] ?? 0) / rec.memory(op), COLOURS[k % 8]), bytes(run.memory?.[kind])]),
        ["all", bytes(rec.memory(op)), "", bytes(run.memory?.peak)]]),
      run.memory?.peak > rec.memory(run.operators[peak]) && el("p", { class: "note" }, "The peak of ", bytes(run.memory.peak), " lies within an operator, between two of these numbers."),
      el("h2", {}, "Outputs in use"), el("p", {}, `${count(alive.length, "operator")} made what is in use here: `,
        bytes(alive.reduce((n, [o]) => n + o.makes, 0)), ". ", link("All that one rank holds here", "rank", { op: i, rank: state.rank ?? run.rank })), list].flat(2).filter(Boolean));
  };
  update();
  return [el("h1", {}, "Memory"), el("p", {}, `Rank ${run.rank}, after each operator. Click the chart, or move the slider. `,
    link("Go to the peak", "memory", { op: peak })), slider(run, at, update), body];
}
