"use strict";
const POLL_MS = 400; // from one answer to the next question
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

const STAGES = {
  home: "home's services", broker: "Mosquitto", forwarder: "forwarder", rule: "IoT Core's rule",
  routers: "routers", inboxes: "inboxes", archive: "archive (S3)",
};
const LINKS = [
  ["home", "broker"], ["broker", "forwarder"], ["forwarder", "rule"], ["rule", "routers"], ["routers", "inboxes"],
  ["rule", "archive"], ["routers", "archive"],
];
const WIDE = {
  size: [1000, 250],
  at: {home: [85, 60], broker: [250, 60], forwarder: [415, 60], rule: [585, 60], routers: [750, 60], inboxes: [915, 60], archive: [668, 190]},
};
const NARROW = {
  size: [350, 590],
  at: {home: [90, 45], broker: [90, 145], forwarder: [90, 245], rule: [90, 345], routers: [90, 445], inboxes: [90, 545], archive: [265, 395]},
};
const BOX = [146, 66];
const narrow = matchMedia("(max-width: 45rem)");

let drawn = null; // the elements of the drawing, by stage and by link
let before = {};
let commands = "";
let rollout = "";
let eventRows = new Map(); // the rows of the table by event
let offered = ""; // the contract that the offers are of
let offers = [];

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function shape(tag, attributes, parent) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}

function draw() {
  const {size, at} = narrow.matches ? NARROW : WIDE;
  const svg = byId("flow");
  svg.setAttribute("viewBox", `0 0 ${size[0]} ${size[1]}`);
  svg.style.maxWidth = narrow.matches ? "26rem" : "";
  // The flow's words are in a line of text below; a reader of the screen gets that.
  svg.replaceChildren();
  drawn = {stages: {}, links: {}};
  for (const [from, to] of LINKS) {
    const [x, y] = at[from], [toX, toY] = at[to];
    drawn.links[`${from}-${to}`] = shape("path", {d: `M${x} ${y}L${toX} ${toY}`}, svg);
  }
  for (const [stage, name] of Object.entries(STAGES)) {
    const [x, y] = at[stage];
    const group = shape("g", {"data-stage": stage}, svg);
    shape("rect", {x: x - BOX[0] / 2, y: y - BOX[1] / 2, width: BOX[0], height: BOX[1], rx: 6}, group);
    shape("text", {x, y: y - 12, class: "name"}, group).textContent = name;
    drawn.stages[stage] = {
      group, passed: shape("text", {x, y: y + 6}, group), note: shape("text", {x, y: y + 23, class: "note"}, group),
    };
  }
}

const number = (value) => (value === null ? "-" : value.toLocaleString("en"));

