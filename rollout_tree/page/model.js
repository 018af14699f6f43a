// The run's data, and what the views ask of it. Texts in it are untrusted: they become text nodes, never markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const PART = Object.fromEntries(DATA.credit_parts.map((name, place) => [name, place]));

// Characters that would act on the page's layout, or that cannot be seen, are written as escapes.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]/g;

function visible(text) {
  return text.replace(UNSEEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

function textOf(place) {
  return place === null || place === undefined ? "" : DATA.texts[place];
}

function tokenText(token) {
  const text = DATA.token_texts[token];
  return text === null ? `‹${DATA.token_ids[token]}›` : text;
}

// Elements: h("p", {class: "a", onclick: f}, "text", child). Strings are always text.
function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return element;
}

function h(tag, properties, ...children) {
  return build(document.createElement(tag), properties, children);
}

function s(tag, properties, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function place(id, ...children) {
  const element = document.getElementById(id);
  element.replaceChildren(...children.flat());
  return element;
}

function number(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  const text = Number.isInteger(value) ? String(value) : value.toFixed(digits);
  return text.replace("-", "−");
}

// Short enough for a narrow column: three digits or so.
function brief(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return number(value, size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

function signed(value) {
  return value > 0 ? "+" + number(value) : number(value);
}

// Episodes, with their steps by id and the path to the end of the main line and of every branch.
function prepare(episode, order) {
  const byId = new Map(episode.steps.map((step) => [step.id, step]));
  const ends = new Map();
  for (const step of episode.steps) {
    step.branch = step.branch || "";
    step.turns = step.turns || [];
    step.children = [];
    const end = ends.get(step.branch);
    if (!end || step.index >= end.index) ends.set(step.branch, step);
  }
  const roots = [];
  for (const step of episode.steps) (step.parent === null ? roots : byId.get(step.parent).children).push(step);
  Object.assign(episode, {
    order,
    byId,
    roots,
    ends,
    groupName: textOf(episode.group),
    players: episode.seats.map(([player]) => textOf(player)),
    policies: episode.seats.map(([, policy]) => textOf(policy)),
    branches: [...ends.keys()],
    malformed: episode.steps.some((step) => step.turns.some((turn) => turn.malformed)),
  });
}

function pathTo(episode, branch) {
  const path = [];
  for (let step = episode.ends.get(branch); step; step = episode.byId.get(step.parent)) path.push(step);
  return path.reverse();
}

// Steps that part at the same place as this one, itself included.
function siblingsOf(episode, step) {
  return step.parent === null ? episode.roots : episode.byId.get(step.parent).children;
}


// One number of a turn's credit: a part is one number for all tokens, or a list of one a token.
function creditOf(turn, name) {
  if (!turn.credit) return null;
  const part = turn.credit[PART[name]];
  if (!Array.isArray(part)) return part;
  const known = part.filter((value) => value !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
}

function tokenCredit(turn, name, place) {
  const part = turn.credit ? turn.credit[PART[name]] : null;
  return Array.isArray(part) ? part[place] : part;
}

// What nodes and tokens can be coloured by.
const MEASURES = {
  credit: { label: "credit", hint: "what multiplied the log-prob in the end" },
  advantage: { label: "advantage", hint: "the player's own, before shaping" },
  value: { label: "value", hint: "the critic's value, or the group's baseline" },
  reward: { label: "reward", hint: "raw reward of the step" },
  log_prob: { label: "log-prob", hint: "how unlikely the token was when it was sampled" },
};

function measure(name, step, turn, seat) {
  if (name === "reward") return step.rewards ? step.rewards[seat] : null;
  if (!turn) return null;
  if (name === "value") return creditOf(turn, "value") ?? creditOf(turn, "baseline");
  return creditOf(turn, name);
}

function lastTurn(step, seat) {
  return step.turns.findLast((turn) => turn.player === seat);
}

// Each measure's scale over the whole page: {low, high}; the largest twentieth saturates.
const scaleOf = (() => {
  const known = new Map();
  return (name) => {
    if (name === "log_prob") return { low: -5, high: 0 };
    if (!known.has(name)) {
      const values = [];
      for (const episode of DATA.episodes)
        for (const step of episode.steps)
          for (let seat = 0; seat < episode.players.length; seat++) {
            const value = measure(name, step, lastTurn(step, seat), seat);
            if (value !== null && value !== undefined) values.push(value);
          }
      const sizes = values.map(Math.abs).sort((a, b) => a - b);
      const top = sizes[Math.round(0.95 * (sizes.length - 1))] || sizes.at(-1);
      known.set(name, sizes.length ? { low: values.some((value) => value < 0) ? -top : 0, high: top } : null);
    }
    return known.get(name);
  };
})();

// Colours an element: blue above zero, orange below, stronger further from it.
function tint(element, name, value) {
  const scale = scaleOf(name);
  const clear = value === null || value === undefined || scale === null;
  const top = clear ? 1 : name === "log_prob" ? -scale.low : Math.max(Math.abs(scale.low), Math.abs(scale.high));
  const share = clear || !top ? 0 : Math.min(1, Math.abs(value) / top);
  element.style.setProperty("--t", `${Math.round(share * 100)}%`);
  element.dataset.sign = clear ? "none" : value < 0 ? "below" : "above";
  return element;
}

DATA.episodes.forEach(prepare);
