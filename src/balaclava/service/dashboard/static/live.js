// Live parts: htmx polls every two seconds; an unchanged part is answered with 304.
"use strict";

const tags = new WeakMap(); // live element: ETag of its content
const failing = new Set(); // live elements whose last request failed
let pressed = false;
let leaving = false; // every live part redirects to the login page; only the first is followed

const isLive = (event) => event.detail.elt?.hasAttribute("data-live");

// A swap during a press or a selection would interrupt the reader.
addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel"]) {
  addEventListener(end, () => setTimeout(() => { pressed = false; }));
}

function isBusy(place) {
  const selection = getSelection();
  return pressed || (!selection.isCollapsed && selection.intersectsNode?.(place))
    || (!selection.isCollapsed && place.contains(selection.anchorNode));
}

function displayConnection() {
  const connected = failing.size === 0;
  for (const line of document.querySelectorAll(".connection")) {
    if (line.hidden === connected) continue;
    line.hidden = connected;
    line.textContent = connected ? "" : "No answer from the service; trying again.";
  }
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (isLive(event) && (document.hidden || isBusy(event.detail.elt))) event.preventDefault();
});

document.addEventListener("htmx:configRequest", (event) => {
  const tag = isLive(event) && tags.get(event.detail.elt);
  if (tag) event.detail.headers["If-None-Match"] = tag;
});

document.addEventListener("htmx:beforeSwap", (event) => {
  if (isLive(event) && isBusy(event.detail.elt)) event.detail.shouldSwap = false;
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (isLive(event)) tags.set(event.detail.elt, event.detail.xhr.getResponseHeader("ETag"));
});

document.addEventListener("htmx:afterRequest", (event) => {
  if (!isLive(event)) return;
  const answered = [200, 304].includes(event.detail.xhr.status);
  failing[answered ? "delete" : "add"](event.detail.elt);
  displayConnection();
});

document.addEventListener("htmx:beforeOnLoad", (event) => {
  if (!event.detail.xhr.getResponseHeader("HX-Redirect")) return;
  if (leaving) event.preventDefault();
  leaving = true;
});
