// The index of episodes: a table to sort and to filter.

const ROWS = 1000;

const FILTERS = { iteration: "", group: "", seat: "", policy: "", outcome: "", find: "" };

const OUTCOMES = {
  terminated: ["played to the end", (episode) => episode.status === "terminated"],
  truncated: ["cut off", (episode) => episode.status === "truncated"],
  failed: ["failed", (episode) => episode.status === "failed"],
  malformed: ["with malformed replies", (episode) => episode.malformed],
  branched: ["with branches", (episode) => episode.branches.length > 1],
  even: ["equal returns", (episode) => leaders(episode).length > 1],
};

function leaders(episode) {
  if (!episode.returns) return [];
  const top = Math.max(...episode.returns);
  return episode.players.filter((_, seat) => episode.returns[seat] === top);
}

const PLAYERS = [...new Set(DATA.episodes.flatMap((episode) => episode.players))];
for (const player of PLAYERS)
  OUTCOMES[`ahead:${player}`] = [`${player} ahead`, (episode) => leaders(episode).join() === player];

function distinct(of) {
  return [...new Set(DATA.episodes.flatMap(of))];
}

function matches(episode, found) {
  const seat = episode.players.indexOf(FILTERS.seat);
  const policies = FILTERS.seat ? (seat < 0 ? [] : [episode.policies[seat]]) : episode.policies;
  return (
    (!FILTERS.iteration || String(episode.iteration) === FILTERS.iteration) &&
    (!FILTERS.group || episode.groupName === FILTERS.group) &&
    (!FILTERS.policy || policies.includes(FILTERS.policy)) &&
    (!FILTERS.seat || seat >= 0) &&
    (!FILTERS.outcome || OUTCOMES[FILTERS.outcome][1](episode)) &&
    (found === null || episode.id.includes(FILTERS.find) || textsIn(episode).some((text) => found.has(text)))
  );
}

// Places of all texts that an episode's turns show.
function textsIn(episode) {
  episode.textPlaces ||= [
    ...new Set(episode.steps.flatMap((step) => step.turns.flatMap((turn) => [turn.seen, turn.reply, turn.system]))),
  ];
  return episode.textPlaces;
}

function textsWith(words) {
  if (!words) return null;
  const wanted = words.toLowerCase();
  const found = new Set();
  DATA.texts.forEach((text, at) => text.toLowerCase().includes(wanted) && found.add(at));
  return found;
}

const COLUMNS = [
  { name: "id", label: "Episode", of: (episode) => episode.id, show: shortId },
  { name: "group", label: "Group", of: (episode) => episode.groupName, show: shortGroup },
  ...PLAYERS.map((player) => ({
    name: `return:${player}`,
    label: visible(player),
    number: true,
    of: (episode) => (episode.returns ? episode.returns[episode.players.indexOf(player)] ?? null : null),
  })),
  { name: "surprise", label: "Surprise", number: true, of: (episode) => episode.surprise },
];

let sorting = { name: "id", down: false };

// The episodes that the filters let through, in the order of the table.
function chosenEpisodes() {
  const found = textsWith(FILTERS.find);
  const column = COLUMNS.find((one) => one.name === sorting.name);
  const sign = sorting.down ? -1 : 1;
  return DATA.episodes
    .filter((episode) => matches(episode, found))
    .map((episode) => [column.of(episode), episode])
    .sort(([a, one], [b, other]) => {
      if (a === b) return one.order - other.order;
      if (a === null || b === null) return a === null ? 1 : -1;
      return a < b ? -sign : sign;
    })
    .map(([, episode]) => episode);
}

