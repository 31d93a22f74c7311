"use strict";
const PAGE = 50; // findings that are shown at a time
const byId = (id) => document.getElementById(id);
const findings = DATA.findings.map((row) => {
  const finding = Object.fromEntries(DATA.columns.map((name, place) => [name, row[place]]));
  [finding.time, finding.trace] = row.slice(DATA.columns.length);
  finding.at_ms = finding.time ? Date.parse(finding.time.replace(" ", "T") + "Z") : null;
  finding.text = row.filter((cell) => cell !== null).join(" ").toLowerCase();
  return finding;
});
const words = (name) => DATA.hops[name] || name.replaceAll("_", " ");

let chosen = {}; // what is filtered by, besides the controls: device, route, archive_file, from_ms, until_ms
let shown = PAGE;

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const FILTERS = {
  from_ms: (finding, from) => finding.at_ms >= from,
  until_ms: (finding, until) => finding.at_ms < until,
};

function found() {
  const wanted = byId("text").value.toLowerCase().split(/\s+/).filter(Boolean);
  return findings.filter((finding) =>
    Object.entries(chosen).every(([name, value]) => (FILTERS[name] || ((each) => each[name] === value))(finding, value))
    && (!byId("kind").value || finding.kind === byId("kind").value)
    && (!byId("hop").value || finding.hop === byId("hop").value)
    && wanted.every((word) => finding.text.includes(word)));
}

function line(finding) {
  const details = element("details", undefined, "finding");
  const summary = element("summary");
  const what = element("span", undefined, "what");
  what.append(element("span", words(finding.kind), DATA.broken.includes(finding.kind) ? "badge broken" : "badge"));
  what.append([finding.device, finding.sequence === null ? null : `#${finding.sequence}`].filter(Boolean).join(" ")
    || finding.source || finding.archive_file || "unnamed");
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
    const value = element("dd");
    if (name === "archive_file" && DATA.objects) {
      const link = element("a", finding[name]);
      link.href = DATA.objects + finding[name].split("/").map(encodeURIComponent).join("/");
      value.append(link);
    } else {
      value.append(String(finding[name]));
    }
    list.append(element("dt", name === "time" ? "accepted (UTC)" : words(name)), value);
  }
  const follow = element("div", undefined, "follow");
  if (finding.trace) {
    follow.append(element("span", "Trace it:", "dim"), element("pre", finding.trace));
  } else {
    follow.append(element("span", "The archive does not know the event's name, so it cannot be traced: "
      + "the object above has what is known.", "dim"));
  }
  return [list, follow];
}

function show() {
  const all = found();
  byId("findings").replaceChildren(...all.slice(0, shown).map(line));
  byId("count").textContent = all.length === 1 ? "1 matches" : `${all.length} match`;
  byId("more").hidden = all.length <= shown;
  byId("chips").replaceChildren(...Object.entries(chosen).filter(([name]) => name !== "until_ms").map(([name, value]) => {
    const told = name === "from_ms" ? `from ${new Date(value).toISOString().slice(0, 16)}` : `${words(name)} ${value}`;
    const chip = element("button", `${told} ✕`);
    chip.setAttribute("aria-label", `Do not filter by ${told}`);
    chip.addEventListener("click", () => {
      delete chosen[name];
      if (name === "from_ms") delete chosen.until_ms;
      show();
      (byId("chips").querySelector("button") || byId("text")).focus(); // the chip that had it is gone
    });
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

function save(name, rows) {
  // A spreadsheet runs a cell that begins with one of these.
  const safe = (cell) => (/^[=+\-@\t\r]/.test(cell) && isNaN(cell) ? `'${cell}` : cell);
  const cells = rows.map((row) => row.map((cell) => `"${safe(String(cell ?? "")).replaceAll('"', '""')}"`).join(","));
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([cells.join("\r\n") + "\r\n"], {type: "text/csv"}));
  link.download = `audit-${name.replaceAll(" ", "-")}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}

for (const table of document.querySelectorAll("table[data-csv]")) {
  const button = element("button", "CSV", "csv");
  button.setAttribute("aria-label", `Export ${table.dataset.csv} as CSV`);
  button.addEventListener("click", () =>
    save(table.dataset.csv, [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()))));
  (table.closest(".scroll") || table).after(button);
}
byId("csv").addEventListener("click", () =>
  save("findings", [[...DATA.columns, "time"], ...found().map((each) => [...DATA.columns, "time"].map((name) => each[name]))]));
for (const id of ["text", "kind", "hop"]) byId(id).addEventListener("input", () => { shown = PAGE; show(); });
byId("more").addEventListener("click", () => {
  const next = shown;
  shown += PAGE;
  show();
  if (byId("more").hidden) byId("findings").children[next].firstChild.focus();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-drill]");
  if (button) drill(JSON.parse(button.dataset.drill));
});
show();
document.body.dataset.ready = "yes";
