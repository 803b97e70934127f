// Where a Compilation goes wrong: the step, TVM's pass in it, and a smaller model that shows the same.

import { ProblemError, getJson, remove, send } from "./api.js";
import { announce, button, copy, field, fill, h } from "./dom.js";
import { milliseconds, shortId, stepName } from "./format.js";
import { fileLink } from "./key.js";
import { problemCard } from "./problem.js";
import { change, state } from "./state.js";

const ASK_EVERY_MS = 1000;
const RUNS = ["queued", "running"];
const SHOWN_TRIES = 12;

const KINDS = {
  failure: "It fails",
  crash: "It dies",
  hang: "It does not end",
  wrong: "The numbers go wrong",
  slow: "It gets slow",
};

export class BisectView {
  constructor() {
    this.head = h("div", { class: "view-head" });
    this.result = h("div", { "aria-live": "polite" });
    this.element = h("div", { class: "bisect-view" }, this.head, h("div", { class: "view-body" }, this.result));
    this.symptom = "auto";
  }

  show() {
    const key = `${state.a.id}/${state.a.state}/${state.b?.id}`;
    if (key === this.key) return;
    this.key = key;
    clearTimeout(this.asking);
    this.found = null;
    this.#head();
    if (RUNS.includes(state.a.state)) {
      this.#say("The compilation has not ended; then it can be looked into.");
      return;
    }
    this.#ask();
  }

