// The rail: one row a step with its figures, in the order of the recipe, then what the build made.

import { announce, button, fill, h } from "./dom.js";
import { icon } from "./icons.js";
import { bytes, milliseconds, scientific, signed, stepName } from "./format.js";
import { innerPasses, knownPasses } from "./ir/inner.js";
import { problemCard } from "./problem.js";
import { change, shown, state } from "./state.js";

let hideUnchanged = false;

/** How bad an error is: its level, sign and words. Not by colour alone. */
export function verdict(step) {
  const outputs = step.details?.numbers?.outputs ?? [];
  if (step.error === null && outputs.length === 0) return null;
  if (outputs.some((output) => output.passed === false)) return { level: "bad", sign: "✕", words: "beyond tolerance" };
  const error = Number(step.error ?? 0);
  if (error === 0) return { level: "exact", sign: "=", words: "equal to PyTorch" };
  return { level: error > 1e-3 ? "warn" : "good", sign: error > 1e-3 ? "!" : "≈", words: "within tolerance" };
}

export class Rail {
  constructor() {
    this.inside = new Map(); // the steps that are open, by id and index, and an error where they have one
    this.list = h("ol", { class: "steps", "aria-label": "Steps" });
    this.list.addEventListener("keydown", (event) => this.#key(event));
    const toggle = h("input", {
      type: "checkbox",
      id: "hide-unchanged",
      onChange: (event) => {
        hideUnchanged = event.target.checked;
        this.show();
      },
    });
    this.summary = h("div", { class: "rail-summary muted" });
    this.element = h(
      "div",
      { class: "rail" },
      h("div", { class: "rail-tools" }, toggle, h("label", { for: "hide-unchanged" }, "hide what changed nothing")),
      this.list,
      this.summary,
    );
  }

  show() {
    if (!state.a) return;
    const focused = this.list.contains(document.activeElement)
      ? Number(document.activeElement.closest("li")?.dataset.index)
      : null;
    const all = shown(state.a);
    const longest = Math.max(1, ...all.map((step) => step.wall_ms ?? 0));
    const visible = all.filter((step) => !hideUnchanged || step.changed || step.index === 0);
    fill(
      this.list,
      visible.map((step) => this.#item(step, longest)),
      this.#pending(),
    );
    if (focused !== null) this.list.querySelector(`li[data-index="${focused}"] button`)?.focus();
    const hidden = all.length - visible.length;
    const { reused_steps: reused } = state.a;
    fill(
      this.summary,
      [hidden ? `${hidden} steps hidden` : null, reused ? `${reused} steps taken over, not run again` : null]
        .filter(Boolean)
        .join(" · "),
    );
  }

  #pending() {
    if (state.a.state !== "running" && state.a.state !== "queued") return null;
    const passes = state.a.recipe.passes.slice(Math.max(0, state.a.steps.length - 1));
    return passes.map(({ name }) => h("li", { class: "step pending" }, h("span", { class: "step-name" }, name)));
  }

  #item(step, longest) {
    const active = this.#isShown(step);
    const found = verdict(step);
    const main = h(
      "button",
      {
        type: "button",
        class: "step-open",
        "aria-current": active ? "true" : null,
        onClick: (event) => (event.shiftKey ? this.#compare(step) : this.open(step)),
        "aria-label": describe(step, found),
      },
      h(
        "span",
        { class: "step-top" },
        h("span", { class: "index" }, step.index),
        h("span", { class: "step-name", title: stepName(step) }, stepName(step)),
        found
          ? h(
              "span",
              { class: `mark mark-${found.level}`, title: `largest error ${scientific(step.error)}, ${found.words}` },
              found.sign,
            )
          : null,
        h("span", { class: "ms" }, step.wall_ms === null ? "on demand" : milliseconds(step.wall_ms)),
      ),
      bar(step, longest),
      h("span", { class: "step-more" }, figures(step)),
    );
    const previous = this.#previous(step);
    const diff = previous
      ? button(icon("diff"), () => this.#compare(step, previous), {
          class: "step-diff",
          name: `Difference from ${stepName(previous)} to ${stepName(step)}`,
        })
      : null;
    const isOpen = this.inside.has(`${state.a.id}/${step.index}`);
    // The assembly is read off the library: no pass makes it.
    const inside =
      step.stage === "asm"
        ? null
        : button(icon("inside"), () => this.#toggleInside(step), {
            class: "step-inside",
            name: `Passes of TVM inside of ${stepName(step)}`,
            "aria-expanded": String(isOpen),
          });
    return h(
      "li",
      {
        class: `step ${step.changed ? "" : "same"} ${active ? "active" : ""} result-${step.stage}`,
        dataset: { index: step.index },
      },
      main,
      h("span", { class: "step-tools" }, diff, inside),
      isOpen ? this.#inner(step) : null,
    );
  }

  async #toggleInside(step) {
    const key = `${state.a.id}/${step.index}`;
    if (this.inside.delete(key)) {
      this.show();
      return;
    }
    this.inside.set(key, null);
    this.show();
    try {
      const passes = await innerPasses(state.a.id, step);
      announce(`${passes.length} passes of TVM run inside of ${stepName(step)}.`);
    } catch (error) {
      this.inside.set(key, error);
    }
    this.show();
  }

  /** The passes inside of a step: a click shows the IR after one, `±` what it changed. */
  #inner(step) {
    const error = this.inside.get(`${state.a.id}/${step.index}`);
    if (error) return problemCard(error);
    const passes = knownPasses(state.a.id, step.index);
    if (!passes) return h("p", { class: "muted loading inner-note", role: "status" }, "Running the step again …");
    if (passes.length === 0) return h("p", { class: "muted inner-note" }, "No pass of TVM runs inside of it.");
    const before = step.index > 0 ? { side: "a", step: Math.min(step.index - 1, state.a.steps.at(-1).index) } : null;
    return h(
      "ol",
      { class: "inner", "aria-label": `Passes inside of ${stepName(step)}` },
      passes.map((pass, at) => {
        const earlier = passes.findLastIndex((other, index) => index < at && other.text !== null);
        const left = earlier >= 0 ? { side: "a", step: step.index, inner: earlier } : before;
        const place = { side: "a", step: step.index, inner: at };
        const shownNow = state.panes.some(
          (pane) => pane.kind === "ir" && pane.step === step.index && pane.inner === at,
        );
        const open = h(
          "button",
          {
            type: "button",
            class: "inner-open",
            disabled: pass.text === null,
            "aria-current": shownNow ? "true" : null,
            onClick: () => this.#openPlace(place),
          },
          h("span", { class: "step-name" }, pass.name),
          pass.changed ? null : h("span", { class: "tag" }, "no change"),
          h("span", { class: "ms" }, milliseconds(pass.wall_ms)),
        );
        open.style.paddingLeft = `${4 + 10 * pass.level}px`;
        const diff =
          pass.changed && pass.text !== null && left
            ? button(icon("diff"), () => openDifference({ kind: "diff", left, right: place }), {
                class: "step-diff",
                name: `Difference that ${pass.name} made`,
              })
            : null;
        return h("li", { class: pass.changed ? "" : "same" }, open, diff);
      }),
    );
  }

  #isShown(step) {
    return state.panes.some(
      (pane) =>
        (pane.kind === "ir" && pane.side === "a" && pane.step === step.index) ||
        (pane.kind === "diff" && [pane.left, pane.right].some((end) => end.side === "a" && end.step === step.index)),
    );
  }

  #previous(step) {
    if (step.index === 0 || ["vm", "llvm", "asm"].includes(step.stage)) return null;
    return shown(state.a).findLast(
      (other) => other.index < step.index && (other.changed || other.index === 0) && other.stage !== "vm",
    );
  }

  /** Shows a step in the active pane, or in the first that can. */
  open(step) {
    if (state.tab === "graph") {
      change({ graph: { side: "a", step: step.index } });
      return;
    }
    this.#openPlace({ side: "a", step: step.index });
  }

  #openPlace(place) {
    const at =
      state.panes[state.active]?.kind === "ir"
        ? state.active
        : state.panes.findLastIndex((pane) => pane.kind !== "model");
    const pane = { kind: "ir", ...place };
    const panes = at < 0 ? [...state.panes, pane] : state.panes.with(at, pane);
    change({ panes, active: at < 0 ? panes.length - 1 : at, tab: "ir", line: null }, { history: "push" });
  }

  /** Compares a step with another, or with the one in the active pane. */
  #compare(step, before = null) {
    const active = state.panes[state.active];
    const other =
      before?.index ?? (active?.kind === "ir" && active.side === "a" ? active.step : null) ?? step.index - 1;
    const [left, right] = [Math.min(other, step.index), Math.max(other, step.index)].map((index) => ({
      side: "a",
      step: index,
    }));
    openDifference({ kind: "diff", left, right });
  }

  #key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const item = event.target.closest("li");
    if (by && item) {
      event.preventDefault();
      (by > 0 ? item.nextElementSibling : item.previousElementSibling)?.querySelector("button")?.focus();
    } else if (event.key === "d" && item) {
      const step = shown(state.a).find(({ index }) => index === Number(item.dataset.index));
      const previous = step && this.#previous(step);
      if (previous) this.#compare(step, previous);
    }
  }
}

