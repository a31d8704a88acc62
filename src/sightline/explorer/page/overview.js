// All layers x heads as small maps on one canvas.

import { prepared, heatOf, extremes } from "./drawing.js";
import { isOff } from "./state.js";

const LABEL = 24;
const GAP = 3;
const LARGEST = 76;
const HIGHEST = 500;

/** How large one map is, and the whole: as wide as its column at most, and no higher than one sees at once. */
export function overviewSize(width, layers, heads, [rows, cols]) {
  const across = (width - LABEL) / heads;
  // A strip of an image would leave maps too low to see, or too high.
  const shape = Math.min(Math.max(rows / cols, 1 / 3), 1.5);
  const down = HIGHEST / layers / shape;
  const cell = Math.max(4, Math.min(across, down, LARGEST + GAP) - GAP);
  const tall = cell * shape;
  return { cell, tall, height: LABEL + layers * (tall + GAP), width };
}

/** The layer and head at a point of the canvas, or null. */
export function headAt(size, layers, heads, x, y) {
  const head = Math.floor((x - LABEL) / (size.cell + GAP));
  const layer = Math.floor((y - LABEL) / (size.tall + GAP));
  return layer >= 0 && layer < layers && head >= 0 && head < heads ? { layer, head } : null;
}

/** The largest value of all maps. */
export function largestOf(attention) {
  attention.largest ??= extremes(attention.maps).high;
  return attention.largest;
}

/** The maps as small canvases, made once for an answer and a scale. */
function mapsOf(attention, scaling) {
  attention.drawn ??= {};
  attention.drawn[scaling] ??= Array.from({ length: attention.layers * attention.heads }, (_, i) => {
    const cells = attention.rows * attention.cols;
    const high = scaling === "all" ? largestOf(attention) : extremes(attention.maps, i * cells, cells).high;
    return heatOf(attention.maps, attention.rows, attention.cols, 0, high, i * cells);
  });
  return attention.drawn[scaling];
}

export function drawOverview(canvas, size, layers, heads, shown) {
  const pen = prepared(canvas, size.width, size.height);
  const style = getComputedStyle(canvas);
  pen.font = `11px ${style.fontFamily}`;
  pen.fillStyle = style.color;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const every = size.cell < 14 ? 2 : 1;
  for (let head = 0; head < heads; head += every) {
    pen.fillText(head, LABEL + head * (size.cell + GAP) + size.cell / 2, LABEL / 2);
  }
  for (let layer = 0; layer < layers; layer += 1) {
    pen.fillText(layer, LABEL / 2 - 2, LABEL + layer * (size.tall + GAP) + size.tall / 2);
  }
  pen.imageSmoothingEnabled = shown.attention ? shown.attention.cols > size.cell : false;
  for (let layer = 0; layer < layers; layer += 1) {
    for (let head = 0; head < heads; head += 1) {
      const [x, y] = [LABEL + head * (size.cell + GAP), LABEL + layer * (size.tall + GAP)];
      drawMap(pen, x, y, size, layer, head, shown);
    }
  }
  const chosen = [LABEL + shown.head * (size.cell + GAP), LABEL + shown.layer * (size.tall + GAP)];
  pen.beginPath();
  pen.rect(chosen[0] - 1.5, chosen[1] - 1.5, size.cell + 3, size.tall + 3);
  pen.strokeStyle = style.backgroundColor;
  pen.lineWidth = 5;
  pen.stroke();
  pen.strokeStyle = style.outlineColor;
  pen.lineWidth = 3;
  pen.stroke();
}

function drawMap(pen, x, y, size, layer, head, shown) {
  const { attention } = shown;
  if (!attention) {
    pen.globalAlpha = 0.12;
    pen.fillRect(x, y, size.cell, size.tall);
    pen.globalAlpha = 1;
    return;
  }
  const off = isOff(shown.off, layer, head);
  pen.globalAlpha = off ? 0.3 : 1;
  pen.drawImage(mapsOf(attention, shown.scaling)[layer * attention.heads + head], x, y, size.cell, size.tall);
  pen.globalAlpha = 1;
  if (!off) return;
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x + size.cell, y + size.tall);
  pen.moveTo(x + size.cell, y);
  pen.lineTo(x, y + size.tall);
  pen.strokeStyle = pen.fillStyle;
  pen.lineWidth = 1.5;
  pen.stroke();
}
