"use strict";
// Draws the page from the block of JSON. Text reaches the page by textContent alone, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const DAY = 86400;
const STATES = [
  ["live", "live", "Live", "Claude has it, and so has the vault"],
  ["at risk", "risk", "At risk", "old enough for the next sweep"],
  ["rescued", "rescued", "Rescued", "Claude no longer has it, the vault does"],
];
const KIND = Object.fromEntries(STATES.map(([state, kind]) => [state, kind]));
const FIRST = 200;

// ---------------------------------------------------------------------------------------------- small things

const byId = (id) => document.getElementById(id);

function put(parent, name, attributes = {}, ...inside) {
  const svg = name === "svg" || parent?.namespaceURI?.endsWith("svg");
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
  for (const one of inside) node.append(one);
  parent?.append(node);
  return node;
}

const words = (text) => put(null, "bdi", { dir: "auto" }, text);
const sentence = (text) => put(null, "bdi", { dir: "auto" }, ...text.split("`").map((part, place) => (place % 2 ? put(null, "code", {}, part) : part)));
const two = (number) => String(number).padStart(2, "0");
function day(seconds) {
  const when = new Date(seconds * 1000);
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
}
function minute(seconds) {
  const when = new Date(seconds * 1000);
  return `${day(seconds)} ${two(when.getHours())}:${two(when.getMinutes())}`;
}
const month = (seconds) => new Date(seconds * 1000).toLocaleDateString("en-GB", { month: "short", year: "numeric" });
const dayOfMonth = (seconds) => new Date(seconds * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
const count = (number) => number.toLocaleString("en");
const some = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (number >= 999.5 && place < units.length - 1) { number /= 1000; place += 1; }
  return `${place && number < 99.5 ? number.toFixed(1) : Math.round(number)} ${units[place]}`;
}
function span(seconds) {
  if (seconds < 90) return some(Math.round(seconds), "second", "seconds");
  if (seconds < 5400) return some(Math.round(seconds / 60), "minute", "minutes");
  if (seconds < 1.5 * DAY) return some(Math.round(seconds / 3600), "hour", "hours");
  return some(Math.round(seconds / DAY), "day", "days");
}
const ending = (since, until) => (until === null ? data.made : until) - since;

// ---------------------------------------------------------------------------------------------- the head

const tally = Object.fromEntries(STATES.map(([state]) => [state, 0]));
for (const one of data.sessions) tally[one.state] += 1;

byId("made").append(`${minute(data.made)}, of the vault `, words(data.vault));

function notices() {
  const list = byId("notices");
  const say = (text, bad = false) => put(list, "li", { class: bad ? "bad" : null }, sentence(text));
  if (!data.agent.running) say("The agent is not running: nothing is kept as it comes. `keeper run` starts it, `keeper service install` for good.", true);
  for (const one of data.agent.degraded ?? []) say(`Degraded since ${minute(one.since)}: ${one.what}: ${one.why}`);
  const unkept = data.profiles.reduce((sum, one) => sum + one.unkept, 0);
  if (unkept) say(`${some(unkept, "live chat is", "live chats are")} not kept yet: \`keeper keep\` keeps what is there.`, true);
  if (data.missing) say(`${some(data.missing, "chat's folder is", "chats' folders are")} missing from the vault: \`keeper status\` names them.`, true);
  const odd = data.sessions.filter((one) => one.verdict).length;
  if (odd) say(`${some(odd, "chat is", "chats are")} not as they should be (a tag in the table says how): \`keeper status\` names the cure of each.`);
  for (const file of data.profiles.flatMap((one) => one.odd)) say(`${file} has a value of cleanupPeriodDays that is none: versions of Claude Code differ in what they make of it.`);
}

