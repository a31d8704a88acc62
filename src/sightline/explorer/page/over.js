// What lies over the picture, and the legend that explains it.

import { cellsOf, chipsOf, extremes, heatOf } from "./drawing.js";
import { OTHER } from "./colours.js";
import { cellAt } from "./state.js";
import { number, percent } from "./words.js";

const NAMES = { lens: "the logit lens", colours: "features as colours", rollout: "rollout", norms: "norms of tokens" };

/** A canvas of one pixel a cell (or none) and a legend, of what the state shows of a view. */
export function overOf(state, looking, model, layer, head) {
  if (state.show === "nothing") return { legend: { title: "the picture alone" } };
  if (state.show === "attention") return attentionOf(looking.attention, layer, head);
  if (!model.overlays.includes(state.show)) return { legend: { title: `${NAMES[state.show]}: not of this model` } };
  const part = looking.overlay(state.show, layer);
  if (!part) return { legend: { title: `${NAMES[state.show]} of layer ${layer} is not here` } };
  const { rows, cols } = part;
  if (state.show === "colours") {
    const canvas = cellsOf(rows, cols, (i) => part.colours.subarray(3 * i, 3 * i + 3));
    return { canvas, legend: { title: `layer ${layer}: three principal components as red, green and blue; alike patches have alike colours` } };
  }
  if (state.show === "lens") {
    const at = cellAt(state.place, [rows, cols]);
    const here = at.row * cols + at.col;
    const byPatch = !looking.query.startsWith("prefix:");
    const chips = chipsOf(part);
    const colours = new Map(chips.map((one) => [one.name, one.colour]));
    const colour = (i) => colours.get(part.names[part.index[i]]) ?? OTHER;
    const canvas = cellsOf(rows, cols, (i) => [...colour(i), 0.25 + 0.75 * part.probability[i]]);
    const said = `, here: ${part.names[part.index[here]]}, ${percent(part.probability[here])}`;
    const title = `layer ${layer}${byPatch ? said : ": the class of each patch"}`;
    return { canvas, legend: { title, chips } };
  }
  if (state.show === "rollout") {
    const { high } = extremes(part.values);
    return { canvas: heatOf(part.values, rows, cols, 0, high), legend: { title: `rollout, layers 0 to ${layer}`, low: "0", high: percent(high) } };
  }
  const { low, high } = extremes(part.values);
  return { canvas: heatOf(part.values, rows, cols, low, high), legend: { title: `norms, layer ${layer}`, low: number(low), high: number(high) } };
}

function attentionOf(attention, layer, head) {
  if (!attention) return { legend: {} };
  const { rows, cols, heads, maps } = attention;
  const first = (layer * heads + head) * rows * cols;
  const { high } = extremes(maps, first, rows * cols);
  return { canvas: heatOf(maps, rows, cols, 0, high, first), legend: { title: "attention a patch", low: "0", high: percent(high) } };
}
