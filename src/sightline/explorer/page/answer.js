// The five likeliest classes, and beside them those with every head on.

import { percent } from "./words.js";

function cell(kind, text, scope) {
  const element = document.createElement(kind);
  element.textContent = text;
  if (/\d/.test(text)) element.className = "number";
  if (scope) element.scope = scope;
  return element;
}

function row(cells) {
  const element = document.createElement("tr");
  element.append(...cells);
  return element;
}

// Where a sigmoid reads them, classes do not share one sum.
function probabilityOf(scores) {
  return scores === "sigmoid" ? "Probability, each class by itself" : "Probability";
}

export function fillAnswer(element, view) {
  const text = view ? JSON.stringify([view.classes, view.whole]) : "";
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  const table = element.querySelector("table");
  const { classes = [], whole = null, scores = "softmax" } = view ?? {};
  element.hidden = Boolean(view) && classes.length === 0;
  table.caption.textContent = whole ? "Likeliest classes with heads switched off, and with all heads on" : "Likeliest classes";
  const titles = whole ? ["Class", "Heads off", "All on", "Change, points"] : ["Class", probabilityOf(scores)];
  table.tHead.replaceChildren(row(titles.map((title) => cell("th", title, "col"))));
  const before = new Map((whole ?? []).map((one) => [one.name, one.probability]));
  const names = new Set([...classes, ...(whole ?? [])].map((one) => one.name));
  const now = new Map(classes.map((one) => [one.name, one.probability]));
  table.tBodies[0].replaceChildren(
    ...[...names].map((name) => {
      const share = now.get(name);
      const first = cell("th", name, "row");
      first.style.setProperty("--share", `${100 * (share ?? 0)}%`);
      const cells = [first, cell("td", share === undefined ? "not among five" : percent(share))];
      if (whole) {
        const was = before.get(name);
        cells.push(cell("td", was === undefined ? "not among five" : percent(was)));
        const change = share === undefined || was === undefined ? "" : 100 * (share - was);
        cells.push(cell("td", change === "" ? "" : `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(Math.abs(change) < 0.1 ? 2 : 1)}`));
      }
      return row(cells);
    }),
  );
}