function time(ms) {
  if (ms === null) return "-";
  return ms < 1000 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function showFlow(state) {
  const said = [];
  for (const [stage, name] of Object.entries(STAGES)) {
    const {is_up, passed, waiting, note} = state.stages[stage] || {is_up: true, passed: null, waiting: null, note: ""};
    const {group, passed: count, note: line} = drawn.stages[stage];
    group.classList.toggle("down", !is_up);
    count.textContent = passed === null ? "" : `${number(passed)} passed`;
    const news = [is_up ? "" : note || "down", waiting ? `${number(waiting)} waiting` : "", is_up ? note : ""];
    line.textContent = news.filter(Boolean).join(", ");
    said.push(`${name}: ${[count.textContent, line.textContent].filter(Boolean).join(", ") || "idle"}`);
  }
  for (const [from, to] of LINKS) {
    const passed = state.stages[to]?.passed ?? 0;
    const link = drawn.links[`${from}-${to}`];
    link.classList.toggle("live", passed > (before[to] ?? passed));
    link.classList.toggle("cut", from === "forwarder" && state.active.includes("network"));
  }
  before = Object.fromEntries(Object.keys(STAGES).map((stage) => [stage, state.stages[stage]?.passed ?? 0]));
  byId("flow-text").textContent = said.join("; ") + (state.active.includes("network") ? "; the network is cut" : "");
}

function why(routes, of, open) {
  const details = element("details"), summary = element("summary", `by ${routes.map(([name]) => name).join(" → ")}`, "dim");
  summary.dataset.of = of;
  details.open = open.has(of);
  details.append(summary);
  for (const [name, condition] of routes) details.append(element("div", `${name}: ${condition}`, "dim"));
  return details;
}

// A row whose event is as it was stays. A row that is made anew keeps what a reader has opened, and the focus.
function showEvents(shown) {
  const rows = new Map(), table = byId("events"), focused = document.activeElement;
  const open = new Set([...table.querySelectorAll("details[open] > summary")].map((each) => each.dataset.of));
  for (const event of shown) {
    const text = JSON.stringify(event), key = JSON.stringify([event.source, event.id]);
    const known = eventRows.get(key);
    rows.set(key, known?.text === text ? known : {text, row: showEvent(event, key, open)});
  }
  eventRows = rows;
  const wanted = [...rows.values()].map((each) => each.row);
  for (const row of [...table.children]) if (!wanted.includes(row)) row.remove();
  wanted.forEach((row, place) => table.children[place] === row || table.insertBefore(row, table.children[place] || null));
  byId("no-events").hidden = shown.length > 0;
  if (focused.isConnected) return;
  const same = [...table.querySelectorAll("[data-of]")].find((each) => each.dataset.of === focused.dataset.of);
  (same || table.closest(".scroll")).focus();
}

function showEvent(event, key, open) {
  const row = element("tr");
  const head = element("th");
  head.scope = "row";
  head.append(element("b", event.type), " ", element("span", event.priority, event.priority === "urgent" ? "badge urgent" : "badge"));
  const trace = question("Trace", "trace", [event.source, event.id], `trace ${event.id}`);
  trace.dataset.of = `trace ${key}`;
  head.append(element("div", event.id, "dim"), trace);
  row.append(head, element("td", new Date(event.sent_ms).toLocaleTimeString("en-GB")), element("td", event.source, "words wrap"));
  const places = element("ul");
  for (const {inbox, routes, after_ms, copies, account, fate} of event.deliveries) {
    const place = element("li", undefined, fate === "lost" ? "bad-news" : "");
    const news = [account, after_ms === null ? "" : `after ${time(after_ms)}`, copies > 1 ? `${copies} copies` : ""];
    place.append(element("b", inbox), ` ${news.filter(Boolean).join(", ")} `, routes.length ? why(routes, key + inbox, open) : element("span", "by no route of the contract", "dim"));
    places.append(place);
  }
  if (!event.deliveries.length) places.append(element("li", `nobody: ${event.nobody}`, "dim"));
  const cell = element("td", undefined, "words");
  cell.append(places);
  row.append(cell);
  const all = event.deliveries.length && event.deliveries.every((each) => each.after_ms !== null);
  row.className = all ? "arrived" : "open";
  row.dataset.id = event.id;
  return row;
}

function showButtons(state) {
  for (const button of document.querySelectorAll("[data-fault]")) {
    const on = state.active.includes(button.dataset.fault);
    button.dataset.on = on ? "yes" : "no";
    const {strike, heal} = button.dataset;
    if (heal) button.setAttribute("aria-pressed", on);
    else button.setAttribute("aria-disabled", on); // a disabled button would lose the focus
    const text = !on ? strike : heal || `${strike}: restarting`;
    if (button.textContent !== text) button.textContent = text;
  }
}

function showReaders(readers) {
  const place = byId("readers"), names = Object.keys(readers);
  if (names.join() !== [...place.children].map((each) => each.dataset.reader).join()) {
    place.replaceChildren(...names.map((name) => {
      const button = element("button", undefined, "action reader");
      button.dataset.reader = name;
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") === "true";
        act(on ? "DELETE" : "POST", `readers/${name}`, () => `${name}: ${on ? "only a program of your own reads it now" : "each event is taken as it comes"}.`);
      });
      return button;
    }));
    if (!names.length) place.textContent = "No route of this contract leads to an inbox that a program reads; add one, then make publish.";
  }
  for (const button of place.children) {
    button.setAttribute("aria-pressed", readers[button.dataset.reader]);
    const text = `${readers[button.dataset.reader] ? "Stop reading" : "Read"} ${button.dataset.reader}`;
    if (button.textContent !== text) button.textContent = text;
  }
}

async function takeOffers(contract) {
  if (offered === contract) return;
  const chosen = byId("offer").value;
  offers = await ask("GET", "offers");
  offered = contract;
  byId("offer").replaceChildren(...offers.map(({sender, type, priority}) => {
    const option = element("option", `${type} from ${sender}${priority === "urgent" ? ", urgent" : ""}`);
    option.value = `${sender} ${type}`;
    return option;
  }));
  byId("sending").hidden = !offers.length;
  byId("no-offers").hidden = offers.length > 0;
  if (offers.some(({sender, type}) => `${sender} ${type}` === chosen)) byId("offer").value = chosen;
  else choose();
}

function choose() {
  const {event, problem} = offers[byId("offer").selectedIndex] || {event: {}, problem: ""};
  byId("event").value = JSON.stringify(event, null, 2);
  byId("editing").open = byId("editing").open || Boolean(problem);
  if (problem) byId("said").textContent = problem;
}

function question(text, name, words, label) {
  const button = element("button", text);
  if (label) button.setAttribute("aria-label", label);
  button.addEventListener("click", () => answer(name, words));
  return button;
}

