// Displays the values of a chart at the pointer. Without this file the browser displays a tooltip.
"use strict";

const texts = new WeakMap(); // strip of a chart: its values
let pointer = null; // last position, so that a swapped chart displays its values, too

// Taken from the title, which the browser would display as well.
function textOf(strip) {
  if (!texts.has(strip)) {
    texts.set(strip, strip.textContent);
    strip.replaceChildren();
  }
  return texts.get(strip);
}

function lineOf(text) {
  const line = document.createElement("p"), label = document.createElement("bdi");
  const value = document.createElement("b");
  const [, name, number] = /^(.*?)(?:\t([^\t]*))?$/s.exec(text);
  [label.textContent, value.textContent] = [name, number ?? ""];
  line.append(label, " ", value);
  return line;
}

function display() {
  for (const box of document.querySelectorAll(".readout")) box.hidden = true;
  const strip = pointer && document.elementFromPoint(...pointer)?.closest(".readings rect");
  if (!strip) return;
  const plot = strip.closest(".plot"), box = plot.querySelector(".readout");
  box.replaceChildren(...textOf(strip).split("\n").map(lineOf));
  const area = plot.querySelector(".readings").getBoundingClientRect();
  box.classList.toggle("left", pointer[0] > area.left + area.width / 2);
  box.hidden = false;
}

for (const kind of ["pointermove", "pointerdown"]) {
  addEventListener(kind, (event) => { pointer = [event.clientX, event.clientY]; display(); });
}
document.documentElement.addEventListener("pointerleave", () => { pointer = null; display(); });
document.addEventListener("htmx:afterSwap", display);
