// A Compilation while it runs: started, followed step by step, cancelled, ended.

import { announce, button, fill, h } from "./dom.js";
import { compilation, compile, remove } from "./api.js";
import { follow } from "./events.js";
import { milliseconds, stepName } from "./format.js";
import { forget } from "./ir/listing.js";
import { problemCard } from "./problem.js";
import { request } from "./recipe.js";
import { change, state } from "./state.js";

const PHASES = [
  ["import", "Import"],
  ["pass", "Passes"],
  ["build", "Build"],
  ["verify", "Verify"],
];
const RESULTS = 3; // of a build: bytecode, lowered TIR, LLVM
const ASK_EVERY_MS = 500;

let stop = () => {};

/** Starts a Compilation of a file, or of the model of an earlier Compilation with the draft recipe. Answers it. */
export async function start({ file = null, base = null }) {
  const wanted = request();
  if (base) wanted.from = { id: base.id, step: 0 };
  const begun = await compile(file, wanted);
  announce(begun.state === "succeeded" ? "This was compiled before; here it is." : "The compilation has begun.");
  return begun;
}

/** Follows a Compilation to its end; the state's `a` is replaced with each step. */
export function watch(begun, onEnded = () => {}) {
  stop();
  if (["succeeded", "failed", "cancelled"].includes(begun.state)) return;
  forget(begun.id);
  const isShown = () => state.a?.id === begun.id;
  const stopEvents = follow(begun.id, {
    onStep: (step) => {
      if (!isShown() || state.a.steps.some(({ index }) => index === step.index)) return;
      const panes = state.panes.some(({ follows }) => follows)
        ? state.panes.map((pane) => (pane.follows ? { ...pane, step: step.index } : pane))
        : state.panes;
      change({ a: { ...state.a, state: "running", steps: [...state.a.steps, step] }, panes });
    },
    onEnded: (ended) => {
      clearInterval(asking);
      if (isShown()) change({ a: ended });
      announce(
        ended.state === "succeeded"
          ? `Compiled in ${milliseconds(total(ended))}.`
          : `The compilation ${ended.state === "failed" ? "failed" : "was cancelled"}.`,
      );
      onEnded(ended);
    },
    onLost: () => announce("The connection to the server is lost."),
  });
  // Events tell of steps; how the build goes on is asked for.
  const asking = setInterval(async () => {
    try {
      const now = await compilation(begun.id);
      if (isShown() && state.a.state !== "succeeded" && now.state === "running")
        change({ a: { ...now, steps: now.steps.length >= state.a.steps.length ? now.steps : state.a.steps } });
    } catch {
      /* the events tell of it */
    }
  }, ASK_EVERY_MS);
  stop = () => {
    stopEvents();
    clearInterval(asking);
  };
}

const total = (ended) => ended.timings.reduce((sum, { wall_ms: ms }) => sum + ms, 0);

/** How far it is, and its problem when it failed. */
export class Progress {
  constructor() {
    this.element = h("div", { class: "progress" });
  }

  show() {
    const { a } = state;
    if (!a) return;
    const ended = !["running", "queued"].includes(a.state);
    const key = `${a.id}/${a.state}/${a.steps.length}/${a.results.length}/${a.timings.length}`;
    if (key === this.key) return;
    this.key = key;
    fill(
      this.element,
      h(
        "ol",
        { class: `phases ${a.state}`, "aria-label": "Phases" },
        PHASES.map(([name, label]) => this.#phase(name, label)),
      ),
      ended
        ? null
        : button("Cancel", () => remove(a.id).catch((error) => announce(error.message)), { class: "cancel" }),
      a.problem ? problemCard(a.problem, { id: a.id }) : null,
      a.problem
        ? button("Find the pass at fault", () => change({ tab: "bisect" }, { history: "push" }), { class: "find" })
        : null,
      a.state === "cancelled"
        ? h(
            "p",
            { class: "notice" },
            "It was cancelled. What was done before can be read; compile again to run all of it.",
          )
        : null,
      a.state === "failed" && a.steps.length
        ? h(
            "p",
            { class: "notice" },
            `The last step that was kept: ${a.steps.at(-1).index} ${stepName(a.steps.at(-1))}.`,
          )
        : null,
    );
  }

  #phase(name, label) {
    const status = phaseStatus(name);
    const { a } = state;
    const spent = a.timings.filter(({ phase }) => phase === name).reduce((sum, { wall_ms: ms }) => sum + ms, 0);
    const passes = a.recipe.passes.length;
    const note = name === "pass" && passes ? `${Math.min(passes, Math.max(0, a.steps.length - 1))}/${passes}` : null;
    const bar = h("span", { class: "phase-bar", "aria-hidden": "true" }, h("span"));
    bar.firstChild.style.width = `${100 * share(name, status)}%`;
    const signs = { done: "✓", running: "◔", waiting: "○", failed: "✕", skipped: "–" };
    return h(
      "li",
      { class: `phase ${status}` },
      bar,
      h("span", { "aria-hidden": "true" }, signs[status]),
      h("span", null, label),
      note ? h("span", { class: "muted" }, note) : null,
      spent ? h("span", { class: "ms" }, milliseconds(spent)) : null,
      h("span", { class: "visually-hidden" }, `: ${status}`),
    );
  }
}

/** How much of a phase is done, as far as steps and results of the build tell. */
function share(name, status) {
  const { a } = state;
  if (status === "done" || status === "failed") return 1;
  if (status !== "running") return 0;
  if (name === "pass") return Math.max(0, a.steps.length - 1) / Math.max(1, a.recipe.passes.length);
  return name === "build" ? Math.min(1, a.results.length / RESULTS) : 0.1;
}

function phaseStatus(name) {
  const { a } = state;
  const order = PHASES.map(([phase]) => phase);
  const passes = a.recipe.passes.length;
  let now = 0;
  if (a.steps.length > 0) now = 1;
  if (a.steps.length > passes) now = 2;
  if (now === 2 && a.results.some(({ stage }) => stage === "llvm")) now = 3;
  const at = order.indexOf(name);
  // A worker that dies tells in which phase, which may be none of those in order: eager runs before the import is done.
  const died = a.state === "failed" ? order.indexOf(a.problem?.phase) : -1;
  if (died === at && died >= 0) return "failed";
  if (died >= 0 && at >= now) return "skipped";
  if (a.state === "succeeded") return a.recipe.until && at >= 2 ? "skipped" : "done";
  if (at < now) return "done";
  if (at > now) return a.state === "failed" || a.state === "cancelled" ? "skipped" : "waiting";
  if (a.state === "failed") return "failed";
  if (a.state === "cancelled") return "skipped";
  return a.state === "queued" ? "waiting" : "running";
}
