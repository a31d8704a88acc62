// The page: it holds the state, and tells the panes when it changed.

import { Fault, ServerApi } from "./api.js";
import { colourOfClass } from "./colours.js";
import { fillSelect } from "./controls.js";
import { FrozenApi, keptInPage } from "./frozen.js";
import { listen } from "./keyboard.js";
import { Pane } from "./pane.js";
import { download, fileName, pageOf, pictureOf } from "./saving.js";
import { SIDES, fittingSide, initialPane, linkOf, stateOf, switched } from "./state.js";

const byId = (id) => document.getElementById(id);

class Explorer {
  constructor(api) {
    this.api = api;
  }

  async begin() {
    this.session = await this.api.session();
    const { frozen } = this.api;
    const { state, said } = frozen ? { state: frozen.state, said: [] } : stateOf(location.hash, this.session);
    this.state = state;
    // Classes are coloured as they come: here as they came there.
    frozen?.coloured.forEach((name) => colourOfClass(name));
    this.panes = Object.fromEntries(SIDES.map((side) => [side, new Pane(this, side)]));
    for (const pane of Object.values(this.panes)) {
      byId("panes").append(pane.element);
      listen(this, pane);
    }
    this.fillImages();
    this.wire();
    if (frozen) this.freeze();
    this.refresh();
    if (said.length) this.failed(new Fault(said.join(" ")));
    else if (!this.session.images.length) this.tell("Open an image, or drop one on the page.");
  }

  get image() {
    return this.session.images.find((one) => one.id === this.state.image) ?? null;
  }

  /** The panes that are in sight. */
  get active() {
    return (this.state.compare === "none" ? ["left"] : SIDES).map((side) => this.panes[side]);
  }

  change(fields, milliseconds = 0) {
    Object.assign(this.state, fields);
    this.refresh(milliseconds);
  }

  changePane(side, fields, milliseconds = 0) {
    Object.assign(this.state.panes[side], fields);
    this.refresh(milliseconds);
  }

  /** Another patch, prefix token, layer or head, chosen in a pane. */
  lookFrom(pane, fields) {
    if (this.api.frozen && ("place" in fields || "prefix" in fields)) {
      this.failed(new Fault("This exported page holds one patch alone; its layers and heads can be chosen."));
      return;
    }
    this.change(fields);
  }

  switchHead(side) {
    if (this.api.frozen) return;
    const { layer, head } = this.panes[side].chosen;
    this.changePane(side, { off: switched(this.state.panes[side].off, [[layer, head]]) });
  }

  chooseModel(side, id) {
    const model = this.session.models[id];
    for (const one of this.state.compare === "sizes" ? SIDES : [side]) {
      const pane = this.state.panes[one];
      const size = pane.size === "native" ? pane.size : fittingSide(pane.size, model, this.session.limits);
      this.state.panes[one] = { ...initialPane(model, this.session.limits), size, shape: pane.shape };
    }
    this.refresh();
  }

  /** Two models are looked at in one size: what is chosen for one holds for both. */
  chooseSize(side, size, milliseconds = 0) {
    for (const one of this.state.compare === "models" ? SIDES : [side]) {
      const pane = this.state.panes[one];
      const model = this.session.models[pane.model];
      pane.size = size === "native" ? size : fittingSide(size, model, this.session.limits);
    }
    this.refresh(milliseconds);
  }

  chooseShape(side, shape) {
    for (const one of this.state.compare === "models" ? SIDES : [side]) this.state.panes[one].shape = shape;
    this.refresh();
  }

  chooseCompare(compare) {
    const { left, right } = this.state.panes;
    const { models, limits } = this.session;
    const model = models[left.model];
    if (compare === "models" && right.model === left.model) {
      const other = models.find((one) => one.id !== left.model) ?? model;
      const size = left.size === "native" ? left.size : fittingSide(left.size, other, limits);
      this.state.panes.right = { ...initialPane(other, limits), size, shape: left.shape };
    }
    if (compare === "sizes") {
      const size = left.size === "native" ? Math.max(...model.image_size) : 2 * left.size;
      const pane = { ...left, off: [...left.off], size: fittingSide(size, model, limits) };
      this.state.panes.right = pane;
    }
    this.change({ compare });
  }

