// Hovering and highlighting; the rest of the page works without it.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  const most = 10; // lines of the tip
  let cache = {};

  const dataOf = key =>
    (cache[key] ??= JSON.parse(document.getElementById(key + "-data").textContent));

  // [kind, low, high] and a place from 0 to 1, as in chart_scales.py.
  const scaleOf = text => {
    const [kind, low, high] = text.split(",").map((part, i) => (i ? Number(part) : part));
    const clip = value => Math.min(Math.max(value, low), high);
    return kind === "log"
      ? value => Math.log(clip(value) / low) / Math.log(high / low)
      : value => (clip(value) - low) / (high - low);
  };

  const show = value =>
    value.toLocaleString("en", { maximumSignificantDigits: 4 });

  function highlight(figure, policy) {
    figure.classList.toggle("faded", policy !== null);
    for (const mark of figure.querySelectorAll("path.on")) mark.classList.remove("on");
    if (policy === null) return;
    for (const mark of figure.querySelectorAll(`.plot path[data-policy="${policy}"]`))
      mark.classList.add("on");
  }

  function describe(data, at, nearest) {
    const sorted = data.curves
      .map((curve, i) => ({ curve, near: i === nearest, mean: curve.mean[at] }))
      .sort((a, b) => b.mean - a.mean);
    const place = sorted.findIndex(entry => entry.near);
    const first = Math.max(0, Math.min(place - most / 2, sorted.length - most));
    tip.textContent = "";
    const head = document.createElement("div");
    head.textContent = "round " + data.rounds[at].toLocaleString("en");
    const table = document.createElement("table");
    for (const { curve, near, mean } of sorted.slice(first, first + most)) {
      const row = table.insertRow();
      row.insertCell().textContent = show(mean);
      row.insertCell().textContent = curve.label + " " + curve.scope;
      row.classList.toggle("near", near);
    }
    tip.append(head, table);
  }

  function wire() {
    cache = {};
    for (const plot of document.querySelectorAll(".plot[data-panel]")) {
      const svg = plot.querySelector("svg"), figure = plot.closest("figure");
      const x = scaleOf(plot.dataset.x), y = scaleOf(plot.dataset.y);
      svg.addEventListener("pointermove", event => {
        const data = dataOf(plot.dataset.panel), box = svg.getBoundingClientRect();
        const px = (event.clientX - box.left) / box.width;
        const py = 1 - (event.clientY - box.top) / box.height;
        let at = 0;
        data.rounds.forEach((round, i) => {
          if (Math.abs(x(round) - px) < Math.abs(x(data.rounds[at]) - px)) at = i;
        });
        let nearest = 0;
        const away = curve => Math.abs(y(curve.mean[at]) - py);
        data.curves.forEach((curve, i) => {
          if (away(curve) < away(data.curves[nearest])) nearest = i;
        });
        highlight(figure, data.curves[nearest].policy);
        describe(data, at, nearest);
        tip.hidden = false;
        const { offsetWidth: width, offsetHeight: height } = tip;
        const right = event.clientX + 16 + width < innerWidth;
        tip.style.left = Math.max(4, right ? event.clientX + 16 : event.clientX - width - 16) + "px";
        tip.style.top = Math.max(4, Math.min(event.clientY + 12, innerHeight - height - 4)) + "px";
      });
      svg.addEventListener("pointerleave", () => {
        highlight(figure, null);
        tip.hidden = true;
      });
    }

    for (const item of document.querySelectorAll("figure .legend li[data-policy]")) {
      const figure = item.closest("figure");
      item.addEventListener("pointerenter", () => highlight(figure, item.dataset.policy));
      item.addEventListener("pointerleave", () => highlight(figure, null));
    }
  }
  wire();
  addEventListener("redrawn", wire); // after the figures were replaced

  // Open every details element before printing.
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
})();
