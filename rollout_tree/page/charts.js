// Learning curves from the run's metrics, and what its evaluations paid.

// Okabe and Ito's colours, in an order that stays apart for colour-blind readers; dashes tell lines apart as well.
const LINES = [
  { light: "#0072b2", dark: "#5fb0ea", dash: [] },
  { light: "#d55e00", dark: "#f39a52", dash: [6, 3] },
  { light: "#009e73", dark: "#3cc9a0", dash: [2, 3] },
  { light: "#a0508a", dark: "#dd9ac4", dash: [8, 3, 2, 3] },
];

const FIRST = ["return_per_tick", "cooperation", "reciprocity", "retaliation", "forgiveness", "claim", "efficiency", "pareto_distance", "agreement", "return", "earns_more_than", "reply_tokens", "reply_characters", "token_entropy", "malformed", "retries"];

const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
const titled = (name) => name.replaceAll("_", " ");

// Charts: {section, title, lines: [{label, values}]}. Keys are PART/MEASURE/PLAYER and policy/POLICY/MEASURE.
function chartsOf(series) {
  const charts = new Map();
  const put = (section, title, label, values) => {
    const key = `${section}\n${title}`;
    if (!charts.has(key)) charts.set(key, { section, title, lines: [] });
    charts.get(key).lines.push({ label, values });
  };
  const players = [...PLAYERS].sort((a, b) => b.length - a.length);
  for (const [key, values] of Object.entries(series)) {
    const [part, ...names] = key.split("/");
    const player = part === "rollout" ? players.find((name) => `${key}/`.includes(`/${name}/`)) : undefined;
    if (names[0] === "exploitation") put("Players", "earns more than", names.slice(1).join(" than "), values);
    else if (part === "policy" && names.length > 1) put("Policies", titled(names.slice(1).join(" ")), names[0], values);
    else if (player !== undefined) {
      const [before, after] = `${key}/`.slice("rollout/".length).split(`/${player}/`);
      put("Players", titled(`${before} ${after.replaceAll("/", " ")}`.trim()), player, values);
    } else put("All together", titled(names.join(" ")), titled(names.at(-1) || part), values);
  }
  const rank = ({ title }) => {
    const at = FIRST.map(titled).indexOf(title);
    return at < 0 ? FIRST.length : at;
  };
  return [...charts.values()].sort((a, b) => rank(a) - rank(b));
}

const isConstant = (values) => new Set(values.filter((value) => value !== null)).size < 2;

// Mean and standard deviation over a window centred at each update, from what is known there.
function smooth(values, window) {
  const reach = Math.floor(window / 2);
  const mean = [];
  const spread = [];
  for (let at = 0; at < values.length; at++) {
    const known = values.slice(Math.max(0, at - reach), at + reach + 1).filter((value) => value !== null);
    const middle = known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
    mean.push(middle);
    spread.push(known.length ? Math.sqrt(known.reduce((sum, v) => sum + (v - middle) ** 2, 0) / known.length) : null);
  }
  return { mean, spread };
}

