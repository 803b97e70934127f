// The recipe editor: presets, passes from the Catalogue with search, order, options, and what is advanced.

import { announce, button, field, fill, h, uniqueId } from "./dom.js";
import { getOnce } from "./api.js";
import { optionsForm } from "./forms.js";
import { icon } from "./icons.js";

const STAGES = ["import", "simplify", "fusion", "lowering", "fuse_tir", "schedule"];

/** What the page compiles next; the same in every editor. */
export const draft = {
  passes: null, // [{name, options}], or null before the presets are read
  preset: null, // the name of the preset that they are
  verify: "every_step",
  until: "",
  cpu: "native",
  threads: 1,
  specialValues: "fail",
};

/** The `request` of POST /compile for the draft. */
export function request() {
  return {
    passes: draft.preset ?? draft.passes ?? undefined,
    verify: draft.verify,
    special_values: draft.specialValues,
    target: { cpu: draft.cpu, threads: draft.threads },
    keep: true,
    ...(draft.until ? { until: draft.until } : {}),
  };
}

/** Takes over the recipe of a Compilation. */
export function adopt(compilation) {
  draft.passes = compilation.recipe.passes.map(({ name, options }) => ({ name, options: { ...options } }));
  draft.verify = compilation.verify;
  draft.until = compilation.recipe.until ?? "";
  draft.cpu = compilation.recipe.target.cpu;
  draft.threads = compilation.recipe.target.threads;
  draft.specialValues = compilation.special_values;
}

export class RecipeEditor {
  constructor() {
    this.list = h("ol", { class: "passes", "aria-label": "Passes, in their order" });
    this.preset = h("select", { "aria-label": "Preset", onChange: () => this.#usePreset() });
    this.doc = h("p", { class: "muted preset-doc" });
    this.open = new Set();
    this.advanced = h("details", { class: "advanced" });
    this.element = h("div", { class: "recipe" }, h("p", { class: "loading muted" }, "Reading the Catalogue …"));
    this.ready = this.#read();
  }

  async #read() {
    const [{ passes }, { recipes }] = await Promise.all([getOnce("/passes"), getOnce("/recipes")]);
    this.catalogue = new Map(passes.map((info) => [info.name, info]));
    this.presets = recipes;
    if (draft.passes === null) draft.passes = copyOf(recipes.find((recipe) => recipe.default) ?? recipes[0]);
    fill(
      this.element,
      h("div", { class: "recipe-head" }, field("Preset", this.preset), this.doc),
      this.list,
      this.#search(),
      this.advanced,
    );
    this.show();
  }

  /** Draws the draft anew. */
  show() {
    if (!this.catalogue) return;
    const known = this.presets.find((recipe) => sameAs(recipe, draft.passes));
    draft.preset = known?.name ?? null;
    fill(
      this.preset,
      known ? null : h("option", { value: "", selected: true }, "(your own)"),
      this.presets.map((recipe) =>
        h(
          "option",
          { value: recipe.name, selected: recipe === known },
          recipe.default ? `${recipe.name} (default)` : recipe.name,
        ),
      ),
    );
    this.doc.textContent = known?.doc ?? "Passes of your own choice.";
    fill(
      this.list,
      draft.passes.map((spec, at) => this.#item(spec, at)),
    );
    if (draft.passes.length === 0)
      fill(this.list, h("li", { class: "empty" }, "No pass: the model is imported and built as it is."));
    this.#showAdvanced();
  }

  #usePreset() {
    const chosen = this.presets.find((recipe) => recipe.name === this.preset.value);
    if (!chosen) return;
    draft.passes = copyOf(chosen);
    this.open.clear();
    this.show();
    announce(`Preset ${chosen.name}: ${draft.passes.length} passes.`);
  }

  #item(spec, at) {
    const info = this.catalogue.get(spec.name);
    const fields = Object.keys(info?.options.properties ?? {});
    const chosen = Object.entries(spec.options).filter(
      ([name, value]) => JSON.stringify(value) !== JSON.stringify(info?.options.properties?.[name]?.default),
    );
    const isOpen = this.open.has(spec);
    const row = h(
      "div",
      { class: "pass-row" },
      h("span", { class: "handle", "aria-hidden": "true", title: "Drag to move" }, "⠿"),
      h("span", { class: "pass-name", title: info?.summary }, spec.name),
      h("span", { class: `stage stage-${info?.stage}` }, info?.stage),
      h(
        "span",
        { class: "pass-tools" },
        fields.length
          ? button(icon("gear"), () => this.#toggle(spec), {
              name: `Options of ${spec.name}`,
              "aria-expanded": String(isOpen),
            })
          : null,
        button(icon("up"), () => this.move(at, at - 1), {
          name: `Move ${spec.name} up`,
          disabled: at === 0,
          dataset: { move: "up" },
        }),
        button(icon("down"), () => this.move(at, at + 1), {
          name: `Move ${spec.name} down`,
          disabled: at === draft.passes.length - 1,
          dataset: { move: "down" },
        }),
        button(icon("close"), () => this.remove(at), { name: `Remove ${spec.name}` }),
      ),
    );
    const summary =
      chosen.length && !isOpen
        ? h("div", { class: "chosen" }, chosen.map(([name, value]) => `${name} = ${JSON.stringify(value)}`).join(", "))
        : null;
    const form = isOpen
      ? h(
          "div",
          { class: "pass-form" },
          h("p", { class: "muted" }, info.summary),
          optionsForm(info.options, spec.options, (options) => {
            spec.options = options;
            this.#showPreset();
          }),
        )
      : null;
    const item = h("li", { tabindex: -1, onKeydown: (event) => this.#key(event, at) }, row, summary, form);
    row.querySelector(".handle").addEventListener("pointerdown", (event) => this.#drag(event, item, at));
    return item;
  }

  #showPreset() {
    draft.preset = this.presets.find((recipe) => sameAs(recipe, draft.passes))?.name ?? null;
    if (draft.preset) return;
    if (this.preset.value !== "") this.preset.prepend(h("option", { value: "", selected: true }, "(your own)"));
  }

  #toggle(spec) {
    if (!this.open.delete(spec)) this.open.add(spec);
    const at = draft.passes.indexOf(spec);
    this.show();
    this.list.children[at]?.querySelector(".pass-tools button")?.focus();
  }

