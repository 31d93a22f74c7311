"use strict";
const search = document.getElementById("text");
const items = [...document.querySelectorAll("[data-words]")];

function show() {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const item of items) item.hidden = !wanted.every((word) => item.dataset.words.includes(word));
  for (const section of document.querySelectorAll("section[data-of]")) {
    const all = [...section.querySelectorAll("[data-words]")];
    const found = all.filter((item) => !item.hidden).length;
    section.querySelector(".count").textContent = found === all.length ? found : `${found} of ${all.length}`;
  }
}

// A link into the page leads to what it names, whatever is searched for, and opens it.
function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.hidden) { search.value = ""; show(); }
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
}

search.addEventListener("input", show);
addEventListener("hashchange", open);
show();
open();
document.body.dataset.ready = "yes";
