// A pane with two steps side by side.

import { button, copy, everyFrame, fill, h } from "../dom.js";
import { stepName } from "../format.js";
import { icon } from "../icons.js";
import * as links from "../links.js";
import { problemCard } from "../problem.js";
import { change, compilationOf, findStep, state, stepKey } from "../state.js";
import { CodeView } from "./code_view.js";
import { condensed, difference } from "./difference.js";
import { listing } from "./listing.js";
import { closePane, stepSelect } from "./listing_pane.js";

export class DifferencePane {
  constructor(index) {
    this.index = index;
    this.opened = new Set();
    this.sides = ["left", "right"].map((name) => this.#side(name));
    this.header = h("div", { class: "pane-head" });
    this.body = h("div", { class: "pane-body twin" });
    this.element = h("section", { class: "pane pane-diff", "aria-label": "Difference" }, this.header, this.body);
    this.leave = links.join(this);
    this.#scrollTogether();
  }

  #side(name) {
    const side = { name, listing: null };
    const segment = (line) => side.listing.segmentAt(line);
    side.view = new CodeView({
      label: name === "left" ? "Before" : "After",
      onPick: (line) => {
        change({ active: this.index });
        links.pin(segment(line), this);
      },
      onHover: (line) => links.hover(line === null ? null : segment(line), this),
      onGap: (row) => this.#openGap(row),
    });
    return side;
  }

  #scrollTogether() {
    const [left, right] = this.sides.map((side) => side.view);
    const follow = (one, other) => {
      const along = everyFrame(() => {
        other.scrollTo(one.element.scrollTop);
        other.element.scrollLeft = one.element.scrollLeft;
      });
      one.element.addEventListener("scroll", along, { passive: true });
    };
    follow(left, right);
    follow(right, left);
  }

  async show(pane) {
    this.pane = pane;
    const places = [pane.left, pane.right];
    const steps = places.map(findStep);
    const key = places.map(({ side }, at) => `${compilationOf(side)?.id}/${steps[at] && stepKey(steps[at])}`).join("~");
    this.#head();
    if (key === this.key) return;
    this.key = key;
    if (steps.includes(null)) {
      fill(this.body, h("p", { class: "empty" }, "One of these steps is not there (yet). Choose others above."));
      return;
    }
    this.element.setAttribute("aria-label", `Difference from ${stepName(steps[0])} to ${stepName(steps[1])}`);
    fill(this.body, h("p", { class: "empty loading", role: "status" }, "Comparing …"));
    try {
      const read = await Promise.all(places.map(({ side }, at) => listing(side, steps[at])));
      this.model = await links.modelOf(compilationOf(pane.right.side));
      if (key !== this.key) return;
      this.sides.forEach((side, at) => {
        side.listing = read[at];
      });
      this.opened = new Set();
      this.result = difference(...read);
      fill(
        this.body,
        this.sides.map((side) => side.view.frame),
      );
      this.#rows();
      this.#head();
      this.#goToFirst();
      links.again(this);
    } catch (error) {
      if (key === this.key) fill(this.body, problemCard(error));
      this.key = null;
    }
  }

  #rows() {
    const rows = condensed(this.result, this.opened);
    this.gaps = rows.gaps;
    this.sides.forEach((side) => {
      const stripes = (line) => this.model.coloursOf(side.listing.segmentAt(line)?.origins ?? []);
      side.view.show(side.listing, rows[side.name], {
        kinds: rows[`${side.name}Kinds`],
        marks: rows[`${side.name}Marks`],
        stripes,
      });
    });
    this.kinds = rows.rightKinds.map((kind, at) => kind || rows.leftKinds[at]);
  }

  #openGap(row) {
    this.opened.add(this.gaps.get(row));
    this.#rows();
  }

  #goToFirst() {
    // The program itself says most, where it has changed.
    const right = this.sides[1];
    const main = right.listing.functionNamed("main");
    const at = main
      ? this.kinds.findIndex(
          (kind, row) => kind && right.view.rows[row] >= main.start && right.view.rows[row] < main.end,
        )
      : -1;
    this.row = at > 0 ? at - 1 : -1;
    this.next(1);
  }

  /** Goes to the next run of changes, or with -1 to the one before. */
  next(by) {
    const starts = this.kinds.map((kind, at) => (kind && !this.kinds[at - 1] ? at : -1)).filter((at) => at >= 0);
    const found = by > 0 ? starts.find((at) => at > this.row) : starts.findLast((at) => at < this.row);
    if (found === undefined) return;
    this.row = found;
    this.sides[0].view.scrollTo((found - 4) * 18);
  }

  #head() {
    const { index, pane } = this;
    const set = (next) => change({ panes: state.panes.with(index, next) }, { history: "push" });
    const { added = 0, removed = 0, changed = 0 } = this.result ?? {};
    const same = this.result && added + removed + changed === 0;
    fill(
      this.header,
      stepSelect("Before", pane.left, (left) => set({ ...pane, left })),
      button(icon("swap"), () => set({ ...pane, left: pane.right, right: pane.left }), { name: "Swap the sides" }),
      stepSelect("After", pane.right, (right) => set({ ...pane, right })),
      h(
        "span",
        { class: "counts", role: "status" },
        same
          ? "no difference"
          : [
              h("span", { class: "plus" }, `+${added}`),
              " ",
              h("span", { class: "minus" }, `−${removed}`),
              " ",
              h("span", { class: "change" }, `~${changed}`),
            ],
      ),
      h(
        "span",
        { class: "pane-tools" },
        button(icon("up"), () => this.next(-1), { name: "Previous change" }),
        button(icon("down"), () => this.next(1), { name: "Next change" }),
        button(icon("copy"), () => copy(this.#unified(), "the difference"), { name: "Copy the difference" }),
        button(icon("close"), () => closePane(index), { name: "Close this pane" }),
      ),
    );
  }

  #unified() {
    const [left, right] = this.sides.map((side) => side.listing.lines);
    const { left: ones, right: others, leftKinds, rightKinds } = this.result;
    const lines = [];
    ones.forEach((one, row) => {
      if (leftKinds[row] === "" && rightKinds[row] === "") lines.push(`  ${left[one]}`);
      else {
        if (one >= 0) lines.push(`- ${left[one]}`);
        if (others[row] >= 0) lines.push(`+ ${right[others[row]]}`);
      }
    });
    return lines.join("\n");
  }

  light(lit, go) {
    for (const side of this.sides)
      if (side.listing) side.view.light(side.listing.linesOf(lit), go && side.name === "right");
  }

  focus() {
    this.sides[1].view.element.focus();
  }

  close() {
    this.leave();
  }
}
