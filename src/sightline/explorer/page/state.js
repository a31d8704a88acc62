// What one looks at, as one record, and the same as the part of the address after #.
// Rows, columns, layers and heads are counted from 0, as everywhere in Sightline.

export const SIDES = ["left", "right"];
export const COMPARES = ["none", "models", "sizes"];
export const SHOWS = ["attention", "rollout", "lens", "colours", "norms", "nothing"];

export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** The sides in pixels that a slider may take: multiples of the patch within the limit, which counts patches. */
export function sidesOf(model, limits) {
  const most = Math.max(1, Math.floor(Math.sqrt(limits.max_tokens)));
  return { low: model.patch_size, high: model.patch_size * most, step: model.patch_size };
}

/** The nearest side that the model's patch divides, within the limit. */
export function fittingSide(side, model, limits) {
  const { low, high, step } = sidesOf(model, limits);
  return clamp(Math.round(side / step) * step, low, high);
}

export function initialPane(model, limits) {
  return { model: model.id, size: fittingSide(Math.max(...model.image_size), model, limits), shape: "square", knob: null, off: [] };
}

export function initialState(session) {
  const left = initialPane(session.models[0], session.limits);
  const second = session.models[1];
  const right = second ? initialPane(second, session.limits) : { ...initialPane(session.models[0], session.limits) };
  return {
    image: session.images.length ? session.images[0].id : null,
    compare: second ? "models" : "none",
    show: "attention",
    layer: 0,
    head: 0,
    place: { y: 0.5, x: 0.5 },
    prefix: null,
    opacity: 65,
    grid: true,
    field: true,
    scaling: "each",
    panes: { left, right },
  };
}

/** What is asked of the server as `size`: a side, [height, width] or "native". */
export function askedSize(pane, model, image) {
  if (pane.size === "native" || pane.shape === "square" || !image) return pane.size;
  const longer = Math.max(image.height, image.width);
  const fit = (side) => Math.max(1, Math.round((side / longer) * (pane.size / model.patch_size))) * model.patch_size;
  return [fit(image.height), fit(image.width)];
}

/** The cell of a grid [rows, cols] at a place, whose y and x are shares of the picture's height and width. */
export function cellAt(place, [rows, cols]) {
  return { row: clamp(Math.floor(place.y * rows), 0, rows - 1), col: clamp(Math.floor(place.x * cols), 0, cols - 1) };
}

export function placeOf({ row, col }, [rows, cols]) {
  return { y: (row + 0.5) / rows, x: (col + 0.5) / cols };
}

/** The query as the server's address has it. */
export function queryOf(state, view) {
  if (state.prefix !== null && view.prefix.length) return `prefix:${Math.min(state.prefix, view.prefix.length - 1)}`;
  const { row, col } = cellAt(state.place, view.grid);
  return String(row * view.grid[1] + col);
}

/** The chosen layer and head, or the nearest that a model has. */
export function headOf(state, model) {
  return { layer: Math.min(state.layer, model.depth - 1), head: Math.min(state.head, model.heads - 1) };
}

export function isOff(off, layer, head) {
  return off.some(([l, h]) => l === layer && h === head);
}

/** `off` with heads switched off, or on again where all of them are off. */
export function switched(off, heads) {
  const all = heads.every(([l, h]) => isOff(off, l, h));
  const others = off.filter(([l, h]) => !isOff(heads, l, h));
  const next = all ? others : [...others, ...heads.map(([l, h]) => [l, h])];
  return next.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}

