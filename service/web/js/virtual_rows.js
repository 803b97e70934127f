// A list of any length as a listbox that draws only the rows in sight.

import { everyFrame, h, uniqueId } from "./dom.js";

const HEIGHT = 20; // as --row in code.css
const AHEAD = 10;

export class VirtualRows {
  /** `render(row)` gives the children of a row; `onPick(row, target)` and `onHover(row or null)` get the row itself. */
  constructor({ label, render, onPick, onHover, onKey }) {
    Object.assign(this, { render, onPick, onHover, onKey });
    this.id = uniqueId("rows");
    this.window = h("div", { class: "code-window", role: "presentation" });
    this.spacer = h("div", { class: "code-spacer", role: "presentation" }, this.window);
    this.element = h("div", { class: "rows", role: "listbox", tabindex: 0, "aria-label": label }, this.spacer);
    this.rows = [];
    this.present = 0;
    this.isLit = null;
    this.draw = everyFrame(() => this.#draw());
    this.element.addEventListener("scroll", this.draw, { passive: true });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("click", (event) => {
      const at = indexOf(event);
      if (at !== null) this.#pick(at, event.target);
    });
    this.element.addEventListener("mousemove", (event) => this.#hover(indexOf(event)));
    this.element.addEventListener("mouseleave", () => this.#hover(null));
    new ResizeObserver(this.draw).observe(this.element);
  }

  show(rows) {
    this.rows = rows;
    this.present = Math.min(this.present, Math.max(0, rows.length - 1));
    this.spacer.style.height = `${rows.length * HEIGHT}px`;
    this.draw();
  }

  /** Lights the rows for which `isLit` is true; with `go`, scrolls to the first. */
  light(isLit, go) {
    this.isLit = isLit;
    if (go && isLit) {
      const first = this.rows.findIndex(isLit);
      if (first >= 0) this.#reveal(first);
    }
    // The rows themselves stay: a click is between two events on one element.
    for (const row of this.window.children) row.classList.toggle("lit", Boolean(isLit?.(this.rows[row.dataset.row])));
  }

  /** Makes a row the present one. */
  select(at) {
    this.present = Math.max(0, Math.min(at, this.rows.length - 1));
    this.#reveal(this.present);
    this.#draw();
  }

  #draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / HEIGHT) - AHEAD);
    const last = Math.min(this.rows.length, first + Math.ceil(clientHeight / HEIGHT) + 2 * AHEAD);
    this.window.style.transform = `translateY(${first * HEIGHT}px)`;
    const elements = [];
    for (let at = first; at < last; at += 1) elements.push(this.#row(at));
    this.window.replaceChildren(...elements);
    // No attribute may name what is not there.
    if (first <= this.present && this.present < last)
      this.element.setAttribute("aria-activedescendant", `${this.id}-${this.present}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #row(at) {
    const row = this.rows[at];
    const classes = ["row", `row-${row.kind ?? "plain"}`, this.isLit?.(row) && "lit", at === this.present && "present"];
    const props = {
      class: classes.filter(Boolean).join(" "),
      role: "option",
      id: `${this.id}-${at}`,
      dataset: { row: at },
    };
    const position = {
      "aria-selected": String(at === this.present),
      "aria-posinset": at + 1,
      "aria-setsize": this.rows.length,
    };
    return h("div", { ...props, ...position }, this.render(row, at));
  }

  #reveal(at) {
    const top = at * HEIGHT;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top > scrollTop + clientHeight - 2 * HEIGHT)
      this.element.scrollTop = Math.max(0, top - clientHeight / 3);
  }

  #pick(at, target) {
    this.select(at);
    this.onPick?.(this.rows[at], target);
  }

  #hover(at) {
    if (at === this.hovered) return;
    this.hovered = at;
    this.onHover?.(at === null ? null : this.rows[at]);
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / HEIGHT) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      event.preventDefault();
      this.select(Math.max(0, Math.min(this.present + moves[event.key], this.rows.length - 1)));
      this.onHover?.(this.rows[this.present]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.#pick(this.present, null);
    } else if (this.onKey?.(event, this.rows[this.present])) {
      event.preventDefault();
    }
  }
}

function indexOf(event) {
  const element = event.target.closest?.(".row");
  return element ? Number(element.dataset.row) : null;
}