  refresh(milliseconds = 0) {
    this.forget();
    this.fill();
    const shown = this.active;
    document.documentElement.dataset.busy = String(Boolean(this.image));
    for (const pane of Object.values(this.panes)) pane.element.hidden = !shown.includes(pane);
    byId("panes").dataset.count = String(shown.length);
    for (const pane of shown) {
      pane.update(milliseconds);
      pane.draw();
    }
    if (!this.api.frozen) history.replaceState(null, "", linkOf(this.state, this.session));
  }

  /** Show in the controls what the state says. */
  fill() {
    const { state, session } = this;
    const models = this.active.map((pane) => pane.model);
    const counted = (count) => Array.from({ length: count }, (_, i) => [i, String(i)]);
    state.layer = Math.min(state.layer, Math.max(...models.map((one) => one.depth)) - 1);
    state.head = Math.min(state.head, Math.max(...models.map((one) => one.heads)) - 1);
    fillSelect(byId("layer"), counted(Math.max(...models.map((one) => one.depth))), state.layer);
    fillSelect(byId("head"), counted(Math.max(...models.map((one) => one.heads))), state.head);
    for (const key of ["compare", "show", "opacity"]) byId(key).value = String(state[key]);
    for (const key of ["grid", "field"]) byId(key).checked = state[key];
    byId("compare").querySelector("[value=models]").disabled = session.models.length < 2;
    for (const option of byId("show").options) {
      const always = option.value === "attention" || option.value === "nothing";
      option.disabled = !always && !models.some((one) => one.overlays.includes(option.value));
    }
    for (const radio of byId("thumbnails").querySelectorAll("input")) radio.checked = radio.value === state.image;
    for (const button of ["save", "link", "export"]) byId(button).disabled = !this.image || (this.api.frozen && button !== "save");
  }

  fillImages() {
    byId("thumbnails").replaceChildren(
      ...this.session.images.map((image) => {
        const label = document.createElement("label");
        const radio = Object.assign(document.createElement("input"), { type: "radio", name: "image", value: image.id });
        radio.addEventListener("change", () => this.change({ image: image.id }, 60));
        const picture = Object.assign(document.createElement("img"), { src: this.api.thumbnail(image.id), alt: "", loading: "lazy", width: 72, height: 72 });
        const words = document.createElement("span");
        words.textContent = image.name;
        label.title = `${image.name}, ${image.height} × ${image.width} px`;
        label.append(radio, picture, words);
        return label;
      }),
    );
  }

  /** Called when a pane has all that it waited for. */
  settled() {
    if (this.active.some((pane) => pane.looking.busy)) return;
    document.documentElement.dataset.busy = "false";
    this.say();
  }

  /** Say where the patch looks; `again` says the same sentence once more. */
  say(again = false) {
    const said = this.active.map((pane) => pane.sentence).filter(Boolean);
    const words = said.length === 2 ? `Left: ${said[0]}. Right: ${said[1]}.` : said.length ? `${said[0]}.` : "";
    const live = byId("live");
    if (again) live.textContent = "";
    if (live.textContent !== words) requestAnimationFrame(() => (live.textContent = words));
  }

  failed(fault) {
    if (!(fault instanceof Fault)) console.error(fault);
    const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
    close.addEventListener("click", () => byId("alert").replaceChildren());
    const words = document.createElement("span");
    words.textContent = fault.message;
    byId("alert").replaceChildren(words, close);
    if (!this.active.some((pane) => pane.looking.busy)) document.documentElement.dataset.busy = "false";
  }

  /** Put away what was said before. */
  forget() {
    this.tell("");
    byId("alert").replaceChildren();
  }

  tell(sentence) {
    byId("status").textContent = sentence;
  }