export function linkOf(state, session) {
  const words = new URLSearchParams();
  const image = session.images.find((one) => one.id === state.image);
  if (image) {
    words.set("image", image.id);
    words.set("name", image.name);
  }
  for (const key of ["compare", "show", "layer", "head", "opacity", "scaling"]) words.set(key, state[key]);
  for (const key of ["grid", "field"]) if (!state[key]) words.set(key, "off");
  words.set("at", [state.place.y, state.place.x].map((share) => share.toFixed(5)).join(","));
  if (state.prefix !== null) words.set("prefix", state.prefix);
  for (const side of state.compare === "none" ? ["left"] : SIDES) {
    const pane = state.panes[side];
    words.set(`${side}.model`, pane.model);
    words.set(`${side}.size`, pane.size);
    if (pane.shape !== "square") words.set(`${side}.shape`, pane.shape);
    if (pane.knob !== null) words.set(`${side}.knob`, pane.knob);
    if (pane.off.length) words.set(`${side}.off`, pane.off.map((one) => one.join(".")).join("_"));
  }
  return `#${words.toString().replaceAll("%2C", ",")}`;
}

/** The state that a link names, and sentences about what of it is not here. */
export function stateOf(link, session) {
  const state = initialState(session);
  const words = new URLSearchParams(link.replace(/^#/, ""));
  const said = [];
  const whole = (key, low, high, otherwise) => {
    if (!words.has(key)) return otherwise;
    const value = Number(words.get(key));
    if (Number.isInteger(value) && value >= low && value <= high) return value;
    said.push(`The link's ${key} is ${words.get(key) || "empty"}, which is not here; ${otherwise ?? "none"} is shown.`);
    return otherwise;
  };
  const among = (key, allowed, otherwise) => (allowed.includes(words.get(key)) ? words.get(key) : otherwise);
  if (words.has("image")) {
    const [id, name] = [words.get("image"), words.get("name")];
    const named = session.images.filter((one) => name === null || one.name === name);
    const found = named.find((one) => one.id === id) ?? (name === null ? undefined : named[0]);
    if (found) state.image = found.id;
    else said.push(`The link's image${name ? `, ${name},` : ""} is not here: open it again, or choose another.`);
  }
  state.compare = among("compare", COMPARES, words.has("left.model") ? "none" : state.compare);
  state.show = among("show", SHOWS, state.show);
  state.scaling = among("scaling", ["each", "all"], state.scaling);
  for (const key of ["grid", "field"]) state[key] = words.get(key) !== "off";
  state.opacity = whole("opacity", 0, 100, state.opacity);
  readPane("left", words, whole, state, session);
  // Two sizes are of one model, unless the link says otherwise.
  if (state.compare === "sizes") state.panes.right = initialPane(session.models[state.panes.left.model], session.limits);
  readPane("right", words, whole, state, session);
  const shown = (state.compare === "none" ? ["left"] : SIDES).map((side) => session.models[state.panes[side].model]);
  state.layer = whole("layer", 0, Math.max(...shown.map((one) => one.depth)) - 1, 0);
  state.head = whole("head", 0, Math.max(...shown.map((one) => one.heads)) - 1, 0);
  state.prefix = whole("prefix", 0, Math.max(...shown.map((one) => one.prefix.length)) - 1, null);
  const at = (words.get("at") ?? "").split(",").map(Number);
  if (at.length === 2 && at.every((share) => share >= 0 && share <= 1)) state.place = { y: at[0], x: at[1] };
  return { state, said };
}

function readPane(side, words, whole, state, session) {
  const pane = state.panes[side];
  const id = whole(`${side}.model`, 0, session.models.length - 1, pane.model);
  const model = session.models[id];
  if (id !== pane.model) Object.assign(pane, initialPane(model, session.limits));
  const size = words.get(`${side}.size`);
  if (size === "native") pane.size = size;
  else if (Number(size) > 0) pane.size = fittingSide(Number(size), model, session.limits);
  if (words.get(`${side}.shape`) === "image") pane.shape = "image";
  const knob = Number(words.get(`${side}.knob`));
  if (model.knob && words.has(`${side}.knob`) && Number.isFinite(knob)) pane.knob = knob;
  pane.off = (words.get(`${side}.off`) ?? "").split("_").map((one) => one.split(".").map(Number));
  const here = (one, most) => Number.isInteger(one) && one >= 0 && one < most;
  pane.off = pane.off.filter(([l, h]) => here(l, model.depth) && here(h, model.heads));
}
