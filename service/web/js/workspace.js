// The view of a Compilation: rail and recipe at the left, tabs with IR, graph, profile, accuracy, predictions, bisection.

import { announce, button, fill, h } from "./dom.js";
import { getJson } from "./api.js";
import { shortId } from "./format.js";
import * as links from "./links.js";
import { Panes } from "./panes.js";
import { problemCard } from "./problem.js";
import { Rail } from "./rail.js";
import { adopt } from "./recipe.js";
import { Progress, start, watch } from "./run.js";
import { change, state } from "./state.js";

const TABS = [
  ["ir", "IR"],
  ["graph", "Graph"],
  ["profile", "Profile"],
  ["accuracy", "Accuracy"],
  ["try", "Try it"],
  ["bisect", "Bisect"],
];

// What is behind a tab is read when it is first opened.
const VIEWS = {
  graph: async () => new (await import("./graph/view.js")).GraphView(),
  profile: async () => new (await import("./profile.js")).ProfileView(),
  accuracy: async () => new (await import("./accuracy.js")).AccuracyView(),
  try: async () => new (await styled("answers", import("./try_it.js"))).TryView(),
  bisect: async () => new (await styled("answers", import("./bisect.js"))).BisectView(),
};

/** A module, once the style sheet that its view needs is there, too. */
async function styled(name, module) {
  const href = `/web/css/${name}.css`;
  if (!document.querySelector(`link[href="${href}"]`))
    await new Promise((resolve) =>
      document.head.append(h("link", { rel: "stylesheet", href, onLoad: resolve, onError: resolve })),
    );
  return module;
}