/** Shows a difference in the active pane; where there is little room, in place of all others but the model. */
export function openDifference(pane) {
  const { panes, active } = state;
  const cramped = window.innerWidth < 1700;
  const at =
    panes[active] && panes[active].kind !== "model" ? active : panes.findLastIndex(({ kind }) => kind !== "model");
  const next = cramped
    ? [...panes.filter(({ kind }) => kind === "model"), pane]
    : at < 0
      ? [...panes, pane]
      : panes.with(at, pane);
  change({ panes: next, active: next.indexOf(pane), tab: "ir", line: null }, { history: "push" });
}

function bar(step, longest) {
  const line = h("span", { class: "step-bar", "aria-hidden": "true" }, h("span"));
  line.firstChild.style.width = `${Math.max(0.5, ((step.wall_ms ?? 0) / longest) * 100)}%`;
  return line;
}

function figures(step) {
  if (!step.changed) return [h("span", { class: "tag" }, "no change")];
  const { figures: numbers } = step;
  const changes = Object.entries(numbers?.op_changes ?? {})
    .filter(([, by]) => by !== 0)
    .sort((one, other) => Math.abs(other[1]) - Math.abs(one[1]));
  const before = state.a.steps.findLast(({ index }) => index < step.index);
  const parts = changes
    .slice(0, 2)
    .map(([name, by]) =>
      h("span", { class: by > 0 ? "plus" : "minus" }, `${signed(by)} ${name.replace(/^relax\./, "")}`),
    );
  if (changes.length > 2) parts.push(h("span", { class: "muted" }, `and ${changes.length - 2} more`));
  if (changes.length === 0 && numbers?.functions_changed)
    parts.push(h("span", { class: "muted" }, `${numbers.functions_changed} functions changed`));
  if (step.error !== null && step.error !== before?.error)
    parts.push(h("span", { class: "muted" }, `error ${scientific(step.error)}`));
  if (numbers?.peak_rss_bytes) parts.push(h("span", { class: "muted memory" }, bytes(numbers.peak_rss_bytes)));
  if (numbers?.peak_rss_bytes === 0) parts.push(h("span", { class: "muted" }, `${step.functions} functions`));
  return parts;
}

function describe(step, found) {
  const words = [
    `Step ${step.index}, ${stepName(step)}`,
    step.wall_ms === null ? "made on demand" : milliseconds(step.wall_ms),
    step.changed ? null : "changed nothing",
  ];
  if (found) words.push(`error ${scientific(step.error)}, ${found.words}`);
  const changes = Object.entries(step.figures?.op_changes ?? {}).filter(([, by]) => by !== 0);
  if (changes.length) words.push(`${changes.length} operator counts changed`);
  if (step.figures?.peak_rss_bytes) words.push(`memory ${bytes(step.figures.peak_rss_bytes)}`);
  return words.filter(Boolean).join(", ");
}