function tiles() {
  const list = byId("tiles");
  function tile(name, kind, big, small) {
    const box = put(list, "div");
    put(box, "dt", {}, put(null, "span", { class: `dot ${kind}`, "aria-hidden": "true" }), name);
    put(box, "dd", { class: typeof big === "number" ? "big" : "big word" }, typeof big === "number" ? count(big) : big);
    put(box, "dd", {}, small);
  }
  const { shared, own } = data.bytes;
  tile("Kept", "", data.sessions.length, `${bytes(shared + own)}, of which the vault adds ${bytes(own)}`);
  tile("Live", "live", tally.live + tally["at risk"], "Claude has them too");
  const next = data.profiles.filter((one) => one.there).map((one) => one.nextSweep);
  const soon = next.length ? Math.min(...next) : null;
  tile("At risk", "risk", tally["at risk"], soon === null ? "no profile is there" : `next sweep: ${minute(soon)} or later`);
  tile("Rescued", "rescued", tally.rescued, "Claude no longer has them");
  const ill = (data.agent.degraded ?? []).length;
  if (!data.agent.running) tile("Agent", "bad", "not running", "nothing is kept as it comes");
  else tile("Agent", ill ? "risk" : "live", ill ? "degraded" : "running", `since ${minute(data.agent.since)}`);
}

// ---------------------------------------------------------------------------------------------- plots

