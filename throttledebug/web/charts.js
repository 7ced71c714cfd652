// The charts of the chosen key. They begin when it is chosen: the server keeps no history.
"use strict";
function throttleCharts(place) {
  const least = 30, span = 120, keep = 150; // seconds in view at first and later, and points kept
  const height = 150;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const format = (x) => (x == null ? "–" : x >= 100 ? Math.round(x).toLocaleString("en-US") : String(Math.round(x * 10) / 10));

  // What each chart shows: rates are made from counts.
  const kinds = [
    { title: "Calls", unit: "per second", lines: [["sent", "--a"], ["throttled", "--b"], ["refused", "--c"]] },
    { title: "Line", unit: "calls", lines: [["waiting", "--a"], ["in flight", "--c"]] },
    { title: "Tokens", unit: "units", lines: [["ready", "--a"]] },
    { title: "Limits", unit: "units per second", lines: [["configured", "--c"], ["found", "--a"], ["advertised", "--b"]] },
  ];
  let key, before, plots = [], times = [], closed = [], data = [];

  // shade marks the times in which the gate was closed, behind the lines.
  function shade(u) {
    const ctx = u.ctx, box = u.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(box.left, box.top, box.width, box.height);
    ctx.clip();
    ctx.fillStyle = colour("--shade");
    for (let i = 0; i < times.length; i++) {
      if (!closed[i]) continue;
      const from = u.valToPos(i ? times[i - 1] : times[i] - 1, "x", true), to = u.valToPos(times[i], "x", true);
      ctx.fillRect(from, box.top, to - from, box.height);
    }
    ctx.restore();
  }

  function build() {
    for (const plot of plots) plot.destroy();
    place.replaceChildren();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    // All boxes first: a plot is as wide as its box, and that depends on how many there are.
    const boxes = kinds.map((kind) => {
      const box = document.createElement("div"), title = document.createElement("h3"), unit = document.createElement("small");
      box.className = "chart";
      box.id = "chart-" + kind.title.toLowerCase();
      unit.textContent = kind.unit;
      title.append(kind.title + " ", unit);
      box.append(title);
      place.append(box);
      return box;
    });
    plots = kinds.map((kind, k) => {
      const box = boxes[k];
      return new uPlot({
        width: Math.max(200, box.clientWidth), height,
        padding: [8, 26, 0, 0],
        cursor: { y: false, sync: { key: "throttle" }, points: { size: 5 } },
        scales: {
          x: { time: true, range: () => [Math.max(times.at(-1) - span, Math.min(times[0], times.at(-1) - least)), times.at(-1)] },
          y: { range: (u, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.1)] },
        },
        axes: [
          { ...axis, space: 70, size: 24, values: (u, at) => at.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB")) },
          { ...axis, size: 48, space: 28, values: (u, at) => at.map(format) },
        ],
        series: [
          { value: () => "", label: "" },
          ...kind.lines.map(([label, name]) => ({ label, stroke: colour(name), width: 1.5, points: { show: false }, value: (u, x) => format(x) })),
        ],
        hooks: { drawClear: [shade] },
      }, [times, ...data[k]], box);
    });
  }

  function clear(of) {
    key = of;
    before = undefined;
    times = [];
    closed = [];
    data = kinds.map((kind) => kind.lines.map(() => []));
  }

  // push adds one moment to all charts.
  function push(time, shut, values) {
    times.push(time);
    closed.push(shut);
    values.forEach((chart, k) => chart.forEach((x, i) => data[k][i].push(x)));
    if (times.length <= keep) return;
    for (const list of [times, closed, ...data.flat()]) list.shift();
  }

  // add shows one more event. A count that has become smaller is that of a key that was dropped and made again.
  function add(of, time, p) {
    if (of !== key) clear(of);
    if (before && time <= before.time) return;
    const rate = (name) => (before ? Math.max(0, p[name] - before.p[name]) / (time - before.time) : null);
    push(time, p.closed, [
      [rate("sent"), rate("throttled"), rate("refused")],
      [p.waiting, p.in_flight],
      [p.tokens],
      [p.limit, p.found, p.advertised],
    ]);
    before = { time, p };
    if (!plots.length || !place.children.length) build();
    plots.forEach((plot, k) => {
      plot.setData([times, ...data[k]]);
      if (plot.cursor.left == null || plot.cursor.left < 0) plot.setLegend({ idx: times.length - 1 });
    });
  }

  new ResizeObserver(() => plots.forEach((plot) => {
    const width = Math.max(200, plot.root.parentNode.clientWidth);
    if (width !== plot.width && place.clientWidth) plot.setSize({ width, height });
  })).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.length && build());
  return { add };
}
