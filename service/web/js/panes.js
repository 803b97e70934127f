// The panes beside each other: the model, IR after steps, differences.

import { button, fill, h } from "./dom.js";
import { DifferencePane } from "./ir/difference_pane.js";
import { ListingPane } from "./ir/listing_pane.js";
import { ModelPane } from "./model_pane.js";
import { splitter } from "./splitter.js";
import { change, findStep, shown, state } from "./state.js";

const MOST = 5;
const KINDS = { model: ModelPane, ir: ListingPane, diff: DifferencePane };

/** The panes for a Compilation that nothing was chosen for yet. */
export function usualPanes(compilation, narrow) {
  const last = compilation.steps.at(-1)?.index ?? 0;
  const first = { kind: "ir", side: "a", step: 0 };
  if (narrow) return [first, { kind: "model" }];
  return [{ kind: "model" }, first, { kind: "ir", side: "a", step: last }];
}

export class Panes {
  constructor() {
    this.open = [];
    this.row = h("div", { class: "panes" });
    this.tabs = h("div", { class: "pane-tabs", role: "group", "aria-label": "Panes" });
    this.element = h("div", { class: "pane-area" }, this.row);
    this.row.addEventListener("focusin", (event) => this.#activate(event.target));
    this.row.addEventListener("pointerdown", (event) => this.#activate(event.target));
  }

  #activate(target) {
    const at = this.open.findIndex(({ view }) => view.element.contains(target));
    if (at >= 0 && at !== state.active) change({ active: at });
  }

  show() {
    state.panes.forEach((pane, at) => {
      if (this.open[at]?.kind !== pane.kind) this.#replace(at, pane.kind);
      this.open[at].view.show(pane);
    });
    while (this.open.length > state.panes.length) this.#drop(this.open.length - 1);
    this.mark();
  }

  #replace(at, kind) {
    const view = new KINDS[kind](at);
    if (at > 0) view.element.prepend(splitter(view.element));
    const old = this.open[at];
    if (old) {
      old.view.close();
      old.view.element.replaceWith(view.element);
    } else {
      this.row.append(view.element);
    }
    this.open[at] = { kind, view };
  }

  #drop(at) {
    const [{ view }] = this.open.splice(at, 1);
    view.close();
    view.element.remove();
  }

  /** Marks the active pane. */
  mark() {
    this.open.forEach(({ view }, at) => view.element.classList.toggle("active", at === state.active));
    fill(
      this.tabs,
      state.panes.map((pane, at) =>
        button(label(pane), () => this.#scrollTo(at), { "aria-pressed": String(at === state.active) }),
      ),
      state.panes.length < MOST ? button("+ pane", () => this.add(), { class: "add-pane", name: "Add a pane" }) : null,
      state.panes.some(({ kind }) => kind === "model")
        ? null
        : button(
            "+ model",
            () =>
              change(
                { panes: [{ kind: "model" }, ...state.panes].slice(0, MOST), active: state.active + 1 },
                { history: "push" },
              ),
            { class: "add-pane" },
          ),
    );
  }

  #scrollTo(at) {
    change({ active: at });
    const { view } = this.open[at];
    view.element.scrollIntoView({ inline: "start", block: "nearest", behavior: "smooth" });
    view.focus();
  }

  add() {
    if (state.panes.length >= MOST) return;
    const all = shown(state.a);
    const taken = new Set(state.panes.map((pane) => pane.step));
    const step =
      all.find((each) => each.stage === "llvm" && !taken.has(each.index)) ??
      all.findLast((each) => !taken.has(each.index)) ??
      all[0];
    change(
      { panes: [...state.panes, { kind: "ir", side: "a", step: step?.index ?? 0 }], active: state.panes.length },
      { history: "push" },
    );
    this.#scrollTo(state.panes.length - 1);
  }

  get current() {
    return this.open[state.active]?.view ?? null;
  }
}

function label(pane) {
  const name = (place) => {
    const found = findStep(place);
    const step = found ? (found.innerName ?? found.pass ?? found.stage) : place.step;
    return `${state.b ? `${place.side.toUpperCase()} ` : ""}${step}`;
  };
  if (pane.kind === "model") return "model";
  return pane.kind === "ir" ? name(pane) : `${name(pane.left)} ± ${name(pane.right)}`;
}