  #key(event, at) {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.altKey && by) {
      event.preventDefault();
      this.move(at, at + by);
    } else if (event.key === "Delete") {
      event.preventDefault();
      this.remove(at);
    }
  }

  move(from, to) {
    if (to < 0 || to >= draft.passes.length || from === to) return;
    const name = draft.passes[from].name;
    draft.passes.splice(to, 0, ...draft.passes.splice(from, 1));
    this.show();
    const tools = this.list.children[to]?.querySelectorAll(".pass-tools button:not(:disabled)") ?? [];
    ([...tools].find((tool) => tool.dataset.move === (to < from ? "up" : "down")) ?? tools[0])?.focus();
    announce(`${name} is now pass ${to + 1} of ${draft.passes.length}.`);
  }

  remove(at) {
    const [gone] = draft.passes.splice(at, 1);
    this.show();
    this.list.children[Math.min(at, draft.passes.length - 1)]?.querySelector("button")?.focus();
    announce(`${gone.name} is removed.`);
  }

  add(name) {
    draft.passes.push({ name, options: {} });
    const spec = draft.passes.at(-1);
    if ((this.catalogue.get(name).options.required ?? []).length || name === "fuse_pattern") this.open.add(spec);
    this.show();
    this.list.lastElementChild?.scrollIntoView({ block: "nearest" });
    announce(`${name} is added as pass ${draft.passes.length}.`);
  }

  #drag(event, item, from) {
    event.preventDefault();
    const items = [...this.list.children];
    const boxes = items.map((each) => each.getBoundingClientRect());
    let to = from;
    item.classList.add("dragged");
    item.setPointerCapture(event.pointerId);
    const move = ({ clientY }) => {
      item.style.transform = `translateY(${clientY - event.clientY}px)`;
      to = boxes.filter((box, at) => at !== from && box.top + box.height / 2 < clientY).length;
      items.forEach((each, at) => each.classList.toggle("drop-here", at !== from && at === (to >= from ? to : to)));
    };
    const drop = () => {
      item.removeEventListener("pointermove", move);
      if (to === from) this.show();
      else this.move(from, to);
    };
    item.addEventListener("pointermove", move);
    item.addEventListener("pointerup", drop, { once: true });
    item.addEventListener("pointercancel", () => this.show(), { once: true });
  }

  #search() {
    const id = uniqueId("found");
    const list = h("ul", { role: "listbox", id, class: "found", "aria-label": "Passes that match", hidden: true });
    const input = h("input", {
      type: "search",
      role: "combobox",
      "aria-expanded": "false",
      "aria-controls": id,
      "aria-autocomplete": "list",
      "aria-label": "Add a pass",
      placeholder: "add a pass: name, stage or what it does",
      spellcheck: "false",
      autocomplete: "off",
    });
    let found = [];
    let at = 0;
    const shut = () => {
      list.hidden = true;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
    };
    const take = (info) => {
      input.value = "";
      shut();
      this.add(info.name);
      input.focus();
      shut();
    };
    const show = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      found = [...this.catalogue.values()].filter((info) =>
        words.every((word) => `${info.name} ${info.stage} ${info.summary}`.toLowerCase().includes(word)),
      );
      at = Math.max(0, Math.min(at, found.length - 1));
      fill(
        list,
        found.map((info, index) =>
          h(
            "li",
            {
              role: "option",
              id: `${id}-${index}`,
              "aria-selected": String(index === at),
              onPointerdown: (event) => {
                event.preventDefault();
                take(info);
              },
            },
            h("span", { class: "pass-name" }, info.name),
            h("span", { class: `stage stage-${info.stage}` }, info.stage),
            h("span", { class: "summary" }, info.summary),
          ),
        ),
        found.length
          ? null
          : h(
              "li",
              { class: "empty", role: "option", "aria-selected": "false", "aria-disabled": "true" },
              "No pass is called or does that.",
            ),
      );
      list.hidden = false;
      input.setAttribute("aria-expanded", "true");
      if (found.length) input.setAttribute("aria-activedescendant", `${id}-${at}`);
      list.children[at]?.scrollIntoView({ block: "nearest" });
    };
    input.addEventListener("input", () => {
      at = 0;
      show();
    });
    input.addEventListener("focus", show);
    input.addEventListener("blur", shut);
    input.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (by) {
        event.preventDefault();
        at += list.hidden ? 0 : by;
        show();
      } else if (event.key === "Enter" && !list.hidden && found[at]) {
        event.preventDefault();
        take(found[at]);
      } else if (event.key === "Escape") shut();
    });
    return h("div", { class: "search-passes" }, input, list);
  }

  #showAdvanced() {
    const choice = (values, value, onChoose) =>
      h(
        "select",
        { onChange: (event) => onChoose(event.target.value) },
        values.map(([key, label]) => h("option", { value: key, selected: key === value }, label)),
      );
    const verify = choice(
      [
        ["every_step", "every step, and the library"],
        ["artifact", "the library only"],
      ],
      draft.verify,
      (value) => {
        draft.verify = value;
      },
    );
    const special = choice(
      [
        ["fail", "fails the compilation"],
        ["report", "is reported"],
      ],
      draft.specialValues,
      (value) => {
        draft.specialValues = value;
      },
    );
    const until = choice(
      [["", "the end, and build"], ...STAGES.map((stage) => [stage, stage])],
      draft.until,
      (value) => {
        draft.until = value;
      },
    );
    const cpu = h("input", {
      type: "text",
      value: draft.cpu,
      spellcheck: "false",
      pattern: "[a-z0-9][a-z0-9._\\-]*",
      onChange: (event) => {
        if (event.target.reportValidity()) draft.cpu = event.target.value || "native";
      },
    });
    const threads = h("input", {
      type: "number",
      min: 0,
      max: 1024,
      value: draft.threads,
      onChange: (event) => {
        draft.threads = Number(event.target.value);
      },
    });
    fill(
      this.advanced,
      h("summary", null, "Advanced"),
      h(
        "div",
        { class: "options" },
        field("Verify against PyTorch", verify),
        field("A difference on NaN and infinities", special),
        field("Compile until", until, "Stops after the last pass of a stage; nothing is built."),
        field("CPU", cpu, "native, or a name of LLVM's such as x86-64-v3"),
        field("Threads", threads, "0 for all cores"),
      ),
    );
  }
}

const copyOf = (recipe) => recipe.passes.map(({ name, options }) => ({ name, options: { ...options } }));

function sameAs(recipe, passes) {
  const flat = (list) => JSON.stringify(list.map(({ name, options }) => [name, Object.entries(options).sort()]));
  return flat(recipe.passes) === flat(passes);
}
