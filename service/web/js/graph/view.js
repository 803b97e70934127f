// The graph of a step: the drawing, and the same as a list for the keyboard and screen readers.

import { getJson, isResult } from "../api.js";
import { announce, button, fill, h } from "../dom.js";
import { microseconds, percent, scientific, stepName } from "../format.js";
import { icon } from "../icons.js";
import { snapshot } from "../ir/listing.js";
import { stepSelect } from "../ir/listing_pane.js";
import * as links from "../links.js";
import { problemCard } from "../problem.js";
import { change, compilationOf, state } from "../state.js";
import { VirtualRows } from "../virtual_rows.js";
import { GraphCanvas } from "./canvas.js";
import { layout, tree } from "./layout.js";

const SMALL = 60; // a graph of so many nodes is shown with all modules open
const COLOURINGS = [
  ["source", "by source line"],
  ["change", "by change"],
  ["time", "by time"],
  ["error", "by error"],
];

export class GraphView {
  constructor() {
    this.colouring = "source";
    this.open = new Set();
    this.canvas = new GraphCanvas({
      label: "Graph",
      fillOf: (box) => this.#fillOf(box),
      onPick: (box) => this.#pick(box),
      onToggle: (box) => this.#toggle(box),
    });
    this.list = new VirtualRows({
      label: "Nodes of the graph",
      render: (row) => this.#row(row),
      onPick: (row, target) => this.#pickRow(row, target),
      onHover: (row) => links.hover(row?.box.node ? segment(row.box.node) : null, this),
      onKey: (event, row) => this.#key(event, row),
    });
    this.head = h("div", { class: "view-head" });
    this.about = h("div", { class: "graph-about", "aria-live": "polite" });
    this.body = h(
      "div",
      { class: "graph-body" },
      this.canvas.element,
      h("div", { class: "graph-side" }, this.list.element, this.about),
    );
    this.error = h("div");
    this.element = h("div", { class: "graph-view" }, this.head, this.error, this.body);
    links.join(this);
  }

  async show() {
    const side = state.graph?.side === "b" && state.b ? "b" : "a";
    this.compilation = compilationOf(side);
    const { steps } = this.compilation;
    const step = steps.find(({ index }) => index === state.graph?.step) ?? steps.at(-1);
    this.side = side;
    if (!step) {
      fill(this.error, h("p", { class: "empty loading" }, "Importing the model …"));
      return;
    }
    const key = `${this.compilation.id}/${step.index}/${this.colouring}/${this.fn}/${state.b?.id}`;
    if (key === this.key) return;
    this.key = key;
    this.step = step;
    try {
      const found = await snapshot(this.compilation.id, step);
      this.model = await links.modelOf(this.compilation);
      await this.#measure(found, step);
      if (key !== this.key) return;
      fill(this.error);
      this.#read(found, step);
    } catch (error) {
      fill(this.error, problemCard(error));
      this.key = null;
    }
  }

