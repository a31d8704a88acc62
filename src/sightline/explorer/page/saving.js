// What one takes away: a picture of the panes, and a page that works without the server.

import { drawBar } from "./drawing.js";
import { colouredClasses, cssOf } from "./colours.js";
import { Fault } from "./api.js";

/** All modules, each after those that it imports: in an exported page they are one script. */
export const MODULES = ["colours", "state", "words", "api", "frozen", "drawing", "overview", "over", "answer", "controls", "looking", "pane", "keyboard", "saving", "explorer"];

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/** A name for a file, of the image's and the models'. */
export function fileName(app, ending) {
  const stem = app.image.name.replace(/\.[a-z0-9]+$/i, "");
  const words = ["sightline", stem, ...app.active.map((pane) => pane.model.name)];
  return `${words.join("_").replace(/[^\w.-]+/g, "-").slice(0, 100)}.${ending}`;
}

const WIDE = 560;
const EDGE = 20;

function wrapped(pen, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const line = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (pen.measureText(line).width <= width) lines[lines.length - 1] = line;
    else lines.push(word);
  }
  return lines;
}

function drawLegend(pen, legend, x, y) {
  let at = x;
  const write = (text) => {
    pen.fillText(text, at, y);
    at += pen.measureText(text).width + 8;
  };
  if (legend.title) write(legend.title);
  if (legend.low !== undefined) {
    write(legend.low);
    const bar = document.createElement("canvas");
    drawBar(bar, 120, 12);
    pen.drawImage(bar, at, y - 11, 120, 12);
    at += 128;
    write(legend.high);
  }
  const ink = pen.fillStyle;
  at = x;
  y += 20;
  for (const chip of legend.chips ?? []) {
    if (at + 24 + pen.measureText(chip.name).width > x + WIDE) break;
    pen.fillStyle = cssOf(chip.colour);
    pen.fillRect(at, y - 11, 12, 12);
    pen.fillStyle = ink;
    at += 18;
    write(chip.name);
  }
}

/** The panes as a PNG, in the colours of the page. */
export async function pictureOf(app) {
  const panes = app.active.filter((pane) => pane.shown);
  if (!panes.length) throw new Fault("There is no picture yet.");
  const tall = (pane) => (pane.find(".overview canvas").height * WIDE) / pane.find(".overview canvas").width;
  const shape = ({ box }) => Math.min(WIDE / (box.width + 6), WIDE / (box.height + 6));
  const high = Math.max(...panes.map((pane) => (pane.box.height + 6) * shape(pane)));
  const height = 3 * EDGE + 30 + high + 50 + Math.max(...panes.map(tall)) + 60;
  const canvas = document.createElement("canvas");
  canvas.width = 2 * (EDGE + panes.length * (WIDE + EDGE));
  canvas.height = 2 * height;
  const pen = canvas.getContext("2d");
  pen.scale(2, 2);
  const style = getComputedStyle(document.body);
  pen.fillStyle = style.backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = style.color;
  panes.forEach((pane, i) => {
    const x = EDGE + i * (WIDE + EDGE);
    let y = EDGE + 16;
    pen.font = `600 18px ${style.fontFamily}`;
    pen.fillText(`${pane.model.name}, ${pane.looking.view.image_size.join(" × ")} px`, x, y, WIDE);
    y += 14;
    const seen = pane.find(".picture canvas");
    // Without the room beside a picture that is no square.
    const dense = seen.width / pane.picture.clientWidth;
    const [width, height] = [pane.box.width + 6, pane.box.height + 6];
    const from = [pane.box.left - 3, pane.box.top - 3, width, height].map((one) => one * dense);
    pen.drawImage(seen, ...from, x, y, width * shape(pane), height * shape(pane));
    y += high + 20;
    pen.font = `13px ${style.fontFamily}`;
    drawLegend(pen, pane.legend ?? {}, x, y);
    y += 40;
    pen.drawImage(pane.find(".overview canvas"), x, y, WIDE, tall(pane));
    y += tall(pane) + 20;
    for (const line of wrapped(pen, pane.sentence, WIDE)) {
      pen.fillText(line, x, y);
      y += 18;
    }
  });
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!blob) throw new Fault("The browser could not make a picture of this size.");
  return blob;
}

async function base64Of(blob) {
  const reader = new FileReader();
  const read = new Promise((resolve, reject) => {
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Fault("The picture could not be read."));
  });
  reader.readAsDataURL(blob);
  return (await read).split(",")[1];
}

async function textOf(address) {
  let response;
  try {
    response = await fetch(address);
  } catch {
    throw new Fault("The server does not answer, and the page's own files come from it.");
  }
  if (!response.ok) throw new Fault(`${address} could not be read (${response.status}).`);
  return response.text();
}

/** What a pane holds of the view and the query that are shown. */
async function keptOf({ looking }) {
  const parts = {};
  for (const [path, value] of looking.parts) {
    const query = new URLSearchParams(path.split("?")[1]).get("query");
    const byPlace = path.startsWith("overlay") && !path.includes("kind=rollout");
    if (byPlace || query === looking.query) parts[path] = value.raw;
  }
  return { view: looking.view, picture: await base64Of(looking.file), parts };
}

/** The modules as one script: imports go, since all names stand side by side. */
export function joined(texts) {
  return texts.map((text) => text.replace(/^import [^;]*;\n/gm, "").replace(/^export /gm, "")).join("\n");
}

/** The panes as they are, as one page that asks nobody. */
export async function pageOf(app) {
  if (!app.active.every((pane) => pane.shown?.attention)) throw new Fault("There is nothing to export yet.");
  const panes = {};
  for (const pane of app.active) panes[pane.side] = await keptOf(pane);
  const { models, limits } = app.session;
  const kept = { session: { models, limits, images: [app.image] }, state: app.state, panes, coloured: colouredClasses() };
  const texts = await Promise.all(MODULES.map((name) => textOf(`/page/${name}.js`)));
  const [page, style] = await Promise.all([textOf("/"), textOf("/page/explorer.css")]);
  const policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src blob: data:";
  const data = JSON.stringify(kept).replaceAll("<", "\\u003c");
  return page
    .replace('<meta charset="utf-8">', (found) => `${found}\n<meta http-equiv="Content-Security-Policy" content="${policy}">`)
    .replace('<link rel="stylesheet" href="/page/explorer.css">', () => `<style>\n${style}</style>`)
    .replace(/<script type="module" src="\/page\/explorer.js"><\/script>/, () => {
      const end = "<" + "/script>";
      return `<script type="application/json" id="kept">${data}${end}\n<script type="module">\n${joined(texts)}${end}`;
    });
}
