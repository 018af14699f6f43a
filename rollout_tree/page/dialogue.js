// The dialogue along the chosen path: one column a player, each with what only he saw.

const BLOCK = 100;
const LONG_TEXT = 3000;
const LONG_REPLY = 800;

const tokensShown = new WeakMap();

// A text; a very long one is cut until it is asked for.
function passage(text, properties) {
  const shown = visible(text);
  const element = h("p", { dir: "auto", ...properties });
  if (shown.length <= LONG_TEXT) element.append(shown);
  else {
    const more = h("button", { type: "button", class: "more", onclick: () => element.replaceChildren(shown) });
    more.append(`show all ${shown.length.toLocaleString("en")} characters`);
    element.append(shown.slice(0, LONG_TEXT), "… ", more);
  }
  return element;
}

// A turn's own tokens: [{token, sampled, place}], place among the sampled ones.
function tokensOf(turn) {
  const found = [];
  let place = 0;
  for (const [segment, [span, sampled]] of turn.segments.entries())
    for (const token of DATA.spans[span])
      found.push({ token, sampled: Boolean(sampled), place: sampled ? place++ : null, segment });
  return found;
}

function tokenMeasure(turn, place) {
  if (state.shade === "log_prob") return turn.log_probs ? turn.log_probs[place] : null;
  if (state.shade === "value") return tokenCredit(turn, "value", place) ?? tokenCredit(turn, "baseline", place);
  return tokenCredit(turn, state.shade, place);
}

function shadeToken(element) {
  const { turn, place } = tokensShown.get(element);
  if (state.shade === "none") tint(element, "log_prob", null);
  else tint(element, state.shade, tokenMeasure(turn, place));
}

function shadeTokens() {
  for (const element of document.querySelectorAll("#body .token")) shadeToken(element);
}

function tokenElement(turn, { token, place }, opens) {
  const text = visible(tokenText(token));
  const element = h("span", { class: "token" }, opens ? text.replace(/^ /, "") : text);
  tokensShown.set(element, { turn, token, place });
  shadeToken(element);
  return element;
}

// Calls of tools and what they told, as they followed one another, then the reply.
function repliesOf(turn) {
  const found = [];
  let from = 0;
  for (const [text, result, outcome, place] of turn.calls || []) {
    if (outcome === "too_long") break;
    found.push(replyOf(turn, textOf(text), from, place ?? 0));
    if (outcome !== "ok") found.push(chip(`⚠ call: ${outcome.replace("_", " ")}`, { class: "chip warn" }));
    found.push(passage(textOf(result), { class: "seen told" }));
    from = place === null ? 0 : place + 1;
  }
  return [...found, replyOf(turn, textOf(turn.reply), from, Infinity)];
}

function replyOf(turn, text, from, until) {
  const tokens = tokensOf(turn).filter((one) => one.sampled && from <= one.segment && one.segment < until);
  if (!tokens.length) return passage(text, { class: "reply" });
  const element = h("p", { class: "reply", dir: "auto" });
  const show = (chosen) => element.append(...chosen.map((one) => tokenElement(turn, one, one === tokens[0])));
  show(tokens.slice(0, LONG_REPLY));
  if (tokens.length > LONG_REPLY) {
    const rest = h("button", { type: "button", class: "more" }, `show all ${tokens.length.toLocaleString("en")} tokens`);
    rest.addEventListener("click", () => {
      rest.remove();
      show(tokens.slice(LONG_REPLY));
    });
    element.append(rest);
  }
  return element;
}

function folded(label, make, properties) {
  const details = h("details", properties, h("summary", {}, label));
  details.addEventListener("toggle", () => details.open && details.children.length === 1 && details.append(make()));
  return details;
}

// All that the model had before this reply: the player's tokens along the path since his context began.
function rawPrompt(path, turn) {
  let parts = [];
  for (const step of path)
    for (const other of step.turns) {
      if (other.player !== turn.player) continue;
      if (other.fresh) parts = [];
      const mine = tokensOf(other);
      parts.push(...(other === turn ? mine.slice(0, mine.findIndex((one) => one.sampled)) : mine));
      if (other === turn) {
        const spans = parts.map((one) => h("span", { class: one.sampled ? "own" : "" }, visible(tokenText(one.token))));
        return h("div", {}, h("p", { class: "quiet" }, `${parts.length} tokens; own replies underlined`), h("pre", { dir: "auto" }, spans));
      }
    }
  return h("p", {}, "not on this path");
}

function chip(text, properties) {
  return h("span", { class: "chip", ...properties }, text);
}

function turnElement(path, step, turn, reward) {
  const head = h("div", { class: "turn-head" });
  if (turn.attempt) head.append(chip(`attempt ${turn.attempt + 1}`));
  if (turn.malformed) head.append(chip(`⚠ malformed: ${turn.malformed.replace("_", " ")}`, { class: "chip warn" }));
  else if (textOf(turn.move) !== textOf(turn.reply)) head.append(chip(`move ${clip(textOf(turn.move), 40)}`));
  if (turn.held) head.append(chip("held", { title: `the reply given in step ${turn.held}, held while another answers anew` }));
  if (turn.penalty) head.append(chip(`penalty ${number(turn.penalty)}`));
  if (turn.policy !== undefined) head.append(chip(visible(textOf(turn.policy))));
  for (const name of ["advantage", "credit"]) {
    const value = creditOf(turn, name);
    if (value !== null && value !== undefined)
      head.append(tint(chip(`${MEASURES[name].label} ${signed(value)}`, { class: "chip figure" }), name, value));
  }
  if (reward !== null) head.append(h("span", { class: "reward" }, "reward ", h("b", {}, signed(reward))));
  if (turn.log_probs) head.append(folded("raw", () => rawPrompt(path, turn), { class: "raw" }));
  return h(
    "article",
    { class: turn.malformed ? "turn malformed" : "turn" },
    passage(textOf(turn.seen), { class: "seen" }),
    repliesOf(turn),
    head,
  );
}