// A figure: its name, what it says in one line, the plot (drawn anew for each width), and the same as a table.
function figure(name, told, wide, draw, heads, rows, legend = []) {
  const id = `plot-${name.toLowerCase().replace(/\W+/g, "-")}`;
  const box = put(byId("charts"), "figure", { id, class: wide ? "whole" : null });
  const caption = put(box, "figcaption", {}, put(null, "h2", {}, name));
  put(caption, "p", {}, told);
  if (!rows.length) { put(box, "p", { class: "none" }, "Nothing to show yet."); return; }
  if (legend.length) {
    const list = put(box, "ul", { class: "legend" });
    for (const [kind, text] of legend) put(list, "li", {}, put(null, "span", { class: `dot ${kind}`, "aria-hidden": "true" }), text);
  }
  const place = put(box, "div");
  let before = 0;
  const again = () => {
    const width = Math.round(place.clientWidth);
    if (!width || width === before) return;
    before = width;
    place.replaceChildren();
    const svg = put(null, "svg", { role: "img", "aria-label": `${name}. ${told} The table below has the same numbers.` });
    const height = draw(svg, width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    place.append(svg);
  };
  new ResizeObserver(again).observe(place);
  const same = put(box, "details", {}, put(null, "summary", {}, "As a table"));
  same.addEventListener("toggle", () => {
    if (same.children.length > 1) return;
    const table = put(put(same, "div", { class: "scroll", tabindex: "0" }), "table");
    const head = put(put(table, "thead"), "tr");
    heads.forEach((text, column) => put(head, "th", { scope: "col", class: typeof rows[0][column] === "number" ? "num" : null }, text));
    const body = put(table, "tbody");
    for (const row of rows) {
      const line = put(body, "tr");
      for (const value of row) put(line, "td", { class: typeof value === "number" ? "num" : null }, typeof value === "number" ? count(value) : sentence(value));
    }
  });
}

function ticksOfTime(from, to, room) {
  if (to - from < 2 * DAY) {
    const many = Math.max(2, Math.min(6, Math.floor(room / 120)));
    const label = (when) => (to - from < DAY ? minute(when).slice(11) : minute(when).slice(5));
    return Array.from({ length: many }, (_, n) => from + (n * (to - from)) / (many - 1)).map((when) => [when, label(when)]);
  }
  const steps = [1, 2, 7, 14, 30, 45, 61, 91, 182, 365, 730].map((days) => days * DAY);
  const step = steps.find((one) => (to - from) / one <= room / 58) ?? steps.at(-1);
  const start = new Date(from * 1000);
  start.setHours(0, 0, 0, 0);
  const label = step < 60 * DAY ? dayOfMonth : month;
  const found = [];
  for (let when = start.getTime() / 1000; when <= to; when += step) if (when >= from) found.push([when, label(when)]);
  return found;
}

function ticksOfValue(top) {
  const rough = top / 4 || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max([1, 2, 5, 10].find((one) => one * size >= rough) * size, top <= 4 ? 1 : 0);
  return Array.from({ length: Math.ceil(top / step) + 1 }, (_, place) => place * step);
}

function axes(svg, width, height, left, from, to, top, label) {
  const x = (when) => left + ((when - from) / (to - from || 1)) * (width - left - 6);
  const values = ticksOfValue(top);
  const y = (value) => height - 24 - (value / (values.at(-1) || 1)) * (height - 38);
  for (const value of values) {
    put(svg, "line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) });
    put(svg, "text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, label(value));
  }
  timeAxis(svg, x, width, height, left, from, to);
  return [x, y];
}

function timeAxis(svg, x, width, height, left, from, to) {
  let free = 0;
  for (const [when, text] of ticksOfTime(from, to, width - left)) {
    const half = text.length * 3.4, middle = Math.min(Math.max(x(when), left - 24 + half), width - half);
    if (middle - half < free) continue;
    put(svg, "text", { x: middle, y: height - 6, "text-anchor": "middle" }, text);
    free = middle + half + 8;
  }
}

function chatsOverTime() {
  const times = data.sessions.map((one) => one.last);
  const oldest = times.length ? Math.min(...times) : data.made;
  const days = (data.made - oldest) / DAY;
  const wide = days <= 45 ? 1 : days <= 300 ? 7 : 30;
  const today = new Date(data.made * 1000);
  today.setHours(24, 0, 0, 0);
  const end = today.getTime() / 1000;
  const many = Math.max(1, Math.min(60, Math.floor((end - oldest) / (wide * DAY)) + 1));
  const bins = Array.from({ length: many }, (_, place) => ({ from: end - (many - place) * wide * DAY, counts: STATES.map(() => 0) }));
  for (const one of data.sessions) {
    const place = Math.max(0, Math.min(many - 1, many - 1 - Math.floor((end - one.last) / (wide * DAY))));
    bins[place].counts[STATES.findIndex(([state]) => state === one.state)] += 1;
  }
  const sum = (bin) => bin.counts.reduce((one, other) => one + other, 0);
  const unit = { 1: "day", 7: "week", 30: "span of 30 days" }[wide];
  const cutoffs = [...new Set(data.profiles.filter((one) => one.there).map((one) => one.days))];
  const told = `By the ${unit} in which each was last used. ${cutoffs.length === 1 ? `Claude's sweep takes what nobody touched for ${cutoffs[0]} days.` : ""}`;
  figure("Chats over time", told, false, (svg, width) => {
    const height = 250, left = 44, from = bins[0].from;
    const [x, y] = axes(svg, width, height, left, from, end, Math.max(...bins.map(sum)), count);
    const room = x(from + wide * DAY) - x(from), thick = Math.max(1, Math.min(46, room - (room > 6 ? 3 : 1)));
    for (const bin of bins) {
      let below = 0;
      const at = x(bin.from) + (room - thick) / 2;
      bin.counts.forEach((number, place) => {
        if (!number) return;
        put(svg, "rect", { class: STATES[place][1], x: at, width: thick, y: y(below + number), height: Math.max(1, y(below) - y(below + number)) });
        below += number;
      });
      const text = `${day(bin.from)}: ${STATES.map(([state], place) => `${count(bin.counts[place])} ${state}`).join(", ")}`;
      put(put(svg, "rect", { class: "hit", x: x(bin.from), width: room, y: 8, height: height - 32 }), "title", {}, text);
    }
    for (const days of cutoffs) {
      const when = data.made - days * DAY;
      if (when <= from) continue;
      put(svg, "line", { class: "mark", x1: x(when), x2: x(when), y1: 8, y2: height - 24 });
      const right = x(when) > width / 2;
      put(svg, "text", { x: x(when) + (right ? -5 : 5), y: 12, "text-anchor": right ? "end" : "start" }, `${days} days ago`);
    }
    return height;
  }, [`From (a ${unit})`, ...STATES.map(([, , name]) => name)], data.sessions.length ? bins.map((bin) => [day(bin.from), ...bin.counts]) : [],
  STATES.map(([, kind, name]) => [kind, name]));
}

function growth() {
  const points = data.growth;
  const told = "Kept transcripts. What a link shares with Claude's own file costs nothing, until Claude's file goes.";
  figure("Vault growth", told, false, (svg, width) => {
    const height = 250, left = 58, from = points[0][0], to = points.at(-1)[0];
    const [x, y] = axes(svg, width, height, left, from, to, Math.max(...points.map(([, shared, own]) => shared + own), 1), bytes);
    // Steps: a value holds until the next point.
    const edge = (value) => points.map((one, place) => `${place ? `H${x(one[0])}` : `${x(one[0])} ${y(value(one))}`}V${y(value(one))}`).join("");
    const back = (value) => {
      const all = [...points].reverse();
      return all.map((one, place) => `L${x(one[0])} ${y(value(one))}${place + 1 < all.length ? `V${y(value(all[place + 1]))}` : ""}`).join("");
    };
    const area = (kind, low, high) => put(svg, "path", { class: kind, d: `M${edge(high)}${back(low)}Z` });
    area("rescued", () => 0, (one) => one[2]);
    area("live", (one) => one[2], (one) => one[1] + one[2]);
    points.forEach((one, place) => {
      const next = points[place + 1] ?? one;
      const text = `${minute(one[0])}: ${bytes(one[1])} shared, ${bytes(one[2])} the vault's own`;
      put(put(svg, "rect", { class: "hit", x: x(one[0]), width: Math.max(1, x(next[0]) - x(one[0])), y: 8, height: height - 32 }), "title", {}, text);
    });
    return height;
  }, ["When", "Shared, bytes", "The vault's own, bytes"], points.filter((_, place) => place % 8 === 7 || place === points.length - 1).map(([when, ...rest]) => [minute(when), ...rest]),
  [["live", "Shared by a link"], ["rescued", "The vault's own"]]);
}

function happened() {
  const { runs, spells, events } = data.past;
  const lanes = [
    ["Agent ran", runs.map((one) => ({ ...one, kind: "quiet", text: one.why }))],
    ["Degraded", spells.map((one) => ({ ...one, kind: "bad", text: `${one.what}: ${one.why}` }))],
    ["Swept", [
      ...data.losses.filter((one) => one.swept).map((one) => ({ when: one.time, kind: "risk", chats: one.chats, text: `${some(one.chats, "chat", "chats")} gone, old enough for a sweep` })),
      ...events.filter((one) => one.what === "sweep").map((one) => ({ when: one.when, kind: "rescued", chats: one.chats, text: one.text })),
    ]],
    ["Deleted", [
      ...data.losses.filter((one) => !one.swept).map((one) => ({ when: one.time, kind: "bad", chats: one.chats, text: `${some(one.chats, "chat", "chats")} gone, too young for a sweep` })),
      ...events.filter((one) => one.what === "deleted" || one.what === "mass deletion").map((one) => ({ when: one.when, kind: "bad", chats: one.chats, text: one.text })),
    ]],
    ["Other", events.filter((one) => !["sweep", "deleted", "mass deletion"].includes(one.what)).map((one) => ({ when: one.when, kind: "quiet", chats: 1, text: `${one.what}: ${one.text}` }))],
  ];
  const swept = data.profiles.filter((one) => one.lastSweep).map((one) => ({ when: one.lastSweep, kind: "quiet", chats: 0, text: `Claude swept ${one.path} last` }));
  lanes[2][1].push(...swept);
  const every = lanes.flatMap(([lane, all]) => all.map((one) => ({ lane, ...one, when: one.when ?? one.since })));
  every.sort((one, other) => other.when - one.when);
  const from = Math.max(data.made - 120 * DAY, Math.min(data.made - DAY, ...every.map((one) => one.when)));
  figure("Sweeps and degraded spells", "What the agent wrote down, and what the vault's own files tell of those that went. Up to 120 days back.", true, (svg, width) => {
    const left = 78, line = 32, height = lanes.length * line + 32;
    const x = (when) => left + 8 + (Math.max(0, when - from) / (data.made - from)) * (width - left - 18);
    lanes.forEach(([name, all], place) => {
      const middle = place * line + 18;
      put(svg, "text", { class: "lane", x: 0, y: middle + 4 }, name);
      put(svg, "line", { class: "grid", x1: left, x2: width, y1: middle + line / 2, y2: middle + line / 2 });
      for (const one of all) {
        if ((one.when ?? one.until ?? data.made) < from) continue;
        let shape;
        if (one.when === undefined) {
          const begin = x(one.since), end = x(one.until ?? data.made);
          shape = put(svg, "rect", { class: one.kind, x: begin, width: Math.max(3, end - begin), y: middle - 6, height: 12, rx: 3 });
        } else if (!one.chats) shape = put(svg, "rect", { class: one.kind, x: x(one.when) - 1.5, width: 3, y: middle - 9, height: 18, rx: 1 });
        else shape = put(svg, "circle", { class: `${one.kind} ring`, cx: x(one.when), cy: middle, r: Math.min(11, 4 + Math.log10(1 + one.chats) * 3) });
        put(shape, "title", {}, `${minute(one.when ?? one.since)}${one.when === undefined ? `, ${span(ending(one.since, one.until))}` : ""}: ${one.text || name}`);
      }
    });
    timeAxis(svg, x, width, height, left, from, data.made);
    return height;
  }, ["When", "What", "How long", "Said"], every.map((one) => [minute(one.when), one.lane, one.since === undefined ? "" : span(ending(one.since, one.until)) + (one.until === null ? ", and lasts" : ""), one.text]),
  [["quiet", "ran, or noted"], ["risk", "swept"], ["rescued", "put back"], ["bad", "degraded, or deleted"]]);
}

// ---------------------------------------------------------------------------------------------- the table

const sweepTime = (one) => one.gone ?? one.due;
const COLUMNS = [
  ["title", "Chat", "title", (one) => one.title],
  ["state", "State", "state", (one) => STATES.findIndex(([state]) => state === one.state)],
  ["last", "Last used", "last", (one) => one.last],
  ["sweep", "Sweep", "sweep", sweepTime],
  ["records", "Records", "records num", (one) => one.records],
  ["bytes", "Size", "bytes num", (one) => one.bytes],
];
const collator = new Intl.Collator("en", { numeric: true });
const order = { by: "last", down: true };
let limit = FIRST;
for (const one of data.sessions) one.hay = `${one.title}\n${one.cwd}\n${one.id}\n${one.chat}\n${one.verdict}\n${one.policy}`.toLowerCase();

function sweepWords(one) {
  if (one.state === "rescued") return one.gone === null ? "gone" : `${one.swept ? "taken" : "deleted"} ${day(one.gone)}`;
  if (one.policy === "resident") return "kept from it";
  if (one.due === null) return "";
  return one.state === "at risk" ? "the next one" : `in ${span(Math.max(0, one.due - data.made))}`;
}

function rowOf(one) {
  const row = put(null, "tr", { role: "row" });
  const cell = (attributes, ...inside) => put(row, "td", { role: "cell", ...attributes }, ...inside);
  const title = put(null, "bdi", { dir: "auto", class: one.title ? "title" : "title untitled" }, one.title || "no title");
  const under = put(null, "div", { class: "under" });
  put(under, "bdi", { dir: "auto", title: one.cwd }, one.cwd);
  put(under, "span", { class: "mono" }, one.id);
  cell({}, title, under);
  const pill = put(null, "span", { class: "pill" }, put(null, "span", { class: `dot ${KIND[one.state]}`, "aria-hidden": "true" }), one.state);
  const state = cell({}, pill);
  if (one.verdict) put(state, "span", { class: "tag bad" }, one.verdict);
  if (one.policy !== "keep") put(state, "span", { class: "tag" }, one.policy);
  cell({}, minute(one.last));
  cell({ class: "sweep" }, sweepWords(one));
  cell({ class: "num", "data-unit": "records" }, one.records === null ? "" : count(one.records));
  cell({ class: "num" }, bytes(one.bytes));
  return row;
}

function choices(select, all, named) {
  for (const [value, text] of all) put(select, "option", { value }, text);
  select.setAttribute("name", named);
}

function found() {
  const parts = byId("text").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = byId("state").value, cwd = byId("cwd").value;
  const right = (one) => (!state || one.state === state || (state === "odd" && one.verdict)) && (!cwd || one.cwd === cwd) && parts.every((part) => one.hay.includes(part));
  const value = COLUMNS.find(([name]) => name === order.by)[3];
  const sign = order.down ? -1 : 1;
  const compare = (one, other) => {
    const a = value(one), b = value(other);
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "string" ? collator.compare(a, b) : a - b) || other.last - one.last;
  };
  return data.sessions.filter(right).sort(compare);
}

function show() {
  const all = found();
  byId("rows").replaceChildren(...all.slice(0, limit).map((one) => (one.row ??= rowOf(one))));
  byId("shown").textContent = all.length === data.sessions.length ? some(all.length, "chat", "chats") : `${count(all.length)} of ${some(data.sessions.length, "chat", "chats")}`;
  byId("more").hidden = all.length <= limit;
  byId("more").textContent = `Show the other ${count(all.length - limit)}`;
  for (const [name] of COLUMNS) {
    const head = byId(`head-${name}`);
    if (name === order.by) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  byId("order").value = `${order.by} ${order.down ? "down" : "up"}`;
}

function table() {
  for (const [name, text, kind] of COLUMNS) {
    const head = put(byId("heads"), "th", { role: "columnheader", scope: "col", id: `head-${name}`, class: kind.replace(name, `c-${name}`) });
    put(head, "button", { type: "button" }, text).addEventListener("click", () => {
      order.down = order.by === name ? !order.down : !["title", "state", "sweep"].includes(name);
      order.by = name;
      show();
    });
  }
  choices(byId("state"), [["", `All (${count(data.sessions.length)})`], ...STATES.map(([state, , name]) => [state, `${name} (${count(tally[state])})`]), ["odd", `Not as it should be (${count(data.sessions.filter((one) => one.verdict).length)})`]], "state");
  const places = new Map();
  for (const one of data.sessions) places.set(one.cwd, (places.get(one.cwd) ?? 0) + 1);
  const sorted = [...places].sort((one, other) => other[1] - one[1] || (one[0] < other[0] ? -1 : 1));
  choices(byId("cwd"), [["", `All (${count(places.size)})`], ...sorted.map(([cwd, number]) => [cwd, `${cwd} (${count(number)})`])], "cwd");
  choices(byId("order"), [["last down", "Last used"], ["last up", "Longest unused"], ["sweep up", "Sweep, the next first"], ["sweep down", "Sweep, the last first"], ["title up", "Title"], ["title down", "Title, from the end"], ["state up", "State"], ["state down", "State, rescued first"], ["records down", "Records, most first"], ["records up", "Records, fewest first"], ["bytes down", "Size, largest first"], ["bytes up", "Size, smallest first"]], "order");
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  const again = () => { limit = FIRST; show(); };
  byId("text").addEventListener("input", again);
  for (const name of ["cwd", "state"]) byId(name).addEventListener("change", again);
  byId("order").addEventListener("change", (event) => {
    [order.by, order.down] = [event.target.value.split(" ")[0], event.target.value.endsWith("down")];
    again();
  });
  byId("more").addEventListener("click", () => { limit = Infinity; show(); });
  show();
}

function foot() {
  const say = (...inside) => put(byId("foot"), "p", {}, ...inside);
  say("This file holds the titles of your chats and the directories that they were in. It is readable by you alone where keeper wrote it; think before you pass it on. It loads nothing and sends nothing.");
  for (const one of data.profiles) say(words(one.there ? `${one.path}: swept of what was not touched for ${one.days} days, by ${one.file || "Claude's own default"}.` : `${one.path}: not there now.`));
  say(`keeper ${data.version}. Seals, the vault's compressed second copies: ${bytes(data.bytes.seals)}.`);
}

byId("theme").addEventListener("change", (event) => {
  if (event.target.value) document.documentElement.dataset.theme = event.target.value;
  else delete document.documentElement.dataset.theme;
});
notices();
tiles();
chatsOverTime();
growth();
happened();
table();
foot();