  #read(found, step) {
    const relax = found.functions.filter((entry) => entry.kind === "relax" && entry.bindings.length);
    const entry = relax.find(({ name }) => name === this.fn) ?? relax.find(({ name }) => name === "main") ?? relax[0];
    this.#head(step, relax, entry);
    const moduleOf = (node) => this.model.origins[node.origins?.[0]]?.module ?? null;
    const nodes = (entry?.bindings ?? []).map((node) => ({
      ...node,
      id: node.name,
      path: moduleOf(node)?.split(".") ?? [],
    }));
    const known = `${this.compilation.id}/${entry?.name}`;
    this.tree = tree(nodes);
    if (this.known !== known) {
      this.known = known;
      this.canvas.fitted = false;
      this.open = new Set(nodes.length <= SMALL ? this.tree.groups.keys() : []);
      this.open.delete("");
    }
    this.byId = new Map(nodes.map((node) => [node.id, node]));
    this.canvas.element.setAttribute(
      "aria-label",
      `Graph of ${entry?.name ?? "nothing"} after ${stepName(step)}: ${nodes.length} nodes. The list beside it has the same.`,
    );
    this.#arrange();
  }

  #head(step, relax, entry) {
    const place = { side: this.side, step: step.index };
    const choose = (chosen) => change({ graph: chosen }, { history: "push" });
    const colour = (event) => {
      this.colouring = event.target.value;
      this.show();
    };
    const pick = (event) => {
      this.fn = event.target.value;
      this.show();
    };
    const all = (open) => {
      this.open = new Set(open ? this.tree.groups.keys() : []);
      this.canvas.fitted = false;
      this.#arrange();
    };
    fill(
      this.head,
      stepSelect("Step of the graph", place, choose, [], (each) => !isResult(each)),
      relax.length > 1
        ? h(
            "select",
            { "aria-label": "Function", onChange: pick },
            relax.map(({ name }) => h("option", { selected: name === entry?.name }, name)),
          )
        : null,
      h(
        "select",
        { "aria-label": "Colour of the nodes", onChange: colour },
        [...COLOURINGS, ...(state.b ? [["other", `by what ${this.#other().name} lacks`]] : [])].map(([value, label]) =>
          h("option", { value, selected: value === this.colouring }, label),
        ),
      ),
      button("Open all", () => all(true)),
      button("Close all", () => all(false)),
      h(
        "span",
        { class: "pane-tools" },
        button(icon("minus"), () => this.canvas.zoom(0.8), { name: "Smaller" }),
        button(icon("plus"), () => this.canvas.zoom(1.25), { name: "Larger" }),
        button(icon("fit"), () => this.canvas.whole(), { name: "The whole graph" }),
      ),
      h("span", { class: "legend muted" }, this.#legend()),
    );
  }

  /** The Compilation that this one is compared with, by its last step. */
  #other() {
    return this.side === "b" ? { name: "A", compilation: state.a } : { name: "B", compilation: state.b };
  }

  #legend() {
    if (this.colouring === "other") return `+ what ${this.#other().name} does not have after its last step`;
    if (this.colouring === "time")
      return this.profile ? `of ${microseconds(this.profile.total.median_us)} a run` : (this.note ?? "");
    if (this.colouring === "change")
      return this.before ? "+ new or changed since the step before" : "this is the first step";
    if (this.colouring === "error")
      return `✕ first binding that is wrong · largest error of the step ${scientific(this.step.error)}`;
    return "colours as of the lines in the panes";
  }

  /** What the colouring needs to know beyond the step itself. */
  async #measure(found, step) {
    this.note = null;
    const { id, steps } = this.compilation;
    if (this.colouring === "other" && !state.b) this.colouring = "source";
    if (this.colouring === "time" && this.profileOf !== id) {
      this.profile = null;
      try {
        this.profile = await getJson(`/compile/${id}/profile?runs=20`);
        this.profileOf = id;
      } catch (error) {
        this.note = error.message;
      }
    }
    let base = null;
    if (this.colouring === "change") base = [id, steps.findLast(({ index }) => index < step.index)];
    if (this.colouring === "other") base = [this.#other().compilation.id, this.#other().compilation.steps.at(-1)];
    this.before = base?.[1]
      ? new Set((await snapshot(...base)).functions.flatMap((entry) => entry.bindings.map(likeness)))
      : null;
    const numbers = step.details?.numbers ?? {};
    this.wrong = numbers.first_binding?.binding ?? numbers.first_binding?.name ?? numbers.first_binding ?? null;
  }

  #arrange() {
    const graph = layout(this.tree, this.open, widthOf);
    for (const box of graph.boxes)
      if (box.node)
        Object.assign(box, { title: title(box.node), subtitle: `${box.node.name}  ${short(box.node.type)}` });
    this.canvas.show(graph);
    const rows = [];
    const walk = (box, depth) => {
      for (const child of [...box.children].sort((one, other) => one.order - other.order)) {
        rows.push({ kind: child.children ? "group" : "node", box: child, depth });
        if (child.children && this.open.has(child.key)) walk(child, depth + 1);
      }
    };
    walk(this.tree.root, 0);
    this.list.show(rows);
  }

  #share(box) {
    const kernels = new Map((this.profile?.kernels ?? []).map((kernel) => [kernel.function, kernel]));
    let sum = 0;
    for (const node of this.#members(box)) {
      const kernel = kernels.get(node.callee);
      if (kernel) sum += kernel.share / kernel.calls;
    }
    return sum;
  }

  #fillOf(box) {
    const plain = { fill: box.children ? "--graph-group" : "--sheet", text: "--text" };
    const members = this.#members(box);
    if (this.colouring === "source") {
      const [first] = box.node ? this.model.coloursOf(box.node.origins ?? []) : [];
      return first === undefined ? plain : { fill: `--g${first}`, text: "--text" };
    }
    if (this.colouring === "change" || this.colouring === "other") {
      const fresh = this.before ? members.filter((node) => !this.before.has(likeness(node))).length : 0;
      return fresh
        ? {
            ...plain,
            fill: "--graph-new",
            sign: "+",
            note: box.children ? `${fresh} of ${box.count}` : undefined,
          }
        : plain;
    }
    if (this.colouring === "time") {
      const share = this.profile ? this.#share(box) : 0;
      const level = share > 0.3 ? 4 : share > 0.1 ? 3 : share > 0.03 ? 2 : share > 0 ? 1 : 0;
      return level
        ? {
            fill: `--heat${level}`,
            text: "--text",
            note: `${percent(share)} · ${microseconds(share * this.profile.total.median_us)}`,
          }
        : plain;
    }
    const wrong = members.some((node) => node.name === this.wrong);
    return wrong ? { fill: "--bad-ground", text: "--bad", sign: "✕" } : plain;
  }

  /** The nodes that a box stands for: its own, or all in a closed module. */
  #members(box) {
    return box.node ? [box.node] : [...(box.members?.keys() ?? [])].map((id) => this.byId.get(id)).filter(Boolean);
  }

  #row({ box, depth, kind }) {
    const indent = h("span", { class: "indent" });
    indent.style.width = `${depth * 14 + 6}px`;
    if (kind === "group")
      return [
        indent,
        h("span", { class: "twist", "aria-hidden": "true" }, this.open.has(box.key) ? "▾" : "▸"),
        h("b", null, box.label),
        h("span", { class: "many" }, box.count),
      ];
    const found = this.#fillOf(box);
    return [
      indent,
      h("span", { class: "t-operator" }, title(box.node)),
      h("span", { class: "muted" }, ` ${box.node.name}`),
      found.sign ? h("span", { class: "sign" }, ` ${found.sign}`) : null,
      found.note ? h("span", { class: "many" }, found.note) : null,
    ];
  }

  #key(event, row) {
    if (row?.kind !== "group") return false;
    const isOpen = this.open.has(row.box.key);
    if ((event.key === "ArrowRight" && !isOpen) || (event.key === "ArrowLeft" && isOpen) || event.key === " ") {
      this.#toggle(row.box);
      return true;
    }
    return false;
  }

  #toggle(box) {
    if (!this.open.delete(box.key)) this.open.add(box.key);
    this.#arrange();
    announce(`${box.key} is ${this.open.has(box.key) ? "open" : "closed"}.`);
  }

  #pickRow(row, target) {
    if (row.kind === "group" && (target === null || target.closest?.(".twist, b"))) this.#toggle(row.box);
    if (row.box.x !== undefined) this.canvas.centre(row.box);
    if (row.box.node) this.#pick(row.box);
  }

  #pick(box) {
    this.canvas.chosen = box;
    this.canvas.draw();
    links.pin(box?.node ? segment(box.node) : null, this);
    if (!box?.node) {
      fill(this.about);
      return;
    }
    const { node } = box;
    const at = this.list.rows.findIndex((row) => row.box === box);
    if (at >= 0) this.list.select(at);
    fill(
      this.about,
      h("h3", null, node.name),
      h(
        "dl",
        null,
        h("dt", null, "does"),
        h("dd", null, h("code", null, node.op + (node.callee ? ` ${node.callee}` : ""))),
        h("dt", null, "type"),
        h("dd", null, h("code", null, node.type)),
        h("dt", null, "reads"),
        h("dd", null, h("code", null, node.inputs.join(", ") || "constants only")),
        h("dt", null, "from"),
        h("dd", null, h("code", null, this.model.describe(node.origins ?? []) || "no node of the model")),
      ),
      button("Show in the IR", () => this.#showIr(node)),
    );
  }

  #showIr(node) {
    const at = Math.max(
      0,
      state.panes.findLastIndex(({ kind }) => kind !== "model"),
    );
    change(
      {
        tab: "ir",
        panes: state.panes.with(at, { kind: "ir", side: this.side, step: this.step.index }),
        active: at,
        fn: node.callee ?? "main",
        line: null,
      },
      { history: "push" },
    );
  }

  light({ origins }) {
    this.canvas.lit = (box) => origins.size > 0 && (box.node?.origins ?? []).some((origin) => origins.has(origin));
    this.canvas.draw();
    this.list.light(origins.size ? (row) => this.canvas.lit(row.box) : null, false);
  }
}

const segment = (node) => ({ origins: node.origins ?? [], callee: node.callee });
const title = (node) => (node.callee ? node.callee : node.op.replace(/^relax\./, ""));
const short = (type) => type.replace(/^R\.Tensor\(\((.*?),?\), dtype="(.*?)"\)$/, "$2[$1]");
const likeness = (node) => `${node.op}|${node.callee ?? ""}|${node.type}|${(node.origins ?? []).join()}`;
const widthOf = (box) =>
  Math.max(
    90,
    Math.min(
      230,
      (box.children
        ? box.label.length + 4
        : Math.max(title(box.node).length, Math.min(30, box.node.name.length + short(box.node.type).length + 2))) *
        6.7 +
        16,
    ),
  );