function drawFilters() {
  const select = (name, label, options) =>
    h(
      "label",
      {},
      h("span", {}, label),
      h(
        "select",
        {
          name,
          onchange: (event) => {
            setFilter(name, event.target.value);
            event.target.blur();
          },
        },
        h("option", { value: "" }, "any"),
        options.map(([value, shown]) => h("option", { value }, visible(shown))),
      ),
    );
  const same = (values) => values.map((value) => [String(value), String(value)]);
  place(
    "filters",
    h("input", {
      name: "find",
      type: "search",
      placeholder: "Find in texts   /",
      "aria-label": "Find in texts",
      oninput: (event) => setFilter("find", event.target.value),
    }),
    select("iteration", "Iteration", same(distinct((episode) => episode.iteration))),
    select("group", "Group", same(distinct((episode) => episode.groupName))),
    select("seat", "Seat", same(PLAYERS)),
    select("policy", "Played by", same(distinct((episode) => episode.policies))),
    select("outcome", "Outcome", Object.entries(OUTCOMES).map(([value, [label]]) => [value, label])),
    h("button", { type: "button", id: "reset", onclick: resetFilters }, "Reset"),
  );
  document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
}

function setFilter(name, value) {
  FILTERS[name] = value;
  const control = document.getElementById("filters").elements[name];
  if (control.value !== value) control.value = value;
  drawIndex();
}

function resetFilters() {
  for (const name of Object.keys(FILTERS)) {
    FILTERS[name] = "";
    document.getElementById("filters").elements[name].value = "";
  }
  drawIndex();
}

function drawIndex() {
  state.listed = chosenEpisodes();
  const total = DATA.episodes.length;
  document.getElementById("reset").disabled = Object.values(FILTERS).every((value) => value === "");
  place("count", `${state.listed.length} of ${total} episodes`);
  const heads = COLUMNS.map((column) => {
    const sorted = column.name === sorting.name;
    return h(
      "th",
      { scope: "col", class: column.number ? "number" : "", "aria-sort": sorted ? (sorting.down ? "descending" : "ascending") : undefined },
      h("button", { type: "button", "data-column": column.name, onclick: () => sortBy(column) }, column.label),
    );
  });
  const rows = state.listed.slice(0, ROWS).map(indexRow);
  const more = state.listed.length - rows.length;
  place(
    "list",
    h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)),
    more > 0 ? [h("p", { class: "empty" }, `${more} more: filter to see them`)] : [],
    rows.length ? [] : [h("p", { class: "empty" }, total ? "No episode is like this." : "No episodes are stored.")],
  );
  markRow();
}

function indexRow(episode) {
  const cells = COLUMNS.map((column) => {
    if (column.name === "surprise") return h("td", { class: "number" }, surpriseBar(episode.surprise));
    const value = column.of(episode);
    if (!column.number) return h("td", {}, visible(column.show(episode)));
    return h("td", { class: "number" }, episode.failure ? "failed" : brief(value));
  });
  const row = h("tr", { "data-episode": episode.order, title: visible(episode.id), onclick: () => chooseEpisode(episode) }, cells);
  if (episode.failure) row.classList.add("failed");
  return row;
}

function shortId(episode) {
  return episode.id.replace(/0*(\d+)\/0*(\d+)$/, "$1 / $2");
}

// Ids and groups as a run writes them, without zeros in front; others as they are.
function shortGroup(episode) {
  return episode.groupName.replace(/^\d+\/g0*(\d+)$/, "$1");
}

const TOP_SURPRISE = DATA.episodes.reduce((top, episode) => Math.max(top, episode.surprise || 0), 1e-9);

function surpriseBar(value) {
  if (value === null) return ["–"];
  const bar = h("i", { class: "bar" });
  bar.style.width = `${Math.round((28 * value) / TOP_SURPRISE)}px`;
  return [bar, brief(value)];
}

function sortBy(column) {
  const down = sorting.name === column.name ? !sorting.down : Boolean(column.number);
  sorting = { name: column.name, down };
  drawIndex();
}

function markRow() {
  for (const row of document.querySelectorAll("#list tr[aria-selected]")) row.removeAttribute("aria-selected");
  if (!state.episode) return;
  const row = document.querySelector(`#list tr[data-episode="${state.episode.order}"]`);
  if (!row) return;
  row.setAttribute("aria-selected", "true");
  row.scrollIntoView({ block: "nearest" });
}