function drawChart(chart, window) {
  const colour = (at) => LINES[at % LINES.length][dark() ? "dark" : "light"];
  const legend = h("div", { class: "legend" });
  const holder = h("div", { class: "plot" });
  const figure = h("figure", { class: "chart" }, h("figcaption", {}, visible(chart.title)), legend, holder);
  const data = [DATA.curves.updates];
  const series = [{}];
  const bands = [];
  chart.lines.forEach((line, at) => {
    const { mean, spread } = smooth(line.values, window);
    data.push(mean, mean.map((v, i) => (v === null ? null : v + spread[i])), mean.map((v, i) => (v === null ? null : v - spread[i])));
    const points = { show: DATA.curves.updates.length < 12 };
    series.push({ stroke: colour(at), width: 1.75, dash: LINES[at % LINES.length].dash, points });
    series.push({ points: { show: false } }, { points: { show: false } });
    bands.push({ series: [3 * at + 2, 3 * at + 3], fill: `${colour(at)}28` });
  });
  const tell = (at) =>
    legend.replaceChildren(
      ...chart.lines.map((line, place) => {
        const swatch = h("i", { class: "swatch" });
        swatch.style.background = colour(place);
        const value = at === null || at === undefined ? data[3 * place + 1].findLast((v) => v !== null) : data[3 * place + 1][at];
        return h("span", {}, swatch, `${visible(line.label)} ${number(value ?? null, 3)}`);
      }),
    );
  const ink = getComputedStyle(document.documentElement);
  const axis = {
    stroke: ink.getPropertyValue("--quiet"),
    grid: { stroke: ink.getPropertyValue("--line"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  const plot = new uPlot(
    {
      width: 320,
      height: 190,
      scales: { x: { time: false } },
      series,
      bands,
      legend: { show: false },
      cursor: { sync: { key: "run" }, y: false, points: { size: 6 } },
      axes: [{ ...axis, size: 30 }, { ...axis, size: 54 }],
      hooks: { setCursor: [(self) => tell(self.cursor.idx)] },
    },
    data,
    holder,
  );
  tell(null);
  new ResizeObserver(() => plot.setSize({ width: holder.clientWidth, height: 190 })).observe(holder);
  return figure;
}

let smoothing = null;

function drawLearning() {
  const count = DATA.curves.updates.length;
  if (!count) {
    place("view-learning", h("p", { class: "empty" }, "This run has no metrics yet."));
    return;
  }
  smoothing ??= count < 20 ? 1 : Math.max(3, Math.round(count / 20));
  const charts = chartsOf(DATA.curves.series);
  const moving = charts.filter((chart) => !chart.lines.every((line) => isConstant(line.values)));
  const still = charts.filter((chart) => !moving.includes(chart));
  const slider = h("input", { type: "range", min: 1, max: Math.max(1, Math.round(count / 4)), value: smoothing, name: "smoothing" });
  slider.addEventListener("change", () => {
    smoothing = Number(slider.value);
    drawLearning();
  });
  const sections = ["Players", "All together", "Policies"].map((section) => {
    const own = moving.filter((chart) => chart.section === section);
    return own.length ? [h("h2", {}, section), h("div", { class: "charts" }, own.map((chart) => drawChart(chart, smoothing)))] : [];
  });
  const fixed = still.flatMap((chart) => chart.lines.map((line) => `${chart.title} (${visible(line.label)}) ${number(line.values.find((v) => v !== null) ?? null)}`));
  place(
    "view-learning",
    h("div", { class: "bar-top" }, h("label", {}, h("span", {}, `Mean of ${smoothing} point${smoothing > 1 ? "s" : ""}, band of one standard deviation`), slider), h("p", { class: "quiet" }, `${count} points, ${DATA.curves.width} update${DATA.curves.width > 1 ? "s" : ""} each`)),
    sections.flat(),
    fixed.length ? [h("details", { class: "still" }, h("summary", {}, `measures that never changed: ${still.length}`), h("p", {}, fixed.join(" · ")))] : [],
  );
}

// Pay: own and the opponent's mean with its interval, on one axis for all opponents.
function drawPay(at = DATA.evaluations.length - 1) {
  if (!DATA.evaluations.length) {
    const none = "This run was not evaluated: set evaluate.every, or run coplay evaluate --matrix, to see what its agents earn against others.";
    place("view-pay", DATA.payoffs.length ? matrixSection() : h("p", { class: "empty" }, none));
    return;
  }
  const { update, results } = DATA.evaluations[at];
  const bounds = DATA.evaluations.flatMap((one) => one.results.flatMap((row) => [row.own, row.other].filter(Boolean).flatMap((v) => [v.low, v.high])));
  const [low, high] = [Math.min(0, ...bounds), Math.max(...bounds, 0)];
  const width = 360;
  const x = (value) => 10 + ((value - low) / (high - low || 1)) * (width - 20);
  const interval = (value, y, kind) =>
    s("g", { class: kind }, s("line", { x1: x(value.low), x2: x(value.high), y1: y, y2: y }), kind === "own" ? s("circle", { cx: x(value.mean), cy: y, r: 5 }) : s("rect", { x: x(value.mean) - 4, y: y - 4, width: 8, height: 8 }));
  const ticks = [low, (low + high) / 2, high];
  const rows = results.map((row) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, visible([row.game ? `${row.game}: ${row.opponent}` : row.opponent, row.source, row.sampling].filter(Boolean).join(", "))),
      h("td", { class: "plot-cell" }, s("svg", { width, height: 44, viewBox: `0 0 ${width} 44` }, ticks.map((v) => s("line", { class: "grid", x1: x(v), x2: x(v), y1: 0, y2: 44 })), interval(row.own, 15, "own"), row.other ? interval(row.other, 30, "other") : null)),
      h("td", { class: "number" }, spread(row.own)),
      h("td", { class: "number" }, row.other ? spread(row.other) : "–"),
      h("td", { class: "number" }, row.cooperation ? spread(row.cooperation) : "–"),
      h("td", { class: "number" }, row.malformed === null ? "–" : `${number(100 * row.malformed, 1)} %`),
      h("td", { class: "number" }, `${row.games}${row.failed ? ` (${row.failed} failed)` : ""}`),
    ),
  );
  const axis = s("svg", { width, height: 18, viewBox: `0 0 ${width} 18` }, ticks.map((v, i) => s("text", { x: x(v), y: 12, "text-anchor": ["start", "middle", "end"][i] }, number(v, 1))));
  const select = h("select", { name: "update", onchange: (event) => drawPay(Number(event.target.value)) }, DATA.evaluations.map((one, i) => h("option", { value: i, selected: i === at }, `after update ${one.update}`)));
  place(
    "view-pay",
    matrixSection(),
    h("h2", {}, "Against its anchors, while it learnt"),
    h("div", { class: "bar-top" }, h("label", {}, h("span", {}, "Evaluation"), select), h("p", { class: "legend" }, h("span", {}, h("i", { class: "swatch own" }), "own pay"), h("span", {}, h("i", { class: "swatch other" }), "the opponent's"), h("span", { class: "quiet" }, "a tick of the game; mean and 95 % interval"))),
    h("div", { class: "scroll" }, h("table", { class: "pay", "aria-label": `Pay after update ${update}` }, h("thead", {}, h("tr", {}, ["Against", axis, "Own pay", "Opponent's", "Cooperation", "Malformed", "Games"].map((one, i) => h("th", { scope: "col", class: i > 1 ? "number" : "" }, one)))), h("tbody", {}, rows))),
  );
}

function spread(value) {
  return [h("b", {}, number(value.mean)), h("span", { class: "quiet" }, ` ${number(value.low)} to ${number(value.high)}`)];
}
