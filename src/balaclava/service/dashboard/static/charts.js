// The charts over time, with a pointer that reads them. The server has drawn them already, from
// the same curves: without this file they are only without the pointer.
"use strict";

const HEIGHT = 255, GAP = 17, EDGE = 7, DAY = 86400;
const section = document.querySelector("[data-history]");
const charts = new Map(); // by place: its chart
let tag = null, curves = null;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const armColour = (arm) => colour(arm.colour === "others" ? "--others" : `--c${arm.colour}`);
const family = () => getComputedStyle(document.body).fontFamily;

function part(seconds, options) {
  return new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options })
    .format(new Date(seconds * 1000));
}

// A moment for an axis that shows so many seconds.
function clock(at, shown) {
  const hours = { hour: "2-digit", minute: "2-digit" };
  if (shown < 600) return part(at, { ...hours, second: "2-digit" });
  if (shown < 2 * DAY) return part(at, hours);
  return part(at, shown < 300 * DAY ? { day: "numeric", month: "short" }
    : { month: "short", year: "numeric" });
}

function moment(at) {
  const date = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
  return `${part(at, { ...date, second: "2-digit" })} UTC`;
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = Array.from(text);
  while (letters.length && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

// Names at the right end of what they name, moved apart where they would cover one another.
function drawLabels(chart, ends, room) {
  const ratio = devicePixelRatio, { ctx: context, bbox } = chart;
  const places = ends.filter((end) => end.y !== null).sort((a, b) => a.y - b.y);
  let lowest = bbox.top / ratio + EDGE - GAP;
  for (const end of places) lowest = end.y = Math.max(end.y, lowest + GAP);
  let ceiling = (bbox.top + bbox.height) / ratio - EDGE;
  for (const end of [...places].reverse()) {
    end.y = Math.min(end.y, ceiling);
    ceiling = end.y - GAP;
  }
  context.save();
  context.font = `${13 * ratio}px ${family()}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const left = bbox.left + bbox.width + 8 * ratio;
  for (const end of places) {
    context.fillStyle = armColour(end.arm);
    context.fillRect(left, (end.y - 5) * ratio, 10 * ratio, 10 * ratio);
    context.fillStyle = colour("--ink");
    const text = fitted(context, end.arm.label, (room - 24) * ratio);
    context.fillText(text, left + 15 * ratio, end.y * ratio);
  }
  context.restore();
}

// What the pointer is at, on the side of the chart where the pointer is not.
function readOut(box, arms, say) {
  return (chart) => {
    const at = chart.cursor.idx;
    box.hidden = at === null || at === undefined;
    if (box.hidden) return;
    const entry = (name, text) => {
      const line = document.createElement("p"), label = document.createElement("bdi");
      const value = document.createElement("b");
      [label.textContent, value.textContent] = [name, text];
      line.append(label, " ", value);
      return line;
    };
    box.replaceChildren(
      entry(moment(curves.at[at]), ""), ...arms.map((arm, i) => entry(arm.label, say(i, at))),
    );
    const { left, width } = chart.over.getBoundingClientRect();
    const start = left - box.parentElement.getBoundingClientRect().left;
    const rightHalf = chart.cursor.left > width / 2;
    box.style.left = `${rightHalf ? start + 8 : start + width - box.offsetWidth - 8}px`;
  };
}

function options(place, box, { arms, say, ends, range, values, ...rest }) {
  const room = place.clientWidth < 480 ? 96 : 130;
  const axis = { stroke: colour("--muted"), font: `13px ${family()}`, ticks: { show: false } };
  const shown = curves.at.at(-1) - curves.at[0];
  return {
    width: place.clientWidth, height: HEIGHT, padding: [8, room, 0, 0], legend: { show: false },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, gap: 6, space: 80,
        values: (chart, ticks) => ticks.map((tick) => clock(tick, shown)) },
      { ...axis, grid: { stroke: colour("--grid"), width: 1 }, size: 48, gap: 6, values },
    ],
    hooks: {
      draw: [(chart) => drawLabels(chart, ends(chart), room)],
      setCursor: [readOut(box, arms, say)],
    },
    ...rest,
  };
}

const height = (chart, value) => chart.valToPos(value, "y", true) / devicePixelRatio;

function shares(place, box) {
  const others = curves.others ? [{ label: "others", colour: "others" }] : [];
  const arms = [...curves.arms, ...others];
  const columns = [...curves.shares, ...(curves.others ? [curves.others] : [])];
  const tops = []; // the first arm on top; each area goes down to 0, and the next covers it
  let upper = curves.at.map(() => 1);
  for (const column of columns) {
    tops.push(upper);
    upper = upper.map((top, i) => Math.max(top - column[i], 0));
  }
  const last = curves.at.length - 1;
  const look = options(place, box, {
    arms, range: [0, 1],
    say: (i, at) => `${(100 * columns[i][at]).toFixed(columns[i][at] < 0.0995 ? 1 : 0)} %`,
    ends: (chart) => arms.map((arm, i) =>
      ({ arm, y: height(chart, tops[i][last] - columns[i][last] / 2) })),
    values: (chart, ticks) => ticks.map((tick) => `${Math.round(100 * tick)} %`),
    series: [{}, ...arms.map((arm) => ({
      stroke: colour("--paper"), width: 1.5, fill: armColour(arm), points: { show: false },
    }))],
  });
  return [look, [curves.at, ...tops]];
}

function means(place, box) {
  const [low, high] = curves.range, arms = curves.arms;
  const digits = Math.min(Math.max(2 - Math.floor(Math.log10(high - low)), 0), 6);
  const text = (value) => value === null ? "–" : value.toFixed(digits);
  const series = [{}], bands = [], data = [curves.at];
  arms.forEach((arm, i) => {
    const edge = { width: 0, stroke: "transparent", points: { show: false } };
    bands.push({ series: [series.length, series.length + 1], fill: `${armColour(arm)}1c` });
    series.push(edge, edge);
    data.push(curves.high[i], curves.low[i]);
  });
  arms.forEach((arm, i) => {
    series.push({ stroke: armColour(arm), width: 2, points: { show: false } });
    data.push(curves.means[i]);
  });
  const latest = (column) => [...column].reverse().find((mean) => mean !== null) ?? null;
  const look = options(place, box, {
    arms, bands, series, range: [low, high],
    say: (i, at) => `${text(curves.means[i][at])} (${text(curves.low[i][at])} to ${
      text(curves.high[i][at])})`,
    ends: (chart) => arms.map((arm, i) => {
      const mean = latest(curves.means[i]);
      return { arm, y: mean === null ? null : height(chart, mean) };
    }),
  });
  return [look, data];
}

const kinds = { shares, means };

function draw() {
  for (const place of section.querySelectorAll("[data-chart]")) {
    if (curves.at.length < 2 || (place.dataset.chart === "means" && !curves.range)) continue;
    const holder = document.createElement("div"), box = document.createElement("div");
    holder.setAttribute("role", "img");
    holder.setAttribute("aria-label", place.dataset.title);
    box.className = "readout";
    box.hidden = true;
    box.setAttribute("aria-hidden", "true");
    const [look, data] = kinds[place.dataset.chart](place, box);
    const old = charts.get(place), { left = -1, top = -1 } = old?.cursor ?? {};
    look.hooks.ready = [(chart) => { if (left >= 0) chart.setCursor({ left, top }); }];
    old?.destroy();
    place.replaceChildren(holder, box);
    charts.set(place, new uPlot(look, data, holder));
  }
}

async function refresh() {
  const headers = tag ? { "If-None-Match": tag } : {};
  const answer = await fetch(section.dataset.history, { headers, cache: "no-store" });
  if (answer.status !== 200) return; // nothing new, or no answer: what stands there stays
  tag = answer.headers.get("ETag");
  curves = await answer.json();
  draw();
}

if (section) {
  const again = () => refresh().catch(() => {}); // what to say of the connection, live.js says
  again();
  document.addEventListener("htmx:afterSwap", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => curves && draw());
  let width = section.clientWidth;
  new ResizeObserver(() => {
    if (curves && section.clientWidth !== width) draw();
    width = section.clientWidth;
  }).observe(section);
}
