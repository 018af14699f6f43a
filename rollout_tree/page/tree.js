// The tree of an episode: the main line thick, its branches thin below it; a circle is a step, with a sector a player.

const TREE = { start: 62, left: 90, top: 22 };
const ROOMY = { lane: 26, radius: 8 };
const DENSE = { lane: 17, radius: 6 };
const MOST_ROOMY = 8;

// A lane for every branch, below the one it leaves: later forks higher up, so that no line crosses another's steps.
function lanesOf(episode) {
  const spans = new Map();
  const left = new Map();
  for (const step of episode.steps) {
    const span = spans.get(step.branch);
    if (!span) {
      spans.set(step.branch, [step.index, step.index]);
      const parent = episode.byId.get(step.parent);
      left.set(step.branch, parent ? parent.branch : "");
    } else span[1] = Math.max(span[1], step.index);
  }
  const forks = new Map([...spans.keys()].map((branch) => [branch, []]));
  for (const branch of spans.keys()) if (branch !== "") forks.get(left.get(branch))?.push(branch);
  const lanes = [];
  const chosen = new Map();
  const waiting = spans.has("") ? [""] : [];
  while (waiting.length) {
    const branch = waiting.pop();
    waiting.push(...forks.get(branch).sort((a, b) => spans.get(a)[0] - spans.get(b)[0]));
    const [start, end] = spans.get(branch);
    let lane = branch === "" ? 0 : chosen.get(left.get(branch)) + 1;
    while ((lanes[lane] || []).some(([a, b]) => start - 1 <= b && a <= end + 1)) lane++;
    (lanes[lane] ||= []).push([start - 1, end]);
    chosen.set(branch, lane);
  }
  return { lane: (branch) => chosen.get(branch), count: lanes.length };
}

function sector(x, y, radius, from, to) {
  const point = (share) => {
    const angle = 2 * Math.PI * share - Math.PI / 2;
    return `${(x + radius * Math.cos(angle)).toFixed(2)} ${(y + radius * Math.sin(angle)).toFixed(2)}`;
  };
  return `M ${x} ${y} L ${point(from)} A ${radius} ${radius} 0 ${to - from > 0.5 ? 1 : 0} 1 ${point(to)} Z`;
}

function node(episode, step, x, y, measured, radius) {
  const count = episode.players.length;
  const sectors = episode.players.map((player, seat) => {
    const shape =
      count === 1
        ? s("circle", { cx: x, cy: y, r: radius, class: "sector" })
        : s("path", { d: sector(x, y, radius, seat / count - 0.5 / count, (seat + 0.5) / count), class: "sector" });
    return tint(shape, measured, measure(measured, step, lastTurn(step, seat), seat));
  });
  const marks = [];
  if (step.turns.some((turn) => turn.malformed))
    marks.push(s("path", { class: "mark", d: `M ${x - 4} ${y - radius - 8} l 8 0 l -4 6 Z` }));
  if (step.status === "failed")
    marks.push(s("path", { class: "cross", d: `M ${x - 4} ${y - 4} l 8 8 m 0 -8 l -8 8` }));
  else if (step.status === "terminated") marks.push(s("circle", { class: "end", cx: x, cy: y, r: radius + 3 }));
  else if (step.status === "truncated")
    marks.push(s("path", { class: "end", d: `M ${x + radius + 4} ${y - radius} l 0 ${2 * radius}` }));
  return s(
    "g",
    { class: "node", "data-step": step.id, onclick: () => chooseNode(step) },
    s("title", {}, nodeTitle(episode, step, measured)),
    s("circle", { class: "hit", cx: x, cy: y, r: radius + 6 }),
    s("circle", { class: "disc", cx: x, cy: y, r: radius }),
    sectors,
    marks,
    s("circle", { class: "ring", cx: x, cy: y, r: radius }),
  );
}

function nodeTitle(episode, step, measured) {
  const lines = [`step ${step.index}, tick ${step.tick}${step.branch ? `, branch ${visible(step.branch)}` : ""}`];
  episode.players.forEach((player, seat) => {
    const value = measure(measured, step, lastTurn(step, seat), seat);
    lines.push(`${visible(player)}: ${MEASURES[measured].label} ${number(value)}`);
  });
  return lines.join("\n");
}

// From parent to child: along, and down a stem that all branches of a fork share.
function link(x0, y0, x1, y1) {
  if (y0 === y1) return `M ${x0} ${y0} H ${x1}`;
  const stem = x1 - 16;
  const bend = 5;
  return `M ${x0} ${y0} H ${stem - bend} q ${bend} 0 ${bend} ${bend} V ${y1 - bend} q 0 ${bend} ${bend} ${bend} H ${x1}`;
}

function drawTree(episode, path, current, measured) {
  const lanes = lanesOf(episode);
  const size = lanes.count > MOST_ROOMY ? DENSE : ROOMY;
  const last = Math.max(0, ...episode.steps.map((step) => step.index));
  const room = Math.max(240, document.getElementById("reader").clientWidth - TREE.left - 70);
  const gap = Math.min(64, Math.max(26, room / Math.max(1, last)));
  const x = (step) => TREE.left + step.index * gap;
  const y = (step) => TREE.top + lanes.lane(step.branch) * size.lane;
  const onPath = new Set(path.map((step) => step.id));
  const edges = episode.steps.map((step) => {
    const parent = episode.byId.get(step.parent);
    const [x0, y0] = parent ? [x(parent), y(parent)] : [TREE.start, TREE.top];
    const chosen = onPath.has(step.id) ? " chosen" : "";
    return s("path", { class: `edge ${step.branch ? "branch" : "main"}${chosen}`, d: link(x0, y0, x(step), y(step)) });
  });
  edges.sort((a, b) => a.classList.contains("chosen") - b.classList.contains("chosen"));
  const every = Math.max(1, Math.ceil(30 / gap));
  const bottom = TREE.top + lanes.count * size.lane;
  const labels = [];
  for (let index = 0; index <= last; index += every)
    labels.push(s("text", { class: "tick", x: TREE.left + index * gap, y: bottom + 2 }, String(index)));
  const nodes = episode.steps.map((step) => node(episode, step, x(step), y(step), measured, size.radius));
  const height = bottom + 12;
  const width = TREE.left + last * gap + 60;
  const names = [s("text", { class: "lane", x: 0, y: TREE.top + 4 }, "main")];
  if (lanes.count > 1) names.push(s("text", { class: "lane", x: 0, y: TREE.top + size.lane + 4 }, "branches"));
  const svg = s(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Tree of the episode" },
    names,
    edges,
    s("circle", { class: "start", cx: TREE.start, cy: TREE.top, r: 3 }),
    nodes,
    labels,
  );
  place("tree", svg);
  markStep(current, path);
}

// Marks the current step without drawing again.
function markStep(current, path) {
  const onPath = new Set(path.map((step) => step.id));
  for (const group of document.querySelectorAll("#tree .node")) {
    const id = Number(group.dataset.step);
    group.classList.toggle("current", current !== null && id === current.id);
    group.classList.toggle("off", !onPath.has(id));
    if (current !== null && id === current.id) group.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}
