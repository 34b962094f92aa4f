// Lines over time, drawn as SVG: a figure whose caption tells the newest values in words.
import { drawing, element } from "./dom.js";

const WIDTH = 300, HEIGHT = 90;

// 1, 2 or 5 times a power of ten, at least `value`.
function roof(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((x) => x * power).find((x) => x >= value * (1 - 1e-9));
}

export function short(value) {
  if (value === null || !Number.isFinite(value))
    return "–";
  return value >= 10000 ? (value / 1000).toFixed(0) + "k" : value >= 100 || Number.isInteger(value) ? value.toFixed(0)
    : value >= 1 ? value.toFixed(1) : value.toPrecision(2);
}

export class Plot {
  // names: of its lines, at most four.
  constructor(title, unit, names, least = 1) {
    this.names = names;
    this.unit = unit;
    this.least = least; // of the top of the axis
    this.lines = names.map((_, i) => drawing("path", { class: "line line-" + i }));
    this.top = element("span", { class: "top" });
    this.values = names.map(() => element("b", {}));
    this.node = element("figure", { class: "plot" },
      element("figcaption", {}, element("strong", {}, title), " ", element("span", { class: "unit" }, unit),
        element("ul", {}, ...names.map((name, i) => element("li", { class: "key-" + i }, name + " ", this.values[i])))),
      element("div", { class: "field" }, this.top,
        drawing("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
          drawing("path", { class: "grid", d: `M0 ${HEIGHT / 2}H${WIDTH}M0 0.5H${WIDTH}M0 ${HEIGHT - 0.5}H${WIDTH}` }), ...this.lines)));
  }

  // rows: [[value of each line], ...], oldest first, null where there is none; `room`: how many fit.
  draw(rows, room) {
    const all = rows.flat().filter((x) => x !== null && Number.isFinite(x));
    const top = roof(Math.max(this.least, ...all));
    this.top.textContent = short(top);
    this.names.forEach((_, k) => {
      let path = "", pen = "M";
      rows.forEach((row, i) => {
        if (row[k] === null || !Number.isFinite(row[k])) {
          pen = "M";
          return;
        }
        const x = (WIDTH * (room - rows.length + i)) / (room - 1), y = 1 + (HEIGHT - 2) * (1 - row[k] / top);
        path += pen + x.toFixed(1) + " " + y.toFixed(1) + (pen === "M" ? "h0" : ""); // one alone is a dot
        pen = "L";
      });
      this.lines[k].setAttribute("d", path);
      this.values[k].textContent = short(rows.at(-1)?.[k] ?? null);
    });
  }
}
