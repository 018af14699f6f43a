// Payoff matrices: what the row's agent earns against the column's.

const pay = (value) => value.toFixed(2).replace("-", "−");

// The darkest cell earns most. Numbers stand in all cells; colour only helps to find them.
function drawMatrix(matrix) {
  const means = matrix.cells.flat().map((cell) => cell.pay.mean);
  const [low, high] = [Math.min(...means), Math.max(...means)];
  const tells = (cell, at, column) =>
    `${visible(matrix.rows[at])} against ${visible(matrix.columns[column])}${cell.self_play ? " (self-play)" : ""}: ${pay(cell.pay.mean)}, interval ${pay(cell.pay.low)} to ${pay(cell.pay.high)}, ${cell.games} games${cell.failed ? `, ${cell.failed} failed` : ""}`;
  const cellOf = (cell, at, column, least) => {
    const element = h(
      "td",
      { class: `cell${cell.self_play ? " self" : ""}${least ? " least" : ""}`, tabindex: at + column ? -1 : 0, "aria-label": tells(cell, at, column), "data-row": at, "data-column": column },
      h("b", {}, pay(cell.pay.mean)),
    );
    element.style.setProperty("--t", `${Math.round((100 * (cell.pay.mean - low)) / (high - low || 1))}%`);
    const show = () => showTip(element, matrixTip(matrix, cell, at, column));
    element.addEventListener("mouseenter", show);
    element.addEventListener("focus", show);
    element.addEventListener("mouseleave", hideTip);
    element.addEventListener("blur", hideTip);
    return element;
  };
  const rows = matrix.cells.map((cells, at) => {
    const worst = cells.reduce((found, cell, column) => (cell.pay.mean < cells[found].pay.mean ? column : found), 0);
    return h(
      "tr",
      {},
      h("th", { scope: "row", title: visible(matrix.rows[at]) }, visible(matrix.rows[at])),
      cells.map((cell, column) => cellOf(cell, at, column, column === worst && cells.length > 1)),
      h("td", { class: "minimum" }, h("b", {}, pay(cells[worst].pay.mean)), h("span", {}, `against ${visible(matrix.columns[worst])}`)),
    );
  });
  const heads = matrix.columns.map((name) => h("th", { scope: "col", title: visible(name) }, visible(name)));
  const table = h(
    "table",
    { class: "matrix", "aria-label": "Payoff matrix", onkeydown: walkMatrix },
    h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "quiet" }, "earns ↓ against →"), heads, h("th", { scope: "col" }, "least"))),
    h("tbody", {}, rows),
  );
  return h("div", { class: "scroll" }, table);
}

function matrixTip(matrix, cell, at, column) {
  const rows = [
    [visible(matrix.rows[at]), ""],
    ["against", visible(matrix.columns[column])],
    ["mean pay", pay(cell.pay.mean)],
    ["95 % interval", `${pay(cell.pay.low)} to ${pay(cell.pay.high)}`],
    ["games", `${cell.games}${cell.failed ? ` (${cell.failed} failed)` : ""}`],
  ];
  if (cell.self_play) rows.splice(1, 1, ["self-play", ""]);
  return h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function walkMatrix(event) {
  const [down, right] = ARROWS[event.key] || [0, 0];
  const from = event.target.closest("td.cell");
  if (!from || !(down || right)) return;
  const next = event.currentTarget.querySelector(`td[data-row="${Number(from.dataset.row) + down}"][data-column="${Number(from.dataset.column) + right}"]`);
  if (!next) return;
  event.preventDefault();
  from.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

let chosenMatrix = DATA.payoffs.length - 1;

function matrixSection() {
  if (!DATA.payoffs.length) return [];
  const matrix = DATA.payoffs[chosenMatrix];
  const choose = (event) => {
    chosenMatrix = Number(event.target.value);
    drawPay();
  };
  const named = (one) => `${one.rows.length} × ${one.columns.length}: ${one.rows.map(visible).join(", ")}`;
  const several = DATA.payoffs.length > 1 && h("select", { name: "matrix", "aria-label": "Matrix", onchange: choose }, DATA.payoffs.map((one, at) => h("option", { value: at, selected: at === chosenMatrix }, clip(named(one), 60))));
  return [
    h("h2", {}, "Who earns what against whom"),
    h("p", { class: "legend" }, h("span", {}, h("i", { class: "swatch self" }), "self-play"), h("span", {}, h("i", { class: "swatch least" }), "the row's least"), h("span", { class: "quiet" }, `${matrix.games} games in each seat, pay of a tick; point at a cell for its interval`), several || null),
    drawMatrix(matrix),
  ];
}
