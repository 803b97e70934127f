// A pane with the IR after one step.

import { announce, button, copy, fill, h } from "../dom.js";
import { bytes, stepName } from "../format.js";
import { icon } from "../icons.js";
import * as links from "../links.js";
import { problemCard } from "../problem.js";
import { openDifference } from "../rail.js";
import { change, compilationOf, findStep, shown, state, stepKey } from "../state.js";
import { CodeView } from "./code_view.js";
import { listing } from "./listing.js";

/** A select with the steps of A that are `wanted`, and of B if there is one. `chosen` is {side, step}. */
export function stepSelect(label, chosen, onChoose, extra = [], wanted = () => true) {
  const group = (side) =>
    shown(compilationOf(side))
      .filter(wanted)
      .map((step) =>
        h(
          "option",
          {
            value: `${side}${step.index}`,
            selected: side === chosen?.side && step.index === chosen.step && chosen.inner === undefined,
          },
          `${step.index}  ${stepName(step)}`,
        ),
      );
  const inside = chosen?.inner === undefined ? null : findStep(chosen);
  const options = state.b
    ? ["a", "b"].map((side) => h("optgroup", { label: side.toUpperCase() }, group(side)))
    : group("a");
  const choose = (event) => {
    const { value } = event.target;
    if (value) onChoose({ side: value[0], step: Number(value.slice(1)) });
  };
  return h(
    "select",
    { "aria-label": label, onChange: choose },
    extra,
    inside ? h("option", { value: "", selected: true }, `${inside.index}  ${stepName(inside)}`) : null,
    options,
  );
}

export class ListingPane {
  constructor(index) {
    this.index = index;
    this.folded = new Set();
    this.view = new CodeView({
      label: "Lines of the IR",
      onPick: (line) => this.#pick(line),
      onHover: (line) => links.hover(line === null ? null : this.#segment(line), this),
      onFold: (line) => this.#fold(line),
    });
    this.header = h("div", { class: "pane-head" });
    this.note = h("div", { class: "pane-note" });
    this.search = new SearchBar(this);
    this.body = h("div", { class: "pane-body" });
    this.element = h(
      "section",
      { class: "pane", "aria-label": "IR" },
      this.header,
      this.search.element,
      this.note,
      this.body,
    );
    this.leave = links.join(this);
  }

  /** Shows another step, or the same one of a Compilation that has changed. */
  async show(pane) {
    const step = findStep(pane);
    const key = `${compilationOf(pane.side)?.id}/${step ? stepKey(step) : `${pane.step}/${compilationOf(pane.side)?.state}`}`;
    this.pane = pane;
    this.#head(step);
    if (key === this.key) return;
    this.key = key;
    if (!step) {
      const waits = ["running", "queued"].includes(compilationOf(pane.side)?.state);
      fill(
        this.body,
        h(
          "p",
          { class: waits ? "empty loading" : "empty" },
          waits
            ? "Waiting for this step …"
            : compilationOf(pane.side)?.steps.length
              ? "This step is not there. Choose another above."
              : "There is no IR: the compilation ended before its first step.",
        ),
      );
      return;
    }
    this.element.setAttribute("aria-label", `IR after ${stepName(step)}`);
    const slow = setTimeout(
      () => fill(this.body, h("p", { class: "empty loading", role: "status" }, "Reading the IR …")),
      150,
    );
    try {
      const [read, model] = await Promise.all([listing(pane.side, step), links.modelOf(compilationOf(pane.side))]);
      if (key !== this.key) return;
      this.model = model;
      // After a pass inside of a step, its name is known now.
      this.#open(read, findStep(pane));
    } catch (error) {
      if (key === this.key) fill(this.body, problemCard(error));
      this.key = null;
    } finally {
      clearTimeout(slow);
    }
  }

  #open(read, step) {
    const fn = this.listing && this.listing.functionAt(this.view.line)?.title;
    this.listing = read;
    this.folded = new Set();
    if (this.view.frame.parentNode !== this.body) fill(this.body, this.view.frame);
    this.view.element.setAttribute("aria-label", `IR after ${stepName(step)}, ${read.lines.length} lines`);
    this.#rows();
    this.#head(step);
    links.again(this);
    this.search.again();
    const wanted = state.line?.pane === this.index ? state.line.line : null;
    const span = read.functionNamed(state.fn ?? fn ?? "main");
    if (wanted !== null && wanted < read.lines.length) {
      this.view.goTo(wanted, { center: true });
      this.#light(wanted);
    } else if (span && ![...this.view.lit].some((line) => span.start <= line && line < span.end)) {
      this.view.goTo(span.start, { top: true });
    }
  }

