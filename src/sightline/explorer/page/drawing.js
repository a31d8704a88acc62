// What is drawn: the picture with what lies over it, and the scale beside it. All sizes are CSS pixels.

import { OTHER, PIXELS, shade, colourOfClass, cssOf } from "./colours.js";

/** A canvas made sharp on this screen; what it gives back draws in CSS pixels. */
export function prepared(canvas, width, height) {
  const dense = window.devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * dense)), Math.max(1, Math.round(height * dense))];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** A canvas of one pixel a cell: values [rows, cols] from `low` to `high` as colours, from `first` on. */
export function heatOf(values, rows, cols, low, high, first = 0) {
  const canvas = new OffscreenCanvas(cols, rows);
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(cols, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const scale = high > low ? 255 / (high - low) : 0;
  for (let i = 0; i < rows * cols; i += 1) {
    const step = Math.round((values[first + i] - low) * scale) || 0;
    pixels[i] = PIXELS[step < 0 ? 0 : step > 255 ? 255 : step];
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** A canvas of one pixel a cell, with the colour bytes that `colour(cell)` gives, and how opaque it is (0 to 1). */
export function cellsOf(rows, cols, colour) {
  const canvas = new OffscreenCanvas(cols, rows);
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(cols, rows);
  for (let i = 0; i < rows * cols; i += 1) {
    const [r, g, b, opaque = 1] = colour(i);
    image.data.set([r, g, b, Math.round(255 * opaque)], 4 * i);
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

export function extremes(values, first = 0, count = values.length) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = first; i < first + count; i += 1) {
    if (values[i] < low) low = values[i];
    if (values[i] > high) high = values[i];
  }
  return { low, high };
}

/** Where the picture lies in a box, whole and in its middle. */
export function placed(width, height, [rows, cols]) {
  // Outlines at the picture's edge need room.
  const scale = Math.min((width - 6) / cols, (height - 6) / rows);
  return { left: (width - cols * scale) / 2, top: (height - rows * scale) / 2, width: cols * scale, height: rows * scale };
}

/** The picture in a box of width x height; gives where it lies. `shown` says what else is drawn. */
export function drawPicture(canvas, width, height, shown) {
  const pen = prepared(canvas, width, height);
  const [rows, cols] = shown.grid;
  const box = placed(width, height, shown.shape ?? shown.grid);
  pen.imageSmoothingEnabled = shown.picture && shown.picture.width > box.width;
  // Colours that lie over it must be those of the legend.
  if (shown.over) pen.filter = "grayscale(1)";
  if (shown.picture) pen.drawImage(shown.picture, box.left, box.top, box.width, box.height);
  pen.filter = "none";
  pen.imageSmoothingEnabled = false;
  if (shown.over) {
    pen.globalAlpha = shown.opacity;
    pen.drawImage(shown.over, box.left, box.top, box.width, box.height);
    pen.globalAlpha = 1;
  }
  const cell = { width: box.width / cols, height: box.height / rows };
  if (shown.lines && Math.min(cell.width, cell.height) >= 4) drawLines(pen, box, rows, cols);
  if (shown.visible) drawOutline(pen, box, shown.visible, rows, cols);
  if (shown.at) drawMark(pen, box.left + shown.at.col * cell.width, box.top + shown.at.row * cell.height, cell);
  return box;
}

function drawLines(pen, box, rows, cols) {
  pen.beginPath();
  for (let row = 0; row <= rows; row += 1) {
    const y = box.top + (row * box.height) / rows;
    pen.moveTo(box.left, y);
    pen.lineTo(box.left + box.width, y);
  }
  for (let col = 0; col <= cols; col += 1) {
    const x = box.left + (col * box.width) / cols;
    pen.moveTo(x, box.top);
    pen.lineTo(x, box.top + box.height);
  }
  twice(pen, "rgb(0 0 0 / .25)", 1.5, "rgb(255 255 255 / .3)", 0.5);
}

/** A dark line with a light one on it is seen on every ground. */
function twice(pen, under, wide, over, narrow) {
  pen.strokeStyle = under;
  pen.lineWidth = wide;
  pen.stroke();
  pen.strokeStyle = over;
  pen.lineWidth = narrow;
  pen.stroke();
}

function drawOutline(pen, box, visible, rows, cols) {
  const [w, h] = [box.width / cols, box.height / rows];
  const seen = (row, col) => row >= 0 && row < rows && col >= 0 && col < cols && visible[row * cols + col] === 1;
  pen.beginPath();
  for (let row = 0; row < rows; row += 1) {
    for (let col = 0; col < cols; col += 1) {
      if (!seen(row, col)) continue;
      const [x, y] = [box.left + col * w, box.top + row * h];
      const edge = (beside, x1, y1, x2, y2) => {
        if (beside) return;
        pen.moveTo(x1, y1);
        pen.lineTo(x2, y2);
      };
      edge(seen(row - 1, col), x, y, x + w, y);
      edge(seen(row + 1, col), x, y + h, x + w, y + h);
      edge(seen(row, col - 1), x, y, x, y + h);
      edge(seen(row, col + 1), x + w, y, x + w, y + h);
    }
  }
  pen.lineCap = "round";
  twice(pen, "#000", 4, "#ff9d5c", 2);
}

function drawMark(pen, x, y, cell) {
  pen.beginPath();
  const grown = Math.max(0, 8 - Math.min(cell.width, cell.height)) / 2;
  pen.rect(x - grown, y - grown, cell.width + 2 * grown, cell.height + 2 * grown);
  pen.lineJoin = "round";
  twice(pen, "#000", 5, "#fff", 2.5);
}

/** The scale of colours from left to right. */
export function drawBar(canvas, width, height) {
  const pen = prepared(canvas, width, height);
  for (let x = 0; x < width; x += 1) {
    pen.fillStyle = cssOf(shade(x / (width - 1)));
    pen.fillRect(x, 0, 1.5, height);
  }
}

/** A legend's parts in an element: a scale between two numbers, chips with names, or a sentence. */
export function fillLegend(element, legend) {
  element.replaceChildren();
  const text = (words, kind) => {
    const part = document.createElement("span");
    part.className = kind;
    part.textContent = words;
    element.append(part);
    return part;
  };
  if (legend.title) text(legend.title, "legend-title");
  if (legend.low !== undefined) {
    const bar = document.createElement("canvas");
    bar.className = "bar";
    text("", "scale-line").append(legend.low, bar, legend.high);
    drawBar(bar, 120, 12);
  }
  for (const chip of legend.chips ?? []) {
    const part = text("", "chip");
    const colour = document.createElement("i");
    colour.style.backgroundColor = cssOf(chip.colour);
    part.append(colour, chip.name);
  }
}

/** The classes of a lens by how many patches they have, with their colours; the rarest are grey and counted together. */
export function chipsOf(lens, most = 8) {
  const counts = new Map();
  for (const one of lens.index) counts.set(one, (counts.get(one) ?? 0) + 1);
  const order = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || a - b);
  // One that is left over is named as well.
  const named = order.length === most + 1 ? order.length : most;
  const chips = order.slice(0, named).map((one) => ({ name: lens.names[one], colour: colourOfClass(lens.names[one]) }));
  const rest = order.length - chips.length;
  return rest > 0 ? [...chips, { name: `${rest} other classes`, colour: OTHER }] : chips;
}