function clip(text, length) {
  const line = visible(text).replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length)}…` : line;
}

function stepElement(episode, path, step, previous) {
  const cells = episode.players.map((player, seat) => {
    const told = step.turns.find((turn) => turn.player === seat);
    const cell = h("div", { class: "cell", "data-player": visible(player) });
    if (told && textOf(told.system) && told.system !== previous.get(seat)) {
      const label = previous.has(seat) ? `${visible(player)} is told anew` : `What ${visible(player)} is told`;
      cell.append(folded(label, () => passage(textOf(told.system), { class: "system" }), { class: "system" }));
    }
    if (told) previous.set(seat, told.system);
    const turns = step.turns.filter((turn) => turn.player === seat);
    const rewarded = step.rewards && step.rewards.some((reward) => reward !== 0);
    const reward = (turn) => (rewarded && turn === turns.at(-1) ? step.rewards[seat] : null);
    cell.append(...turns.map((turn) => turnElement(path, step, turn, reward(turn))));
    for (const turn of (step.closing || []).filter((one) => one.player === seat))
      cell.append(h("article", { class: "turn closing" }, passage(textOf(turn.seen), { class: "seen" }), chip("cut off here")));
    if (rewarded && !turns.length && step.rewards[seat] !== 0)
      cell.append(h("p", { class: "reward" }, "reward ", h("b", {}, signed(step.rewards[seat]))));
    return cell;
  });
  const siblings = siblingsOf(episode, step).length;
  const parent = episode.byId.get(step.parent);
  const gutter = h(
    "div",
    { class: "gutter" },
    h("b", {}, String(step.index)),
    step.tick === step.index ? null : h("span", {}, `tick ${step.tick}`),
    step.branch && (!parent || parent.branch !== step.branch) ? h("span", { class: "branch-name" }, visible(step.branch)) : null,
    siblings > 1 ? h("button", { type: "button", class: "more", onclick: () => showMode("branches", step) }, `${siblings} ways`) : null,
  );
  const facts = step.info === undefined ? null : folded("facts", () => h("pre", {}, visible(textOf(step.info))), { class: "facts" });
  if (facts) gutter.append(facts);
  return h("section", { class: "step", "data-step": step.id, onclick: (event) => clickStep(event, step) }, gutter, cells);
}

// Choosing a step by its place must not close what a click inside it opens.
function clickStep(event, step) {
  if (!event.target.closest("button, summary, a")) chooseStep(step, { scroll: false });
}

function drawDialogue(episode, path, current) {
  const at = Math.max(0, path.indexOf(current));
  const first = Math.floor(at / BLOCK) * BLOCK;
  const block = path.slice(first, first + BLOCK);
  const heads = episode.players.map((player, seat) =>
    h("div", { class: "who" }, h("b", {}, visible(player)), h("span", {}, visible(episode.policies[seat]))),
  );
  const previous = new Map();
  const jump = (label, step) => h("button", { type: "button", class: "more jump", onclick: () => chooseStep(step) }, label);
  const body = place(
    "body",
    h("div", { class: "step heads" }, h("div", { class: "gutter" }, "step"), heads),
    first > 0 ? [jump(`steps before ${block[0].index}`, path[first - 1])] : [],
    block.map((step) => stepElement(episode, path, step, previous)),
    first + BLOCK < path.length ? [jump(`steps after ${block.at(-1).index}`, path[first + BLOCK])] : [],
    episode.failure ? [failureNote(episode)] : [],
    path.length ? [] : [h("p", { class: "empty" }, "No step was played.")],
  );
  body.className = "dialogue";
  body.style.setProperty("--players", episode.players.length);
}

function failureNote(episode) {
  const [player, step, reason] = episode.failure;
  return h("p", { class: "failure" }, `Failed at step ${step}, ${visible(player) || "the game"}: ${visible(reason)}`);
}

// The tip over a token: its text, number, and every part of its credit.
function tokenTip(element) {
  const { turn, token, place } = tokensShown.get(element);
  const rows = [["token", `${JSON.stringify(visible(tokenText(token)))} (${DATA.token_ids[token]})`]];
  const logProb = turn.log_probs ? turn.log_probs[place] : null;
  if (logProb !== null) rows.push(["log-prob", `${number(logProb, 3)} (p ${number(Math.exp(logProb), 3)})`]);
  for (const name of DATA.credit_parts) {
    const value = tokenCredit(turn, name, place);
    if (value !== null && value !== undefined) rows.push([name.replaceAll("_", " "), number(value, 3)]);
  }
  return h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function hoverToken(event) {
  const token = event.target.closest ? event.target.closest(".token") : null;
  if (token) showTip(token, tokenTip(token));
  else hideTip();
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

function showTip(element, content) {
  const tip = document.getElementById("tip");
  tip.hidden = false;
  tip.replaceChildren(content);
  const box = element.getBoundingClientRect();
  const below = box.bottom + tip.offsetHeight + 12 < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${below ? box.bottom + 6 : box.top - tip.offsetHeight - 6}px`;
}
