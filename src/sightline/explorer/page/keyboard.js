// Keys of the picture and of the overview. They work where one of the two is in focus, and nowhere else.

import { cellAt, clamp, placeOf } from "./state.js";

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** The layer and head beside the chosen ones. */
function besideHead(pane, [down, right]) {
  const { layer, head } = pane.chosen;
  return { layer: clamp(layer + down, 0, pane.model.depth - 1), head: clamp(head + right, 0, pane.model.heads - 1) };
}

function cellFor(key, { row, col }, [rows, cols]) {
  if (key === "Home") return { row, col: 0 };
  if (key === "End") return { row, col: cols - 1 };
  if (key === "PageUp") return { row: 0, col };
  if (key === "PageDown") return { row: rows - 1, col };
  const step = STEPS[key];
  return step ? { row: clamp(row + step[0], 0, rows - 1), col: clamp(col + step[1], 0, cols - 1) } : null;
}

function onPicture(app, pane, event) {
  const { shown } = pane;
  if (!shown) return false;
  if (event.shiftKey && STEPS[event.key]) {
    app.lookFrom(pane, besideHead(pane, STEPS[event.key]));
    return true;
  }
  const { grid, prefix } = shown.view;
  const cell = cellFor(event.key, cellAt(app.state.place, grid), grid);
  if (cell) {
    app.lookFrom(pane, { prefix: null, place: placeOf(cell, grid) });
    return true;
  }
  if (event.key === "p" && prefix.length) {
    const next = app.state.prefix === null ? 0 : app.state.prefix + 1;
    app.lookFrom(pane, { prefix: next < prefix.length ? next : null });
    return true;
  }
  return either(app, pane, event);
}

function onOverview(app, pane, event) {
  if (STEPS[event.key]) {
    app.lookFrom(pane, besideHead(pane, STEPS[event.key]));
    return true;
  }
  if (event.key === "Home" || event.key === "End") {
    app.lookFrom(pane, { ...pane.chosen, head: event.key === "Home" ? 0 : pane.model.heads - 1 });
    return true;
  }
  return either(app, pane, event);
}

function either(app, pane, event) {
  if (event.key === "o") app.switchHead(pane.side);
  else if (event.key === "Enter" || event.key === " ") app.say(true);
  else return false;
  return true;
}

export function listen(app, pane) {
  const on = (element, act) => {
    element.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (act(app, pane, event)) event.preventDefault();
    });
  };
  on(pane.picture, onPicture);
  on(pane.overview, onOverview);
}
