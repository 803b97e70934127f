// A view of lines that draws only those in sight: 5 MB of LLVM scroll like 50 lines.

import { colour, onTheme } from "../colours.js";
import { h, everyFrame, uniqueId } from "../dom.js";
import { paint } from "./tokens.js";

const LINE = 18; // as --line in code.css
const AHEAD = 12;
const LONGEST = 2000;
const TALLEST = 15_000_000; // browsers cap the height of an element somewhat above

/**
 * Rows are what is seen, lines what the Listing has: folding and differences put other rows than lines. `rows` is an
 * array of line numbers, -1 for an empty row and -2 - n for "n lines that are the same are not shown".
 */
export class CodeView {
  constructor({ label, onPick, onHover, onFold, onGap }) {
    this.id = uniqueId("code");
    this.window = h("div", { class: "code-window", role: "presentation" });
    this.spacer = h("div", { class: "code-spacer", role: "presentation" }, this.window);
    this.element = h(
      "div",
      { class: "code", role: "listbox", tabindex: 0, "aria-label": label, id: this.id },
      this.spacer,
    );
    this.ruler = h("canvas", { class: "ruler", "aria-hidden": "true" });
    this.frame = h("div", { class: "code-frame" }, this.element, this.ruler);
    Object.assign(this, { onPick, onHover, onFold, onGap });
    this.rows = new Int32Array(0);
    this.row = 0;
    this.top = 0;
    this.lit = new Set();
    this.hits = new Set();
    this.kinds = null;
    this.marks = null;
    this.stripes = null;
    this.drawn = new Map();
    this.draw = everyFrame(() => this.#draw());
    this.#listen();
  }

  #listen() {
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("click", (event) => this.#click(event));
    this.element.addEventListener("mousemove", (event) => this.#hover(this.#rowOf(event)));
    this.element.addEventListener("mouseleave", () => this.#hover(null));
    this.ruler.addEventListener("click", (event) => {
      const share = event.offsetY / this.ruler.clientHeight;
      this.#reveal(Math.floor(share * this.rows.length), true);
    });
    new ResizeObserver(() => this.#resized()).observe(this.element);
    onTheme(this.draw);
  }

  /** Shows other lines. `kinds`, `marks` and `heads` are for differences: by row, by row, and function heads by line. */
  show(listing, rows, { kinds = null, marks = null, folded = null, stripes = null } = {}) {
    Object.assign(this, { listing, rows, kinds, marks, folded, stripes });
    this.heads = new Map(listing.functions.map((span) => [span.start, span]));
    this.row = Math.min(this.row, Math.max(0, rows.length - 1));
    const width = Math.min(listing.widest, LONGEST) + 10;
    this.spacer.style.height = `${Math.min(rows.length * LINE, TALLEST)}px`;
    this.spacer.style.minWidth = `calc(${width}ch + 5.5rem)`;
    this.element.dataset.rows = rows.length;
    this.redraw();
  }

  redraw() {
    this.drawn.clear();
    this.window.replaceChildren();
    this.draw();
  }

  /** Lights these lines, the most telling first; with `go`, scrolls to that one unless it is in sight. */
  light(lines, go) {
    if (lines.size === 0 && this.lit.size === 0) return;
    this.lit = lines;
    for (const [row, element] of this.drawn) element.classList.toggle("lit", lines.has(this.rows[row]));
    if (go && lines.size > 0) {
      const [telling] = lines;
      const exact = this.rows.indexOf(telling);
      const first = exact >= 0 ? exact : this.rows.findIndex((line) => lines.has(line));
      if (first >= 0) this.#reveal(first, false);
    }
    this.draw();
  }

  /** Marks these lines as found by the search. */
  found(lines, words) {
    this.hits = lines;
    this.words = words;
    this.redraw();
  }

  /** Makes a line the present one and scrolls to it; with `top`, to where it is the second in sight. */
  goTo(line, { center = false, top = false } = {}) {
    const row = this.rows.indexOf(line);
    if (row < 0) return;
    this.#select(row, center);
    if (top) this.scrollTo(((row - 1) * LINE) / this.#scale());
  }

  get line() {
    return this.rows[this.row] ?? -1;
  }

  /** By pixels from the first line; kept while the view is out of the page. */
  scrollTo(top) {
    this.top = Math.max(0, top);
    this.element.scrollTop = this.top;
  }

  #scrolled() {
    this.top = this.element.scrollTop;
    this.draw();
  }

  /** Taken out of the page, as another tab is shown, an element forgets how far it was scrolled. */
  #resized() {
    if (this.element.clientHeight && Math.abs(this.element.scrollTop - this.top) > 1) this.element.scrollTop = this.top;
    this.draw();
  }

  #scale() {
    return Math.max(1, (this.rows.length * LINE) / TALLEST);
  }

  #draw() {
    const { scrollTop, clientHeight } = this.element;
    const top = Math.floor((scrollTop * this.#scale()) / LINE);
    const first = Math.max(0, top - AHEAD);
    const last = Math.min(this.rows.length, top + Math.ceil(clientHeight / LINE) + AHEAD);
    for (const [row, element] of this.drawn) {
      if (row < first || row >= last) {
        element.remove();
        this.drawn.delete(row);
      }
    }
    const offset = scrollTop - (scrollTop * this.#scale() - first * LINE);
    this.window.style.transform = `translateY(${Math.max(0, offset)}px)`;
    let before = this.window.firstChild;
    for (let row = first; row < last; row += 1) {
      let element = this.drawn.get(row);
      if (!element) {
        element = this.#row(row);
        this.drawn.set(row, element);
        this.window.insertBefore(element, before);
      } else {
        before = element.nextSibling;
      }
    }
    this.#tellPresent();
    this.#rule();
  }

  /** The present row for screen readers, while it is drawn: no attribute may name what is not there. */
  #tellPresent() {
    if (this.drawn.has(this.row)) this.element.setAttribute("aria-activedescendant", `${this.id}-${this.row}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #row(row) {
    const line = this.rows[row];
    const props = {
      class: this.#classes(row, line),
      role: "option",
      id: `${this.id}-${row}`,
      "aria-selected": String(row === this.row),
    };
    Object.assign(props, { "aria-posinset": row + 1, "aria-setsize": this.rows.length, dataset: { row } });
    if (line === -1)
      return h(
        "div",
        { ...props, "aria-label": "no line on this side" },
        h("span", { class: "stripe" }),
        h("span", { class: "number" }),
        h("code", null, " "),
      );
    if (line < -1)
      return h(
        "div",
        props,
        h("span", { class: "stripe" }),
        h("span", { class: "number" }, "⋯"),
        h("code", null, `${-2 - line} lines alike`),
      );
    const span = this.heads.get(line);
    const closed = span && this.folded?.has(span.start);
    const fold = span && this.onFold ? h("span", { class: "fold", "aria-hidden": "true" }, closed ? "▸" : "▾") : null;
    const text = this.listing.lines[line];
    const shown = text.length > LONGEST ? text.slice(0, LONGEST) : text;
    const code = h("code", null, paint(shown, this.listing.stage, this.#marksOf(row, line, shown)));
    if (text.length > LONGEST) code.append(h("i", null, ` … ${text.length - LONGEST} more characters`));
    if (closed) code.append(h("i", null, `  ⋯ ${span.title}, ${span.end - span.start} lines`));
    const stripe = h("span", { class: "stripe" });
    const colours = this.stripes?.(line) ?? [];
    if (colours.length > 0) stripe.style.background = stripesOf(colours);
    return h("div", props, stripe, h("span", { class: "number" }, line + 1, fold), code);
  }

  #classes(row, line) {
    const kind = this.kinds?.[row];
    return [
      "row",
      kind && `row-${kind}`,
      this.lit.has(line) && "lit",
      this.hits.has(line) && "hit",
      row === this.row && "present",
      line < -1 && "gap",
    ]
      .filter(Boolean)
      .join(" ");
  }

  #marksOf(row, line, text) {
    if (this.words && this.hits.has(line)) {
      const low = text.toLowerCase();
      const marks = [];
      for (let at = low.indexOf(this.words); at >= 0; at = low.indexOf(this.words, at + this.words.length)) {
        marks.push([at, at + this.words.length, "word"]);
      }
      return marks;
    }
    return this.marks?.get(row) ?? [];
  }

  #rowOf(event) {
    const element = event.target.closest?.(".row");
    return element ? Number(element.dataset.row) : null;
  }

  #hover(row) {
    if (row === this.hovered) return;
    this.hovered = row;
    this.onHover?.(row === null || this.rows[row] < 0 ? null : this.rows[row]);
  }

  #click(event) {
    const row = this.#rowOf(event);
    if (row === null || window.getSelection()?.type === "Range") return;
    if (event.target.closest(".fold")) this.onFold?.(this.rows[row]);
    else this.#pick(row);
  }

  #pick(row) {
    if (this.rows[row] < -1) {
      this.onGap?.(row);
      return;
    }
    this.#select(row, false);
    if (this.rows[row] >= 0) this.onPick?.(this.rows[row]);
  }

  #select(row, center) {
    const old = this.row;
    this.row = Math.max(0, Math.min(row, this.rows.length - 1));
    for (const changed of [old, this.row]) {
      const element = this.drawn.get(changed);
      element?.classList.toggle("present", changed === this.row);
      element?.setAttribute("aria-selected", String(changed === this.row));
    }
    this.#reveal(this.row, center);
    this.#draw();
  }

  #reveal(row, center) {
    const top = (row * LINE) / this.#scale();
    const { scrollTop, clientHeight } = this.element;
    if (!center && top >= scrollTop + LINE && top <= scrollTop + clientHeight - 3 * LINE) return;
    this.scrollTo(top - (center ? clientHeight / 3 : clientHeight / 4));
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / LINE) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves && !event.altKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      const target = Math.max(0, Math.min(this.row + moves[event.key], this.rows.length - 1));
      this.#select(target, false);
      this.onHover?.(this.rows[target] >= 0 ? this.rows[target] : null);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.#pick(this.row);
    } else if (event.key === " " && this.onFold) {
      event.preventDefault();
      this.onFold(this.line);
    }
  }

  /** Where lit, found and changed lines are, beside the scroll bar. */
  #rule() {
    const { clientWidth: width, clientHeight: height } = this.ruler;
    if (width === 0 || height === 0) return;
    const dots = window.devicePixelRatio || 1;
    this.ruler.width = width * dots;
    this.ruler.height = height * dots;
    const pen = this.ruler.getContext("2d");
    const put = (row, name) => {
      pen.fillStyle = colour(name);
      pen.fillRect(
        0,
        Math.floor((row / this.rows.length) * height * dots),
        width * dots,
        Math.max(2 * dots, (height * dots) / this.rows.length),
      );
    };
    if (!this.kinds && this.lit.size === 0 && this.hits.size === 0) return;
    for (let row = 0; row < this.rows.length; row += 1) {
      const line = this.rows[row];
      if (this.kinds?.[row]) put(row, `--ruler-${this.kinds[row]}`);
      if (this.hits.has(line)) put(row, "--ruler-hit");
      if (this.lit.has(line)) put(row, "--ruler-lit");
    }
  }
}

function stripesOf(colours) {
  if (colours.length === 1) return `var(--s${colours[0]})`;
  const share = 100 / colours.length;
  return `linear-gradient(${colours.map((colour, at) => `var(--s${colour}) ${at * share}% ${(at + 1) * share}%`).join(", ")})`;
}
