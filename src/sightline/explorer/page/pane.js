// One pane: a picture seen by one model at one size, with its controls, its heads and its answer.

import { drawPicture, drawBar, fillLegend } from "./drawing.js";
import { drawOverview, headAt, largestOf, overviewSize } from "./overview.js";
import { overOf } from "./over.js";
import { cellAt, headOf, isOff, placeOf } from "./state.js";
import { PaneControls } from "./controls.js";
import { fillAnswer } from "./answer.js";
import { Looking } from "./looking.js";
import { capital, factsOf, number, percent, queryInWords, sentenceOf } from "./words.js";

export class Pane {
  /** `app` holds the state and the session, and is told what is to change. */
  constructor(app, side) {
    Object.assign(this, { app, side, box: null, size: null, said: "" });
    const { content } = document.getElementById("pane");
    this.element = content.firstElementChild.cloneNode(true);
    this.element.dataset.side = side;
    this.find = (selector) => this.element.querySelector(selector);
    this.picture = this.find(".picture");
    this.overview = this.find(".overview");
    this.controls = new PaneControls(app, side, this.element);
    this.looking = new Looking(app.api, side, () => this.told(), (fault) => app.failed(fault));
    this.picture.addEventListener("pointerdown", (event) => this.pickPatch(event));
    this.overview.addEventListener("pointerdown", (event) => this.pickHead(event));
    this.find(".off-head").addEventListener("click", () => app.switchHead(side));
    this.find(".off-none").addEventListener("click", () => app.changePane(side, { off: [] }));
    this.find(".scaling").addEventListener("change", (event) => app.change({ scaling: event.target.value }));
    // A second observer for each would tell of one change of width twice.
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.picture);
    this.watch.observe(this.overview);
  }

  get model() {
    return this.app.session.models[this.app.state.panes[this.side].model];
  }

  get off() {
    return this.app.state.panes[this.side].off;
  }

  /** Ask for what the state needs here. */
  update(milliseconds = 0) {
    const { state } = this.app;
    this.controls.fill();
    const image = this.app.image;
    if (!image) return this.draw();
    return this.looking.update(state, this.model, image, milliseconds);
  }

  told() {
    this.element.setAttribute("aria-busy", String(this.looking.busy));
    if (this.looking.busy) return;
    this.draw();
    this.app.settled();
  }

  /** Whether what is there is of the model that is chosen now. */
  get shown() {
    return this.looking.view && this.looking.model === this.model ? this.looking : null;
  }

  get chosen() {
    return headOf(this.app.state, this.model);
  }

  /** The sentence that says where the query looks, or nothing where it is not known. */
  get sentence() {
    const { shown } = this;
    if (!shown?.attention) return "";
    const { layer, head } = this.chosen;
    const facts = factsOf(shown.attention, layer, head, shown.view.prefix);
    return sentenceOf(shown.query, shown.view, layer, head, facts, isOff(this.off, layer, head));
  }

  draw() {
    this.drawPicture();
    this.drawHeads();
    this.drawNumbers();
    fillAnswer(this.find(".answer"), this.shown?.view);
  }

  drawPicture() {
    const { state } = this.app;
    const { shown } = this;
    const { width, height } = { width: this.picture.clientWidth, height: this.picture.clientHeight };
    if (!width || !height) return;
    const { layer, head } = this.chosen;
    this.picture.setAttribute("aria-label", this.pictureLabel(shown));
    const legend = this.find(".legend");
    if (!shown) {
      this.box = null;
      drawPicture(this.find(".picture canvas"), width, height, { grid: [1, 1] });
      fillLegend(legend, {});
      return;
    }
    const over = overOf(state, shown, this.model, layer, head);
    const cells = shown.view.grid[0] * shown.view.grid[1];
    const first = (layer * this.model.heads + head) * cells;
    const visible = state.field && state.show === "attention" ? shown.field?.visible.subarray(first, first + cells) : null;
    this.box = drawPicture(this.find(".picture canvas"), width, height, {
      picture: shown.picture,
      shape: shown.view.image_size,
      grid: shown.view.grid,
      over: over.canvas,
      opacity: state.opacity / 100,
      lines: state.grid,
      visible,
      at: shown.query.startsWith("prefix:") ? null : cellAt(state.place, shown.view.grid),
    });
    this.legend = over.legend;
    fillLegend(legend, over.legend);
  }

  pictureLabel(shown) {
    if (!this.app.image) return "No image yet";
    if (!shown) return `${this.app.image.name}, not there yet`;
    const [rows, cols] = shown.view.grid;
    return `${this.app.image.name}: ${rows} rows and ${cols} columns of patches, ${queryInWords(shown.query, shown.view)} chosen. Arrow keys move it.`;
  }

  drawHeads() {
    const width = this.overview.clientWidth;
    if (!width) return;
    const { depth, heads } = this.model;
    const grid = this.shown?.view.grid ?? [1, 1];
    const { layer, head } = this.chosen;
    this.size = overviewSize(width, depth, heads, grid);
    this.overview.style.height = `${this.size.height}px`;
    const { scaling } = this.app.state;
    const attention = this.shown?.attention;
    drawOverview(this.find(".overview canvas"), this.size, depth, heads, { attention, off: this.off, scaling, layer, head });
    this.overview.setAttribute("aria-label", `Heads of ${this.model.name}: ${depth} layers of ${heads} heads, layer ${layer} head ${head} chosen. Arrow keys choose another.`);
    drawBar(this.find(".scale .bar"), 90, 12);
    this.find(".scaling").value = scaling;
    this.find(".largest").textContent = scaling === "all" && attention ? percent(largestOf(attention)) : "largest";
    const button = this.find(".off-head");
    const isHeadOff = isOff(this.off, layer, head);
    button.textContent = `Switch layer ${layer} head ${head} ${isHeadOff ? "on" : "off"}`;
    button.setAttribute("aria-pressed", String(isHeadOff));
    const count = this.off.length;
    this.find(".off-said").textContent = count ? `${count} of ${depth * heads} heads ${count === 1 ? "is" : "are"} off` : "";
    this.find(".off-none").setAttribute("aria-disabled", String(count === 0));
  }

  drawNumbers() {
    const list = this.find(".numbers");
    const { shown } = this;
    const rows = [];
    if (shown?.attention) {
      const { layer, head } = this.chosen;
      const facts = factsOf(shown.attention, layer, head, shown.view.prefix);
      rows.push(["From", capital(queryInWords(shown.query, shown.view).replace("patch row", "row").replace(" column", ", column"))]);
      rows.push(["Head", `layer ${layer}, head ${head}`]);
      rows.push(["Mean distance", facts.distance === null ? "–" : `${number(facts.distance)} patches`]);
      for (const { name, share } of facts.shares) rows.push([`On ${name === "class" ? "the class token" : name}`, percent(share)]);
    }
    if (shown) {
      const [height, width] = shown.view.image_size;
      rows.push(["Grid", shown.view.grid.join(" × ")]);
      rows.push(["Picture", `${height} × ${width} px`]);
      rows.push(["Tokens", String(shown.view.tokens)]);
      if (shown.view.seconds !== undefined) rows.push(["Computed in", `${number(1000 * shown.view.seconds)} ms`]);
    }
    const text = JSON.stringify(rows);
    if (list.dataset.text === text) return;
    list.dataset.text = text;
    list.replaceChildren(
      ...rows.map(([name, value]) => {
        const group = document.createElement("div");
        const [term, said] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = name;
        said.textContent = value;
        group.append(term, said);
        return group;
      }),
    );
  }

  pickPatch(event) {
    if (!this.box || event.button !== 0) return;
    const edge = this.picture.getBoundingClientRect();
    const x = (event.clientX - edge.left - this.picture.clientLeft - this.box.left) / this.box.width;
    const y = (event.clientY - edge.top - this.picture.clientTop - this.box.top) / this.box.height;
    if (x < 0 || x >= 1 || y < 0 || y >= 1) return;
    const { grid } = this.looking.view;
    this.app.lookFrom(this, { prefix: null, place: placeOf(cellAt({ y, x }, grid), grid) });
  }

  pickHead(event) {
    if (!this.size || event.button !== 0) return;
    const edge = this.overview.getBoundingClientRect();
    const found = headAt(this.size, this.model.depth, this.model.heads, event.clientX - edge.left, event.clientY - edge.top);
    if (found) this.app.lookFrom(this, found);
  }
}
