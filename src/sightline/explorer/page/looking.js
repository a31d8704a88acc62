// What one pane asked the server for, and what of it is there. An answer that nobody waits for is dropped.

import { decoded } from "./api.js";
import { askedSize, queryOf } from "./state.js";

const KEPT = 16;

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(new DOMException("called off", "AbortError"));
    if (signal.aborted) stop();
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      stop();
    });
  });
}

/** The address of an overlay below its view: of all, rollout alone hangs on the query. */
export function overlayPath(kind, layer, query) {
  return `overlay?kind=${kind}&layer=${layer}&query=${kind === "rollout" ? query : "0"}`;
}

export class Looking {
  /** `told()` is called when a wait begins and ends, `failed(fault)` with what cannot be had. */
  constructor(api, side, told, failed) {
    Object.assign(this, { api, side, told, failed });
    this.view = null;
    this.picture = null;
    this.query = null;
    this.busy = false;
    this.key = null;
    this.parts = new Map();
  }

  get attention() {
    return this.parts.get(`attention?query=${this.query}`);
  }

  get field() {
    return this.parts.get(`field?query=${this.query}`);
  }

  overlay(kind, layer) {
    return this.parts.get(overlayPath(kind, layer, this.query));
  }

  /** Ask for all that the state needs in this pane, after a pause; what was asked for before is called off. */
  async update(state, model, image, milliseconds) {
    this.controller?.abort();
    const controller = new AbortController();
    this.controller = controller;
    this.setBusy(true);
    try {
      if (milliseconds) await pause(milliseconds, controller.signal);
      for (let attempt = 0; ; attempt += 1) {
        try {
          await this.ask(state, model, image, controller.signal);
          break;
        } catch (fault) {
          // The server keeps so many views and no more: one that had to go is asked for again.
          if (!fault.gone || attempt === 2) throw fault;
          this.key = null;
        }
      }
    } catch (fault) {
      if (fault.name !== "AbortError" && !fault.replaced && this.controller === controller) this.failed(fault);
    } finally {
      if (this.controller === controller) this.setBusy(false);
    }
  }

  setBusy(busy) {
    this.busy = busy;
    this.told();
  }

  async ask(state, model, image, signal) {
    const pane = state.panes[this.side];
    const wanted = { model: pane.model, image: image.id, size: askedSize(pane, model, image), knob: pane.knob, off: pane.off };
    const key = JSON.stringify(wanted);
    let next = this;
    if (key !== this.key) {
      // What is there stays in sight until all of the next view has come: nothing flickers.
      const view = await this.api.view(this.side, wanted, signal);
      next = { view, key, model, image: image.id, parts: new Map(), picture: this.picture, file: this.file };
      const same = this.key && this.image === image.id && String(this.view.image_size) === String(view.image_size);
      if (!same) {
        next.file = await this.api.picture(view, signal);
        next.picture = await createImageBitmap(next.file);
      }
    }
    const query = queryOf(state, next.view);
    const paths = [`attention?query=${query}`];
    if (!query.startsWith("prefix:")) paths.push(`field?query=${query}`);
    const layer = Math.min(state.layer, model.depth - 1);
    if (model.overlays.includes(state.show)) paths.push(overlayPath(state.show, layer, query));
    // A part that cannot be had leaves the others standing.
    const outcomes = await Promise.allSettled(paths.map((path) => this.get(next, path, signal)));
    signal.throwIfAborted();
    const faults = outcomes.filter((one) => one.status === "rejected").map((one) => one.reason);
    const gone = faults.find((one) => one.gone);
    if (gone) throw gone;
    Object.assign(this, next, { query });
    if (faults.length) throw faults[0];
  }

  async get({ view, parts }, path, signal) {
    const value = parts.get(path) ?? decoded(await this.api.part(this.side, view, path, signal));
    parts.delete(path);
    parts.set(path, value);
    if (parts.size > KEPT) parts.delete(parts.keys().next().value);
  }
}
