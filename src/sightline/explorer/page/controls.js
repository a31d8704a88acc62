// A pane's controls: model, size, shape, knob, prefix tokens, directions.

import { Fault } from "./api.js";
import { fittingSide, isOff, sidesOf, switched } from "./state.js";
import { number } from "./words.js";

export function fillSelect(select, choices, value) {
  const text = JSON.stringify(choices);
  if (select.dataset.text !== text) {
    select.dataset.text = text;
    select.replaceChildren(...choices.map(([key, words]) => new Option(words, key)));
  }
  select.value = String(value);
}

/** Buttons [{words, pressed, label}], made again only where their number or words changed: focus stays. */
function fillButtons(group, buttons, press, disabled) {
  const text = JSON.stringify(buttons.map((one) => one.words));
  if (group.dataset.text !== text) {
    group.dataset.text = text;
    group.replaceChildren(
      ...buttons.map((one, i) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = one.words;
        button.addEventListener("click", () => press(i));
        return button;
      }),
    );
  }
  buttons.forEach((one, i) => {
    group.children[i].setAttribute("aria-pressed", String(one.pressed));
    group.children[i].disabled = Boolean(disabled);
  });
  group.hidden = buttons.length === 0;
}

export class PaneControls {
  constructor(app, side, element) {
    Object.assign(this, { app, side, element });
    this.find = (selector) => element.querySelector(selector);
    const change = (fields, milliseconds) => app.changePane(side, fields, milliseconds);
    this.find(".model").addEventListener("change", (event) => app.chooseModel(side, Number(event.target.value)));
    this.find(".size").addEventListener("input", (event) => app.chooseSize(side, Number(event.target.value) * this.model.patch_size, 120));
    this.find(".sizes").addEventListener("change", (event) => {
      const { value } = event.target;
      app.chooseSize(side, value === "native" ? value : Number(value));
    });
    this.find(".shape").addEventListener("change", (event) => app.chooseShape(side, event.target.value));
    this.find(".knob-slider").addEventListener("input", (event) => {
      const { low, high } = this.model.knob;
      const value = low * (high / low) ** (Number(event.target.value) / 1000);
      change({ knob: Number(value.toPrecision(3)) }, 120);
    });
    this.find(".knob-value").addEventListener("change", (event) => {
      const value = event.target.valueAsNumber;
      if (Number.isFinite(value) && value >= 0) change({ knob: value });
      else app.failed(new Fault(`The parameter ${this.model.knob.name.replaceAll("_", " ")} takes a number of 0 or more.`));
      this.fill();
    });
    this.find(".knob-reset").addEventListener("click", () => change({ knob: null }));
  }

  get model() {
    return this.app.session.models[this.app.state.panes[this.side].model];
  }

  /** Show what the state says. */
  fill() {
    const { app, side, model } = this;
    const { session, state } = app;
    const pane = state.panes[side];
    const frozen = Boolean(app.api.frozen);
    const name = state.compare === "none" ? "" : `${side === "left" ? "Left" : "Right"}: `;
    this.find("h2").textContent = `${name}${model.name}`;
    this.element.setAttribute("aria-label", `${name}${model.name}`);
    fillSelect(this.find(".model"), session.models.map((one) => [one.id, one.name]), pane.model);
    this.fillSize(pane, model, session.limits);
    this.find(".shape").value = pane.shape;
    this.find(".shape").disabled = pane.size === "native" || frozen;
    this.fillKnob(pane, model);
    const prefix = model.prefix.map((words, i) => ({ words: words === "class" ? "class token" : words, pressed: state.prefix === i }));
    this.find(".prefix").setAttribute("aria-label", "Look from a prefix token");
    fillButtons(this.find(".prefix"), prefix, (i) => app.lookFrom(app.panes[side], { prefix: app.state.prefix === i ? null : i }), frozen);
    const directions = Object.entries(model.directions);
    const buttons = directions.map(([words, heads]) => ({ words: `${words} off`, pressed: heads.every(([l, h]) => isOff(pane.off, l, h)) }));
    const press = (i) => app.changePane(side, { off: switched(app.state.panes[side].off, directions[i][1]) });
    fillButtons(this.find(".directions"), buttons, press, frozen);
  }

  fillSize(pane, model, limits) {
    const slider = this.find(".size");
    const { high, step } = sidesOf(model, limits);
    Object.assign(slider, { min: "1", max: String(high / step) });
    if (pane.size !== "native") slider.value = String(pane.size / step);
    const words = pane.size === "native" ? "the image's own size" : `${pane.size} pixels, ${pane.size / step} patches`;
    slider.setAttribute("aria-valuetext", words);
    const sides = new Set(model.sizes.map((side) => fittingSide(side, model, limits)));
    if (pane.size !== "native") sides.add(pane.size);
    const choices = [...sides].sort((a, b) => a - b).map((side) => [side, `${side}`]);
    fillSelect(this.find(".sizes"), [...choices, ["native", "its own"]], pane.size);
  }

  fillKnob(pane, model) {
    const { knob } = model;
    this.find(".knob").hidden = !knob;
    if (!knob) return;
    const value = pane.knob ?? knob.value;
    this.find(".knob-name").textContent = `Parameter: ${knob.name.replaceAll("_", " ")}`;
    const share = Math.log(value / knob.low) / Math.log(knob.high / knob.low);
    const slider = this.find(".knob-slider");
    if (document.activeElement !== slider) slider.value = String(Math.round(1000 * share) || 0);
    slider.setAttribute("aria-valuetext", number(value));
    const field = this.find(".knob-value");
    field.value = String(Number(value.toPrecision(6)));
    field.setAttribute("aria-label", `${knob.name}: value`);
    // A button that is disabled when it was pressed would lose the focus.
    this.find(".knob-reset").setAttribute("aria-disabled", String(pane.knob === null));
  }
}