  #say(...words) {
    fill(this.result, h("p", { class: "empty" }, words));
  }

  get #path() {
    return `/compile/${state.a.id}/bisect`;
  }

  #head() {
    const choices = [
      ["auto", "what it failed of"],
      ["wrong", "wrong numbers"],
      ...(state.b ? [["slow", `slower than B (${shortId(state.b.id)})`]] : []),
    ];
    if (!choices.some(([value]) => value === this.symptom)) this.symptom = "auto";
    const select = h(
      "select",
      {
        onChange: (event) => {
          this.symptom = event.target.value;
        },
      },
      choices.map(([value, label]) => h("option", { value, selected: value === this.symptom }, label)),
    );
    const runs = RUNS.includes(this.found?.state);
    fill(
      this.head,
      field("Look for", select, state.b ? null : "Compare with another compilation to look for what is slower."),
      runs
        ? button("Cancel", () => this.#cancel(), { class: "cancel" })
        : button("Bisect", () => this.#begin(), { class: "primary", disabled: RUNS.includes(state.a.state) }),
    );
  }

  async #begin() {
    const asked = this.symptom === "slow" ? { symptom: "slow", against: state.b.id } : { symptom: this.symptom };
    this.#say("Beginning …");
    try {
      this.#draw(await send(this.#path, asked));
    } catch (error) {
      fill(this.result, problemCard(error, { retry: () => this.#begin() }));
    }
  }

  async #cancel() {
    try {
      await remove(state.a.id, "/bisect");
      this.#ask();
    } catch (error) {
      announce(error.message);
    }
  }

  /** The bisection as it stands; while it runs, again and again. */
  async #ask() {
    const { key } = this;
    try {
      const found = await getJson(this.#path);
      if (key === this.key) this.#draw(found);
    } catch (error) {
      if (key !== this.key) return;
      if (error instanceof ProblemError && error.problem.status === 404)
        this.#say(
          "A bisection runs the passes one by one, each attempt in a worker of its own, until it knows which step goes " +
            "wrong, which pass of TVM in it, and a smaller model that shows the same.",
        );
      else fill(this.result, problemCard(error, { retry: () => this.#ask() }));
    }
  }

  #draw(found) {
    const ended = this.found && RUNS.includes(this.found.state) && !RUNS.includes(found.state);
    const runs = RUNS.includes(found.state);
    if (runs !== RUNS.includes(this.found?.state)) {
      this.found = found;
      this.#head();
    }
    this.found = found;
    fill(this.result, this.#progress(found), this.#finding(found), this.#reduced(found), this.#tried(found));
    if (ended)
      announce(found.found ? `${KINDS[found.found.kind]} at ${place(found.found)}.` : "The bisection has ended.");
    if (runs) this.asking = setTimeout(() => this.#ask(), ASK_EVERY_MS);
  }

  #progress(found) {
    const bar = h("progress", { max: found.limits.attempts, value: found.attempts, "aria-label": "Attempts" });
    return h(
      "p",
      { class: RUNS.includes(found.state) ? "loading" : "muted", role: "status" },
      `${found.state}, ${found.attempts} of at most ${found.limits.attempts} attempts, ${milliseconds(found.seconds * 1000)}`,
      found.doing ? `: ${found.doing} ` : " ",
      RUNS.includes(found.state) ? bar : null,
    );
  }

  #finding({ found, problem, state: ended, notes }) {
    if (problem) return problemCard(problem);
    if (!found)
      return ended === "succeeded"
        ? h(
            "p",
            { class: "empty" },
            "Nothing was found.",
            notes.map((note) => ` ${note}`),
          )
        : null;
    const rows = [
      ["step", place(found)],
      ["pass of TVM", found.inner_pass],
      ["function", found.function],
      ["node of the model", found.node],
      ["binding", found.binding],
      ["signal", found.signal],
      [
        "time",
        found.after_ms === null
          ? null
          : `${milliseconds(found.before_ms)} before, ${milliseconds(found.after_ms)} after`,
      ],
      ["TVM says", found.message],
    ];
    return h(
      "section",
      { class: "finding" },
      h("h3", null, KINDS[found.kind], " at ", place(found), found.inner_pass ? `, in TVM's ${found.inner_pass}` : ""),
      h(
        "dl",
        null,
        rows
          .filter(([, value]) => value)
          .map(([name, value]) => [h("dt", null, name), h("dd", null, h("code", null, value))]),
      ),
      notes.map((note) => h("p", { class: "muted" }, note)),
      state.a.steps.some(({ index }) => index === Math.max(0, found.step - 1))
        ? button("Show the IR before it", () => this.#showIr(found.step))
        : null,
    );
  }

  #showIr(step) {
    const last = state.a.steps.at(-1).index;
    const panes = [{ kind: "model" }, { kind: "ir", side: "a", step: Math.min(last, Math.max(0, step - 1)) }];
    if (step > 0 && step <= last) panes.push({ kind: "ir", side: "a", step });
    change({ tab: "ir", panes, active: 1, line: null }, { history: "push" });
  }

  #reduced({ reduced }) {
    if (!reduced) return null;
    const before = reduced.nodes_before ? ` of ${reduced.nodes_before}` : "";
    return h(
      "section",
      null,
      h("h3", null, `A smaller model that shows it: ${reduced.nodes}${before} nodes`),
      h("pre", { tabindex: 0, "aria-label": "Code of the smaller model" }, reduced.code),
      h(
        "p",
        { class: "links" },
        button("Copy", () => copy(reduced.code, "the code")),
        " ",
        fileLink(reduced.href, "Download the .pt2", { download: "reduced.pt2" }),
      ),
    );
  }

  #tried({ tried }) {
    if (!tried.length) return null;
    return h(
      "details",
      null,
      h("summary", null, `${tried.length} attempts`),
      h(
        "ol",
        { class: "tried" },
        tried
          .slice(-SHOWN_TRIES)
          .map((each) => h("li", { value: each.attempt }, `${each.shows ? "shows it" : "does not"}: ${each.tried}`)),
      ),
    );
  }
}

function place(found) {
  if (found.pass) return `${found.step} ${found.pass}`;
  const step = state.a.steps.find(({ index }) => index === found.step);
  return step ? `${found.step} ${stepName(step)}` : found.step === 0 ? "the import" : "the build";
}
