"use strict";
// What scrolls gets the focus, which Material gives to mice only; the buttons of a block of code are no landmark.
function adapt() {
  for (const each of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    if (each.tabIndex === 0) continue;
    each.tabIndex = 0;
    each.setAttribute("role", "group");
    each.setAttribute("aria-label", each.matches("code") ? "Code" : "Table");
  }
  for (const each of document.querySelectorAll(".md-code__nav")) each.setAttribute("role", "presentation");
}
const changes = {childList: true, subtree: true, attributeFilter: ["tabindex"]};
new MutationObserver(adapt).observe(document.querySelector(".md-content"), changes);
adapt();