async function answer(name, words = []) {
  const place = byId("answer");
  place.replaceChildren(element("p", "The answer is on its way ...", "dim"));
  place.focus();
  try {
    const {line, status, output} = await ask("POST", `ask/${name}`, JSON.stringify(words));
    const text = element("pre", output || "(it printed nothing)");
    text.tabIndex = 0;
    place.replaceChildren(element("p", `$ ${line}`), name === "letters" ? letters(output) || text : text, element("p", `exit status ${status}`, "dim"));
  } catch (error) {
    place.replaceChildren(element("p", error.message, "bad-news"));
  }
}

// What waits, by place, each with what can be done about it; undefined where the command did not print JSON.
function letters(output) {
  let queues;
  const at = output.search(/^{/m); // what is printed for people comes first
  try { ({queues} = JSON.parse(output.slice(at))); } catch { return undefined; }
  const full = queues.filter((each) => each.waiting || each.hidden);
  const list = element("ul", undefined, "plain");
  list.append(element("li", [output.slice(0, at).trim(), `${queues.length - full.length} of ${queues.length} queues are empty.`].filter(Boolean).join("; ")));
  list.lastChild.append(" ", question("Show the dead letters of the archive", "show-archived", []));
  for (const {title, waiting, hidden, looked, reasons} of full) {
    const row = element("li"), inbox = looked === null;
    const why = inbox ? "in the inbox, for its reader" : Object.entries(reasons).map((each) => each.join(" ")).join(", ");
    row.append(element("b", title), ` ${waiting} waiting${hidden ? `, ${hidden} being read` : ""}: ${why} `);
    row.append(question("Show", inbox ? "show-archived" : "show", inbox ? [] : [title], `show those of ${title}`), " ");
    row.append(question("Redrive", inbox ? "redrive-letters" : "redrive", inbox ? [] : [title], `redrive those of ${title}`));
    list.append(row);
  }
  return list;
}

function showVerdict({counters: {due, received, ended, lost}, stages}) {
  const waiting = due - received - ended - lost;
  const broken = Object.values(stages).filter((each) => !each.is_up).map((each) => each.note || "down");
  const words = [lost ? `${number(lost)} lost` : "", waiting > 0 ? `${number(waiting)} waiting` : "", ...broken].filter(Boolean);
  byId("verdict").textContent = words.join(", ") || "nothing lost";
  byId("verdict").className = `badge ${lost ? "broken" : words.length ? "open" : "good"}`;
}

function show(state) {
  showVerdict(state);
  byId("home").textContent = state.home;
  byId("contract").textContent = state.contract;
  for (const each of document.querySelectorAll("[data-counter]")) each.textContent = number(state.counters[each.dataset.counter]);
  document.querySelector("[data-counter=lost]").parentElement.className = state.counters.lost ? "bad" : "";
  for (const each of document.querySelectorAll("[data-latency]")) {
    const value = state.latency[each.dataset.latency];
    each.textContent = each.dataset.latency === "samples" ? number(value) : time(value);
  }
  showFlow(state);
  showButtons(state);
  showReaders(state.readers);
  showEvents(state.events);
  if (rollout !== state.rollout.join()) {
    rollout = state.rollout.join();
    byId("rollout").replaceChildren(...state.rollout.map((line) => element("li", line)));
    byId("rolling").hidden = !rollout;
  }
  const lines = JSON.stringify(state.commands);
  if (lines !== commands) {
    commands = lines;
    byId("lines").replaceChildren(...Object.entries(state.commands).flatMap(([what, line]) => {
      const command = element("dd");
      command.append(element("pre", line));
      return [element("dt", what), command];
    }));
    byId("commands").hidden = !Object.keys(state.commands).length;
  }
}

async function ask(method, path, body) {
  const answer = await fetch(path, {method, body});
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.error);
  return document;
}

async function act(method, path, done, body) {
  try {
    byId("said").textContent = done(await ask(method, path, body));
  } catch (error) {
    byId("said").textContent = `That did not work: ${error.message}`;
  }
}

async function poll() {
  try {
    const state = await ask("GET", "state");
    await takeOffers(state.contract);
    show(state);
    byId("silent").hidden = true;
    document.body.dataset.ready = "yes";
  } catch (error) {
    byId("why").textContent = error.message;
    byId("silent").hidden = false;
  }
  setTimeout(poll, POLL_MS);
}

byId("offer").addEventListener("change", choose);
byId("sending").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  const [sender] = byId("offer").value.split(" ");
  act("POST", `send/${sender}`, ({id}) => `Event ${id} is sent.`, byId("event").value);
});
for (const button of document.querySelectorAll("[data-ask]")) button.addEventListener("click", () => answer(button.dataset.ask));
for (const button of document.querySelectorAll("[data-fault]")) {
  button.addEventListener("click", () => {
    const {fault, on, strike, heal} = button.dataset;
    if (on === "yes" && !heal) return;
    act(on === "yes" ? "DELETE" : "POST", `faults/${fault}`, () => `${on === "yes" ? heal : strike}: done.`);
  });
}
narrow.addEventListener("change", draw);
draw();
poll();
