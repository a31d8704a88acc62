// What answers in an exported page, in the server's place: what was written into it, and nothing else.

import { Fault, bytesOf } from "./api.js";

export class FrozenApi {
  constructor(kept) {
    this.frozen = kept;
  }

  async session() {
    return this.frozen.session;
  }

  async upload() {
    throw new Fault("This is an exported page: it takes no images.");
  }

  thumbnail() {
    return "data:,";
  }

  async view(pane) {
    return this.frozen.panes[pane].view;
  }

  async picture(view) {
    const pane = Object.values(this.frozen.panes).find((one) => one.view.view === view.view);
    return new Blob([bytesOf(pane.picture)], { type: "image/png" });
  }

  async part(pane, view, path) {
    const part = this.frozen.panes[pane].parts[path];
    if (part !== undefined) return part;
    const [kind, words] = path.split("?");
    const asked = new URLSearchParams(words);
    if (kind === "attention" || kind === "field") throw new Fault(`This exported page holds one query alone; open it with sightline explore to look from others.`);
    throw new Fault(`This exported page does not hold ${asked.get("kind")} of layer ${asked.get("layer")}; open it with sightline explore to see it.`);
  }
}

/** The data of an exported page, or null where a server gave the page. */
export function keptInPage() {
  const element = document.getElementById("kept");
  return element ? JSON.parse(element.textContent) : null;
}