export class Workspace {
  constructor(editor) {
    this.editor = editor;
    this.rail = new Rail();
    this.progress = new Progress();
    this.panes = new Panes();
    this.views = new Map([["ir", this.panes]]);
    this.tabs = h(
      "div",
      { class: "tabs", role: "tablist", "aria-label": "Views" },
      TABS.map(([name, label]) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            id: `tab-${name}`,
            "aria-controls": "view",
            onClick: () => change({ tab: name }, { history: "push" }),
          },
          label,
        ),
      ),
    );
    this.tabs.addEventListener("keydown", (event) => this.#tabKey(event));
    this.compare = h("select", {
      "aria-label": "Compare with another compilation of this model",
      class: "compare",
      onChange: () => this.#compareWith(this.compare.value),
      onFocus: () => this.#fillCompare(),
    });
    this.view = h("div", { class: "view", id: "view", role: "tabpanel" });
    this.error = h("div");
    this.recipe = h(
      "details",
      { class: "side-recipe" },
      h("summary", null, "Recipe"),
      (this.slot = h("div")),
      h(
        "div",
        { class: "go" },
        button("Compile again", () => this.compile(), { class: "primary" }),
        h("kbd", null, "Ctrl Enter"),
      ),
      this.error,
    );
    this.recipe.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.compile();
    });
    this.aside = h(
      "aside",
      { class: "side", "aria-label": "Steps and recipe" },
      this.progress.element,
      this.recipe,
      this.rail.element,
    );
    this.element = h(
      "main",
      { class: "workspace" },
      this.aside,
      h(
        "div",
        { class: "center" },
        h("div", { class: "tab-row" }, this.tabs, this.panes.tabs, this.compare),
        this.view,
      ),
    );
  }

  /** Takes the recipe editor, for a Compilation that has been opened. */
  enter() {
    adopt(state.a);
    this.slot.append(this.editor.element);
    this.editor.show();
    this.#fillCompare();
  }

  update(names) {
    if (!state.a) return;
    if (names.has("a") || names.has("panes") || names.has("active")) this.rail.show();
    if (names.has("a")) this.progress.show();
    if (names.has("a") && state.a.state === "failed" && this.opened !== state.a.id) {
      // What to change next is the recipe.
      this.opened = state.a.id;
      this.recipe.open = true;
    }
    if (names.has("a") || names.has("b")) this.#showCompare();
    if (names.has("tab") || names.has("a")) this.#showTab(names);
    else if (state.tab === "ir" && (names.has("panes") || names.has("b"))) this.panes.show();
    else if (state.tab === "ir" && names.has("active")) this.panes.mark();
    else if (state.tab !== "ir" && (names.has("b") || names.has("graph"))) this.views.get(state.tab)?.show?.();
    if (names.has("panes") && state.tab === "ir") this.panes.show();
  }

  async #showTab() {
    const { tab } = state;
    for (const each of this.tabs.children) {
      const chosen = each.id === `tab-${tab}`;
      each.setAttribute("aria-selected", String(chosen));
      each.tabIndex = chosen ? 0 : -1;
    }
    this.panes.tabs.hidden = tab !== "ir";
    this.view.setAttribute("aria-labelledby", `tab-${tab}`);
    try {
      if (!this.views.has(tab)) {
        fill(this.view, h("p", { class: "empty loading" }, "Opening …"));
        this.views.set(tab, await VIEWS[tab]());
      }
    } catch (error) {
      fill(this.view, problemCard(error));
      return;
    }
    if (state.tab !== tab) return;
    const view = this.views.get(tab);
    if (view.element.parentNode !== this.view) fill(this.view, view.element);
    view.show();
  }

  #tabKey(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const at = TABS.findIndex(([name]) => name === state.tab);
    const [next] = TABS[(at + by + TABS.length) % TABS.length];
    change({ tab: next }, { history: "push" });
    document.getElementById(`tab-${next}`).focus();
  }

  /** Compiles the same model with the recipe as it is edited now; what was shown becomes B. */
  async compile() {
    fill(this.error);
    const before = state.a;
    try {
      const begun = await start({ base: before });
      if (begun.id === before.id) {
        announce("Nothing is changed: this is the same compilation.");
        return;
      }
      const kept = state.panes.filter((pane) => pane.kind === "model" || (pane.kind === "ir" && pane.side === "a"));
      change(
        {
          a: begun,
          b: before.state === "succeeded" || before.steps.length ? before : null,
          panes: kept,
          active: Math.min(state.active, kept.length - 1),
          line: null,
          graph: null,
        },
        { history: "push" },
      );
      links.pin(null, null);
      watch(begun);
    } catch (error) {
      fill(this.error, problemCard(error));
    }
  }

  async #fillCompare() {
    try {
      const { compilations } = await getJson("/compile?limit=50");
      this.others = compilations.filter(
        (each) => each.model.sha256 === state.a?.model.sha256 && each.id !== state.a.id && each.steps.length,
      );
      this.#showCompare();
    } catch {
      /* the select stays as it is */
    }
  }

  #showCompare() {
    const others = [...(this.others ?? [])].filter(({ id }) => id !== state.a?.id);
    if (state.b && !others.some(({ id }) => id === state.b.id)) others.unshift(state.b);
    const name = (each) =>
      `B: ${each.recipe.name ?? `${each.recipe.passes.length} passes`} ${each.state === "succeeded" ? "" : `(${each.state}) `}${shortId(each.id)}`;
    fill(
      this.compare,
      h("option", { value: "" }, others.length ? "compare with …" : "nothing to compare with yet"),
      others.map((each) => h("option", { value: each.id, selected: each.id === state.b?.id }, name(each))),
    );
    this.compare.value = state.b?.id ?? "";
  }

  async #compareWith(id) {
    const panes = state.panes.filter((pane) => pane.kind !== "diff" && pane.side !== "b");
    if (!id) {
      change({ b: null, panes }, { history: "push" });
      return;
    }
    const b = this.others.find((each) => each.id === id) ?? state.b;
    const last = {
      left: { side: "b", step: b.steps.at(-1).index },
      right: { side: "a", step: state.a.steps.at(-1)?.index ?? 0 },
    };
    change(
      {
        b,
        panes:
          state.tab === "ir" ? [...panes.filter(({ kind }) => kind === "model"), { kind: "diff", ...last }] : panes,
        active: 1,
      },
      { history: "push" },
    );
    announce("Shown beside each other: B, the other compilation, and A.");
  }
}