  async open(file) {
    const { limits } = this.session;
    this.forget();
    try {
      if (this.api.frozen) throw new Fault("This is an exported page: it takes no images.");
      if (file.size > limits.upload_bytes) throw new Fault(`${file.name} has ${Math.ceil(file.size / 2 ** 20)} MiB; at most ${Math.floor(limits.upload_bytes / 2 ** 20)} MiB are taken.`);
      this.tell(`Opening ${file.name} …`);
      const image = await this.api.upload(file);
      this.session.images.push(image);
      this.fillImages();
      this.change({ image: image.id });
      byId("thumbnails").querySelector("input:checked")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    } catch (fault) {
      this.tell("");
      this.failed(fault);
    }
  }

  async keep(make, name, words) {
    this.forget();
    try {
      download(await make(this), name);
      this.tell(words);
    } catch (fault) {
      this.failed(fault);
    }
  }

  async copyLink() {
    this.forget();
    try {
      await navigator.clipboard.writeText(location.href);
      this.tell("The link to this view was copied.");
    } catch {
      this.tell("The link is in the address bar: the browser did not let it be copied.");
    }
  }

  wire() {
    for (const key of ["show", "layer", "head", "opacity"]) {
      const whole = key === "show" ? (value) => value : Number;
      byId(key).addEventListener("input", (event) => this.change({ [key]: whole(event.target.value) }));
    }
    for (const key of ["grid", "field"]) byId(key).addEventListener("change", (event) => this.change({ [key]: event.target.checked }));
    byId("compare").addEventListener("change", (event) => this.chooseCompare(event.target.value));
    byId("save").addEventListener("click", () => this.keep(async () => pictureOf(this), fileName(this, "png"), "The picture was saved."));
    byId("export").addEventListener("click", () => {
      const make = async () => new Blob([await pageOf(this)], { type: "text/html" });
      this.keep(make, fileName(this, "html"), "The page was exported: it works without the server.");
    });
    byId("link").addEventListener("click", () => this.copyLink());
    byId("upload").addEventListener("change", (event) => {
      const [file] = event.target.files;
      event.target.value = "";
      if (file) this.open(file);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.forget();
    });
    this.wireDrop();
    window.addEventListener("hashchange", () => {
      const { state, said } = stateOf(location.hash, this.session);
      this.state = state;
      this.refresh();
      if (said.length) this.failed(new Fault(said.join(" ")));
    });
  }

  wireDrop() {
    const over = (event, inside) => {
      if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
      event.preventDefault();
      byId("drop").hidden = !inside;
    };
    document.addEventListener("dragover", (event) => over(event, true));
    document.addEventListener("dragleave", (event) => over(event, Boolean(event.relatedTarget)));
    document.addEventListener("drop", (event) => {
      over(event, false);
      const [file] = event.dataTransfer?.files ?? [];
      if (file) this.open(file);
    });
  }

  /** An exported page shows what was written into it: what would ask the server is out of reach. */
  freeze() {
    document.documentElement.dataset.frozen = "true";
    for (const control of document.querySelectorAll(".asks-server")) control.disabled = true;
    byId("frozen-note").hidden = false;
    byId("frozen-note").textContent = "An exported view: its layers, heads and what lies over the picture can be chosen. sightline explore shows the rest.";
  }
}

function wirePage() {
  const dark = () => {
    const { theme } = document.documentElement.dataset;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const name = () => (byId("theme").textContent = dark() ? "Light" : "Dark");
  const redraw = () => Object.values(explorer.panes ?? {}).forEach((pane) => pane.draw());
  try {
    const kept = localStorage.getItem("sightline.theme");
    if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  } catch {
    // Where nothing may be remembered, the system's choice holds.
  }
  name();
  byId("theme").addEventListener("click", () => {
    const theme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("sightline.theme", theme);
    } catch {
      // As above.
    }
    name();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    name();
    redraw();
  });
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  byId("help-close").addEventListener("click", () => byId("help").close());
}

const pageData = keptInPage();
const explorer = new Explorer(pageData ? new FrozenApi(pageData) : new ServerApi());
wirePage();
explorer.begin().catch((fault) => {
  byId("alert").textContent = fault.message;
  document.documentElement.dataset.busy = "false";
  if (!(fault instanceof Fault)) console.error(fault);
});
