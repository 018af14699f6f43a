// Plays side by side, step by step: the episodes of a group, or the branches that part at one place.

const MOST_COLUMNS = 24;

function groupColumns(episode) {
  const others = DATA.episodes.filter(
    (other) => other.iteration === episode.iteration && other.groupName === episode.groupName && other !== episode,
  );
  return [episode, ...others].map((one) => ({
    title: shortId(one),
    note: one === episode ? "chosen" : "",
    episode: one,
    branch: "",
    path: pathTo(one, ""),
  }));
}

// The step nearest to the current one, going back, at which the path has alternatives.
function forkOn(episode, path, current) {
  const at = current ? path.indexOf(current) : path.length - 1;
  const parts = (step) => siblingsOf(episode, step).length > 1;
  return path.slice(0, at + 1).findLast(parts) || path.find(parts) || null;
}

function branchColumns(episode, path, current) {
  const fork = forkOn(episode, path, current);
  if (!fork) return [];
  const own = (step) => path.includes(step);
  const ways = [...siblingsOf(episode, fork)].sort((a, b) => own(b) - own(a) || (b.branch === "") - (a.branch === ""));
  return ways.map((step) => ({
    title: step.branch ? visible(step.branch) : "main line",
    note: own(step) ? "chosen" : "",
    episode,
    branch: own(step) ? path.at(-1).branch : step.branch,
    path: (own(step) ? path : pathTo(episode, step.branch)).filter((one) => one.index >= fork.index),
  }));
}

function totals(column) {
  return column.episode.players.map((_, seat) => column.path.reduce((sum, step) => sum + (step.rewards ? step.rewards[seat] : 0), 0));
}

function repliesIn(step) {
  return step ? JSON.stringify(step.turns.map((turn) => [turn.player, textOf(turn.reply)])) : "";
}

function compareCell(column, step, chosen) {
  if (!step) return h("td", { class: "none" });
  const lines = column.episode.players.map((player, seat) => {
    const turn = lastTurn(step, seat);
    if (!turn) return null;
    const reply = tint(h("span", { class: "reply", dir: "auto" }, clip(textOf(turn.reply), 90) || "∅"), state.measured, measure(state.measured, step, turn, seat));
    return h(
      "div",
      { class: turn.malformed ? "line malformed" : "line" },
      h("span", { class: "name" }, visible(player)),
      reply,
      h("span", { class: "gain" }, step.rewards ? signed(step.rewards[seat]) : ""),
    );
  });
  const same = column.note !== "chosen" && repliesIn(step) === repliesIn(chosen);
  const pick = () => choosePath(column.episode, column.branch, step);
  return h("td", { class: same ? "same" : "", title: same ? "the same replies as in the chosen play" : undefined, onclick: pick }, lines);
}

function drawCompare(columns, what) {
  const shown = columns.slice(0, MOST_COLUMNS);
  const first = Math.min(...shown.map((column) => (column.path.length ? column.path[0].index : 0)));
  const last = Math.max(...shown.map((column) => (column.path.length ? column.path.at(-1).index : 0)));
  const byIndex = shown.map((column) => new Map(column.path.map((step) => [step.index, step])));
  const heads = shown.map((column) =>
    h(
      "th",
      { scope: "col", class: column.note },
      h("button", { type: "button", onclick: () => choosePath(column.episode, column.branch, null) }, column.title),
      h("span", {}, column.episode.players.map((player, seat) => `${visible(player)} ${number(totals(column)[seat])}`).join("   ")),
    ),
  );
  const rows = [];
  for (let index = first; index <= Math.min(last, first + BLOCK - 1); index++)
    rows.push(
      h(
        "tr",
        {},
        h("th", { scope: "row" }, String(index)),
        shown.map((column, at) => compareCell(column, byIndex[at].get(index), byIndex[0].get(index))),
      ),
    );
  const left = columns.length - shown.length;
  const body = place(
    "body",
    h("p", { class: "quiet" }, what + (left > 0 ? ` The first ${MOST_COLUMNS} of ${columns.length} are shown.` : "")),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "step"), heads)), h("tbody", {}, rows)),
  );
  const replies = [...body.querySelectorAll(".reply")];
  body.className = replies.some((reply) => reply.textContent.length > 16) ? "compare wide" : "compare";
}

function drawGroup(episode) {
  drawCompare(
    groupColumns(episode),
    "Plays that share their luck; pale where the replies are those of the chosen one. Colour as in the tree.",
  );
}

function drawBranches(episode, path, current) {
  const columns = branchColumns(episode, path, current);
  if (columns.length) drawCompare(columns, "The ways that part here; pale where the replies are the same. Colour as in the tree.");
  else place("body", h("p", { class: "empty" }, "This episode has no branches."));
}
