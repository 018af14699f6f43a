// What is chosen, and how keys, clicks and the address choose it.

const VIEWS = { episodes: "Episodes", learning: "Learning", pay: "Pay", run: "Run" };

const state = {
  view: "episodes",
  listed: [],
  episode: null,
  branch: "",
  step: null,
  mode: "dialogue",
  measured: scaleOf("credit") ? "credit" : "reward",
  shade: scaleOf("credit") ? "credit" : "log_prob",
};

const currentPath = () => (state.episode ? pathTo(state.episode, state.branch) : []);

function showView(name) {
  state.view = name;
  for (const other of Object.keys(VIEWS)) document.getElementById(`view-${other}`).hidden = other !== name;
  for (const tab of document.querySelectorAll("#views button")) {
    if (tab.dataset.view === name) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  if (name === "learning") drawLearning();
  if (name === "pay") drawPay();
  if (name === "run") drawRun();
  noteAddress();
}

function chooseEpisode(episode) {
  choosePath(episode, "", null);
}

function choosePath(episode, branch, step) {
  const changed = state.episode !== episode;
  Object.assign(state, { episode, branch });
  const path = currentPath();
  state.step = step && path.includes(step) ? step : path[0] || null;
  if (changed) markRow();
  drawEpisode();
}

function chooseNode(step) {
  const path = currentPath();
  if (path.includes(step)) chooseStep(step);
  else choosePath(state.episode, step.branch, step);
}

function chooseStep(step, { scroll = true } = {}) {
  if (!step) return;
  state.step = step;
  const path = currentPath();
  markStep(step, path);
  const shown = document.querySelector(`#body .step[data-step="${step.id}"]`);
  if (state.mode === "branches" || (state.mode === "dialogue" && !shown)) drawBody(path);
  markCurrent(scroll);
  noteAddress();
}

function markCurrent(scroll) {
  for (const element of document.querySelectorAll("#body .step.current")) element.classList.remove("current");
  const shown = state.step && document.querySelector(`#body .step[data-step="${state.step.id}"]`);
  if (!shown) return;
  shown.classList.add("current");
  if (scroll) shown.scrollIntoView({ block: "nearest" });
}

function showMode(mode, step = state.step) {
  state.mode = mode;
  state.step = step;
  drawTools();
  drawBody(currentPath());
  document.getElementById("body").scrollTo(0, 0);
  markCurrent(true);
}

function drawEpisode() {
  const { episode } = state;
  const path = currentPath();
  const facts = [
    chip(`iteration ${episode.iteration}`),
    h("button", { type: "button", class: "chip", title: "Show only this group", onclick: () => setFilter("group", episode.groupName) }, `group ${visible(episode.groupName)}`),
    chip(state.branch ? `branch ${visible(state.branch)}` : episode.status, { class: episode.failure ? "chip warn" : "chip" }),
  ];
  const seats = episode.players.map((player, seat) =>
    h("div", { class: "seat" }, h("span", {}, `${visible(player)} · ${visible(episode.policies[seat])}`), h("b", {}, episode.returns ? number(pathTotal(path, seat)) : "–")),
  );
  place("episode-head", h("div", {}, h("h2", {}, visible(episode.id)), h("p", { class: "chips" }, facts)), h("div", { class: "seats" }, seats));
  drawTools();
  drawTree(episode, path, state.step, state.measured);
  drawBody(path);
  document.getElementById("body").scrollTop = 0;
  markCurrent(state.step !== path[0]);
  noteAddress();
}

function pathTotal(path, seat) {
  return path.reduce((sum, step) => sum + (step.rewards ? step.rewards[seat] : 0), 0);
}

function drawBody(path) {
  if (state.mode === "group") drawGroup(state.episode);
  else if (state.mode === "branches") drawBranches(state.episode, path, state.step);
  else drawDialogue(state.episode, path, state.step);
}

function drawTools() {
  const { episode } = state;
  const siblings = groupColumns(episode).length;
  const modes = [
    ["dialogue", "Dialogue"],
    ["group", `Group (${siblings})`],
    ["branches", `Branches (${episode.branches.length - 1})`],
  ];
  const tabs = modes.map(([mode, label]) =>
    h("button", { type: "button", "data-mode": mode, "aria-pressed": String(state.mode === mode), onclick: () => showMode(mode) }, label),
  );
  const known = Object.keys(MEASURES).filter((name) => name === "log_prob" || scaleOf(name));
  const choice = (label, chosen, names, choose) =>
    h(
      "label",
      {},
      h("span", {}, label),
      h(
        "select",
        { name: label.toLowerCase(), onchange: (event) => (choose(event.target.value), event.target.blur()) },
        names.map((name) => h("option", { value: name, selected: name === chosen }, name === "none" ? "none" : MEASURES[name].label)),
      ),
    );
  const tree = choice("Tree", state.measured, known.filter((name) => name !== "log_prob"), (name) => {
    state.measured = name;
    drawTree(episode, currentPath(), state.step, name);
    if (state.mode !== "dialogue") drawBody(currentPath());
    drawTools();
  });
  const tokens = choice("Tokens", state.shade, [...known.filter((name) => name !== "reward"), "none"], (name) => {
    state.shade = name;
    shadeTokens();
    drawTools();
  });
  place("tools", h("div", { class: "modes", role: "group", "aria-label": "Reading" }, tabs), tree, tokens, legendBar(state.mode === "dialogue" && state.shade !== "none" ? state.shade : state.measured));
}

function legendBar(name) {
  const scale = scaleOf(name);
  if (!scale || scale.low === scale.high) return h("span");
  const steps = [-1, -0.66, -0.33, 0, 0.33, 0.66, 1].filter((share) => (scale.low < 0 || share >= 0) && (scale.high > 0 || share <= 0));
  const top = Math.max(Math.abs(scale.low), Math.abs(scale.high));
  return h(
    "div",
    { class: "scale", title: MEASURES[name].hint },
    h("span", {}, number(scale.low)),
    steps.map((share) => tint(h("i"), name, share * top)),
    h("span", {}, number(scale.high)),
  );
}

function drawRun() {
  const { run } = DATA;
  const facts = [
    ["Stored iterations", run.stored.join(", ") || "none"],
    ["Iterations on this page", run.shown.join(", ") || "none"],
    ["Episodes on this page", `${DATA.episodes.length} of ${run.num_played} in these iterations`],
  ];
  place(
    "view-run",
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    run.config ? [h("h2", {}, "Configuration"), h("pre", { class: "config" }, visible(JSON.stringify(run.config, null, 2)))] : [],
  );
}

function drawHelp() {
  const keys = [
    ["← →", "step back, step on"],
    ["↑ ↓", "episode before, episode after"],
    ["[ ]", "branch before, branch after"],
    ["Home End", "first step, last step"],
    ["g", "group side by side, and back"],
    ["b", "branches side by side, and back"],
    ["/", "find in texts"],
    ["1 2 3 4", "episodes, learning, pay, run"],
  ];
  place(
    "help",
    h("h2", {}, "Keys"),
    h("dl", {}, keys.map(([key, what]) => [h("dt", {}, key.split(" ").map((one) => h("kbd", {}, one))), h("dd", {}, what)])),
    h("h2", {}, "Marks"),
    h("p", {}, "A circle is a step, with a sector for each player, the first at the top and on clockwise. Blue is above zero, orange below; the stronger, the further. A ring ends a game, a bar cuts it off, a cross is a failure, a triangle a malformed reply. The main line is thick, branches are thin."),
    h("form", { method: "dialog" }, h("button", {}, "Close")),
  );
}

function walk(by) {
  const path = currentPath();
  chooseStep(path[Math.min(path.length - 1, Math.max(0, path.indexOf(state.step) + by))]);
}

function walkEpisodes(by) {
  const at = state.listed.indexOf(state.episode);
  const next = at < 0 ? state.listed[0] : state.listed[at + by];
  if (next) chooseEpisode(next);
}

function walkBranches(by) {
  const { branches } = state.episode;
  const next = branches[(branches.indexOf(state.branch) + by + branches.length) % branches.length];
  const at = state.step ? state.step.index : 0;
  const path = pathTo(state.episode, next);
  choosePath(state.episode, next, path.find((step) => step.index === at) || path.at(-1));
}

const toggleMode = (mode) => showMode(state.mode === mode ? "dialogue" : mode);

const KEYS = {
  ArrowRight: () => walk(1),
  ArrowLeft: () => walk(-1),
  ArrowDown: () => walkEpisodes(1),
  ArrowUp: () => walkEpisodes(-1),
  Home: () => walk(-Infinity),
  End: () => walk(Infinity),
  "]": () => walkBranches(1),
  "[": () => walkBranches(-1),
  g: () => toggleMode("group"),
  b: () => toggleMode("branches"),
};

function onKey(event) {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  if (target.closest("input, select, textarea")) {
    if (key === "Escape") target.blur();
    return;
  }
  const view = Object.keys(VIEWS)[Number(key) - 1];
  if (view) showView(view);
  else if (key === "?") document.getElementById("help").showModal();
  else if (key === "/" && state.view === "episodes") document.getElementById("filters").elements.find.focus();
  else if (KEYS[key] && state.view === "episodes" && state.episode) KEYS[key]();
  else return;
  event.preventDefault();
}

// The address keeps the place.
function noteAddress() {
  const place = new URLSearchParams({ view: state.view });
  if (state.episode) {
    place.set("episode", state.episode.id);
    if (state.branch) place.set("branch", state.branch);
    if (state.step) place.set("step", state.step.index);
  }
  history.replaceState(null, "", `#${place}`);
}

function followAddress() {
  const place = new URLSearchParams(location.hash.slice(1));
  const view = place.get("view");
  const branch = place.get("branch") || "";
  const episode = DATA.episodes.find((one) => one.id === place.get("episode") && one.ends.has(branch));
  showView(Object.hasOwn(VIEWS, view) ? view : DATA.episodes.length ? "episodes" : "learning");
  if (episode) choosePath(episode, branch, pathTo(episode, branch).find((step) => String(step.index) === place.get("step")));
  else if (state.listed.length) chooseEpisode(state.listed[0]);
}

function start() {
  const { run } = DATA;
  place("run-name", visible(run.name));
  const some = run.shown.length < 2 ? run.shown.join() : `${run.shown[0]} to ${run.shown.at(-1)}`;
  const facts = [visible(run.game), `${DATA.episodes.length} episodes`, run.shown.length ? `iteration ${some}` : ""];
  place("run-facts", facts.filter(Boolean).join(" · "));
  place("views", Object.entries(VIEWS).map(([name, label]) => h("button", { type: "button", "data-view": name, onclick: () => showView(name) }, label)));
  drawHelp();
  drawFilters();
  drawIndex();
  document.getElementById("help-button").addEventListener("click", () => document.getElementById("help").showModal());
  document.addEventListener("keydown", onKey);
  document.getElementById("body").addEventListener("mouseover", hoverToken);
  document.getElementById("body").addEventListener("click", hoverToken);
  document.getElementById("body").addEventListener("scroll", hideTip);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.view === "learning" && drawLearning());
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => state.episode && drawTree(state.episode, currentPath(), state.step, state.measured));
  });
  followAddress();
}

start();
