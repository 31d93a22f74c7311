"use strict";
const PAGE = 50; // findings that are shown at a time
const byId = (id) => document.getElementById(id);
const findings = DATA.findings.map((row) => {
  const finding = Object.fromEntries(DATA.columns.map((name, place) => [name, row[place]]));
  [finding.time, finding.trace] = row.slice(DATA.columns.length);
  finding.text = row.filter((cell) => cell !== null).join(" ").toLowerCase();
  return finding;
});
const words = (name) => DATA.hops[name] || name.replaceAll("_", " ");

let chosen = {}; // what is filtered by, besides the controls: device, route, time (its beginning)
let shown = PAGE;

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function matches(finding, wanted) {
  return Object.entries(chosen).every(([name, value]) =>
      name === "time" ? finding.time.replace(" ", "T").startsWith(value) : finding[name] === value)
    && (!byId("kind").value || finding.kind === byId("kind").value)
    && (!byId("hop").value || finding.hop === byId("hop").value)
    && wanted.every((word) => finding.text.includes(word));
}

function line(finding) {
  const details = element("details", undefined, "finding");
  const summary = element("summary");
  const what = element("span", undefined, "what");
  what.append(element("span", words(finding.kind), DATA.broken.includes(finding.kind) ? "badge broken" : "badge"));
  what.append([finding.device, finding.sequence === null ? null : `#${finding.sequence}`].filter(Boolean).join(" ")
    || finding.source || "unnamed");
  const where = finding.route ? `${words(finding.hop)}, ${finding.route}` : words(finding.hop);
  summary.append(what, element("span", `${finding.time.slice(5)} ${where}: ${finding.detail}`, "more"));
  details.append(summary);
  details.addEventListener("toggle", () => details.childElementCount > 1 || details.append(...facts(finding)));
  return details;
}

function facts(finding) {
  const list = element("dl", undefined, "facts");
  for (const name of [...DATA.columns, "time"]) {
    if (finding[name] === null || finding[name] === "") continue;
    list.append(element("dt", name === "time" ? "accepted (UTC)" : words(name)), element("dd", finding[name]));
  }
  const follow = element("div", undefined, "follow");
  if (finding.trace) {
    follow.append(element("span", "Follow it:", "dim"), element("pre", finding.trace));
  } else {
    follow.append(element("span", "The archive does not know the event's name, so it cannot be traced: "
      + "the file above has what is known.", "dim"));
  }
  return [list, follow];
}

function show() {
  const wanted = byId("text").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = findings.filter((finding) => matches(finding, wanted));
  byId("findings").replaceChildren(...found.slice(0, shown).map(line));
  byId("count").textContent = found.length === 1 ? "1 matches" : `${found.length} match`;
  byId("more").hidden = found.length <= shown;
  byId("chips").replaceChildren(...Object.entries(chosen).map(([name, value]) => {
    const chip = element("button", `${words(name)} ${value} ✕`);
    chip.setAttribute("aria-label", `Do not filter by ${name} ${value}`);
    chip.addEventListener("click", () => { delete chosen[name]; show(); });
    return chip;
  }));
}

function drill({kind = "", hop = "", text = "", ...others}) {
  byId("kind").value = kind;
  byId("hop").value = hop;
  byId("text").value = text;
  chosen = others;
  shown = PAGE;
  show();
  byId("evidence").scrollIntoView({behavior: "smooth"});
}

// What a tap on a plot asks for.
const ASKED = {
  heat: (point) => ({device: point.y, time: point.x}),
  waterfall: (point) => ({kind: "lost", hop: point.data.customdata[point.pointNumber]}),
  duplicates: (point) => {
    const [hop, route] = point.data.customdata[point.pointNumber];
    return {kind: "duplicate", hop, ...(route && {route})};
  },
  letters: (point) => ({text: point.data.customdata[point.pointNumber] || ""}),
};

for (const id of ["text", "kind", "hop"]) byId(id).addEventListener("input", () => { shown = PAGE; show(); });
byId("more").addEventListener("click", () => { shown += PAGE; show(); });
for (const button of document.querySelectorAll("button[data-drill]"))
  button.addEventListener("click", () => drill(JSON.parse(button.dataset.drill)));
for (const [name, plot] of Object.entries(DATA.plots)) {
  Plotly.newPlot(name, plot.data, plot.layout, {responsive: true, displayModeBar: false});
  if (ASKED[name]) byId(name).on("plotly_click", (event) => drill(ASKED[name](event.points[0])));
}
show();
document.body.dataset.ready = "yes";