  #rows() {
    const rows = [];
    const closed = new Map(
      this.listing.functions.filter((span) => this.folded.has(span.start)).map((span) => [span.start, span.end]),
    );
    for (let line = 0; line < this.listing.lines.length; line += 1) {
      rows.push(line);
      if (closed.has(line)) line = closed.get(line) - 1;
    }
    const stripes = (line) => this.model.coloursOf(this.listing.segmentAt(line)?.origins ?? []);
    this.view.show(this.listing, Int32Array.from(rows), { folded: this.folded, stripes });
  }

  #head(step) {
    const { index, pane } = this;
    const set = (next) => change({ panes: state.panes.with(index, next) }, { history: "push" });
    const functions = this.listing?.functions ?? [];
    const jump = h(
      "select",
      { "aria-label": "Go to function", class: "jump", onChange: (event) => this.goTo(event.target.value) },
      h("option", { value: "" }, `${functions.length} functions`),
      functions.map((span) => h("option", null, span.title)),
    );
    const against = stepSelect(
      "Compare with a step",
      null,
      ({ side, step: other }) => {
        const { kind: _, ...right } = pane;
        openDifference({ kind: "diff", left: { side, step: other }, right });
      },
      [h("option", { value: "" }, "± diff with …")],
    );
    against.classList.add("against");
    fill(
      this.header,
      pane.side === "b" || state.b ? h("b", { class: `side side-${pane.side}` }, pane.side.toUpperCase()) : null,
      stepSelect("Step", pane, (chosen) => set({ kind: "ir", ...chosen })),
      jump,
      against,
      h(
        "span",
        { class: "pane-tools" },
        button(icon("search"), () => this.search.open(), { name: "Search in this text (/)" }),
        button(icon(this.folded.size ? "unfold" : "fold"), () => this.foldAll(), {
          name: this.folded.size ? "Unfold all functions" : "Fold all functions",
        }),
        button(icon("copy"), () => copy(this.listing?.text ?? "", "the text"), { name: "Copy the text" }),
        button(icon("close"), () => closePane(index), { name: "Close this pane" }),
      ),
    );
    const figures = step?.details?.memory;
    fill(
      this.note,
      [
        ...(step?.notes ?? []),
        figures &&
          `memory plan: ${bytes(figures.allocated_bytes)} allocated, ${bytes(figures.reused_bytes)} reused of ${bytes(figures.tensor_bytes)}`,
      ]
        .filter(Boolean)
        .map((note) => h("div", null, note)),
    );
  }

  #segment(line) {
    return this.listing.segmentAt(line);
  }

  #pick(line) {
    change({ active: this.index, line: { pane: this.index, line }, fn: this.listing.functionAt(line)?.title ?? null });
    this.#light(line);
  }

  #light(line) {
    links.pin(this.#segment(line), this);
    if (!this.listing.segmentAt(line)) announce("This line comes from no node of the model.");
  }

  light(lit, go) {
    if (this.listing) this.view.light(this.listing.linesOf(lit), go);
  }

  #fold(line) {
    const span = this.listing.functionAt(line);
    if (!span) return;
    if (!this.folded.delete(span.start)) this.folded.add(span.start);
    this.#rows();
    this.view.goTo(span.start);
  }

  foldAll() {
    this.folded = this.folded.size ? new Set() : new Set(this.listing.functions.map((span) => span.start));
    this.#rows();
    this.#head(findStep(this.pane));
    announce(this.folded.size ? "All functions are folded." : "All functions are unfolded.");
  }

  goTo(name) {
    const span = this.listing?.functionNamed(name);
    if (!span) return;
    this.unfold(span.start);
    this.view.goTo(span.start, { top: true });
    this.view.element.focus();
  }

  unfold(line) {
    const span = this.listing.functionAt(line);
    if (span && this.folded.delete(span.start)) this.#rows();
  }

  focus() {
    this.view.element.focus();
  }

  close() {
    this.leave();
  }
}

export function closePane(index) {
  const panes = state.panes.filter((_, at) => at !== index);
  change({ panes, active: Math.max(0, Math.min(state.active, panes.length - 1)), line: null });
}

/** The search in a pane's text. */
class SearchBar {
  constructor(pane) {
    this.pane = pane;
    this.input = h("input", {
      type: "search",
      "aria-label": "Search in this text",
      placeholder: "search",
      spellcheck: "false",
      onInput: () => this.run(),
      onKeydown: (event) => this.#key(event),
    });
    this.count = h("span", { class: "muted", role: "status" });
    this.element = h(
      "div",
      { class: "search-bar", hidden: true },
      this.input,
      this.count,
      button(icon("up"), () => this.go(-1), { name: "Previous match" }),
      button(icon("down"), () => this.go(1), { name: "Next match" }),
      button(icon("close"), () => this.shut(), { name: "Close the search" }),
    );
    this.lines = [];
    this.at = -1;
  }

  open() {
    this.element.hidden = false;
    this.input.focus();
    this.input.select();
  }

  shut() {
    this.element.hidden = true;
    this.input.value = "";
    this.run();
    this.pane.focus();
  }

  again() {
    if (!this.element.hidden) this.run();
  }

  run() {
    const words = this.input.value.toLowerCase();
    this.lines = [];
    if (words)
      this.pane.listing?.lines.forEach((line, number) => {
        if (line.toLowerCase().includes(words)) this.lines.push(number);
      });
    this.at = -1;
    this.pane.view.found(new Set(this.lines), words);
    this.count.textContent = words ? `${this.lines.length} lines` : "";
    if (this.lines.length) this.go(1);
  }

  go(by) {
    if (this.lines.length === 0) return;
    this.at = (this.at + by + this.lines.length) % this.lines.length;
    this.count.textContent = `${this.at + 1} of ${this.lines.length} lines`;
    this.pane.unfold(this.lines[this.at]);
    this.pane.view.goTo(this.lines[this.at], { center: true });
  }

  #key(event) {
    if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") this.shut();
  }
}
