// The model as its author knows it: source lines or modules, and under each the nodes that came from it.

import { button, fill, h, uniqueId } from "./dom.js";
import { icon } from "./icons.js";
import * as links from "./links.js";
import { problemCard } from "./problem.js";
import { change, state } from "./state.js";
import { closePane } from "./ir/listing_pane.js";
import { VirtualRows } from "./virtual_rows.js";

export class ModelPane {
  constructor(index) {
    this.index = index;
    this.by = "source";
    this.open = new Set();
    this.rows = new VirtualRows({
      label: "Source lines and nodes of the model",
      render: (row, at) => this.#row(row, at),
      onPick: (row) => this.#pick(row),
      onHover: (row) => links.hover(row && { origins: row.origins }, this),
      onKey: (event, row) => event.key === " " && row.kind === "group" && (this.#toggle(row), true),
    });
    this.header = h("div", { class: "pane-head" });
    this.body = h("div", { class: "pane-body" });
    this.element = h("section", { class: "pane pane-model", "aria-label": "Model" }, this.header, this.body);
    this.leave = links.join(this);
    this.id = uniqueId("model");
  }

  async show() {
    this.#head();
    const key = state.a?.steps.length ? state.a.id : null;
    if (key === this.key && key !== null) return;
    this.key = key;
    if (key === null) {
      const waits = ["running", "queued"].includes(state.a?.state);
      fill(
        this.body,
        waits
          ? h("p", { class: "empty loading" }, "Importing the model …")
          : h("p", { class: "empty" }, "The model was not imported, so its nodes are not known."),
      );
      return;
    }
    try {
      this.model = await links.modelOf(state.a);
      fill(this.body, this.rows.element);
      this.#fill();
      links.again(this);
    } catch (error) {
      fill(this.body, problemCard(error));
      this.key = null;
    }
  }

  #head() {
    const choose = (event) => {
      this.by = event.target.value;
      this.open.clear();
      this.#fill();
    };
    fill(
      this.header,
      h("b", null, "Model"),
      h(
        "select",
        { "aria-label": "Arrange the model by", onChange: choose },
        [
          ["source", "by source line"],
          ["module", "by module"],
          ["node", "by node"],
        ].map(([value, label]) => h("option", { value, selected: value === this.by }, label)),
      ),
      h(
        "span",
        { class: "pane-tools" },
        button(icon("close"), () => closePane(this.index), { name: "Close this pane" }),
      ),
    );
  }

  #groups() {
    const { model } = this;
    if (this.by === "source")
      return model.sources.map((source) => ({ ...source, label: source.text, number: source.line || "" }));
    const modules = new Map();
    model.origins.forEach((origin, index) => {
      const name = origin.module ?? "(the model itself)";
      if (!modules.has(name)) modules.set(name, { key: name, label: name, number: "", file: null, origins: [] });
      modules.get(name).origins.push(index);
    });
    return [...modules.values()];
  }

  #fill() {
    const rows = [];
    const node = (index) => rows.push({ kind: "node", origins: [index] });
    if (this.by === "node") {
      this.model.origins.forEach((_, index) => node(index));
    } else {
      let file = null;
      const small = this.model.origins.length <= 24;
      for (const group of this.#groups()) {
        if (group.file && group.file !== file) rows.push({ kind: "file", label: group.file, origins: [] });
        file = group.file;
        const open = small !== this.open.has(group.key);
        rows.push({ kind: "group", ...group, isOpen: open });
        if (open) group.origins.forEach(node);
      }
    }
    this.rows.show(rows);
  }

  #row(row) {
    if (row.kind === "file")
      return [h("span", { class: "stripe" }), h("span", { class: "number" }), h("span", { class: "file" }, row.label)];
    const stripe = h("span", { class: "stripe" });
    const colours = this.model.coloursOf(row.origins);
    if (colours.length) stripe.style.background = `var(--s${colours[0]})`;
    if (row.kind === "group") {
      const toggle = h("span", { class: "fold", "aria-hidden": "true" }, row.isOpen ? "▾" : "▸");
      return [
        stripe,
        h("span", { class: "number" }, row.number, toggle),
        h("span", { class: "many", title: `${row.origins.length} nodes` }, `${row.origins.length}`),
        h("code", { title: row.label }, row.label),
      ];
    }
    const origin = this.model.origins[row.origins[0]];
    return [
      stripe,
      h("span", { class: "number" }),
      h(
        "span",
        { class: "node" },
        h("b", null, origin.node),
        " ",
        h("span", { class: "t-operator" }, origin.operator.replace(/^aten\.|\.default$/g, "")),
        origin.module ? h("span", { class: "muted" }, `  ${origin.module}`) : null,
      ),
    ];
  }

  #pick(row, target) {
    if (row.kind === "file") return;
    if (row.kind === "group" && target?.closest?.(".number")) return this.#toggle(row);
    change({ active: this.index });
    links.pin({ origins: row.origins }, this);
  }

  #toggle(row) {
    if (!this.open.delete(row.key)) this.open.add(row.key);
    this.#fill();
  }

  light({ origins }, go) {
    const lit = (row) => row.origins.some((origin) => origins.has(origin));
    this.rows.light(origins.size ? lit : null, go);
  }

  focus() {
    this.rows.element.focus();
  }

  close() {
    this.leave();
  }
}
