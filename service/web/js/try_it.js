// Predictions from the compiled library: inputs, outputs with their time, and the same from elsewhere.

import { getOnce, infer } from "./api.js";
import { button, copy, field, fill, h } from "./dom.js";
import { milliseconds, scientific, shape as shapeText } from "./format.js";
import { InputForm } from "./inputs.js";
import { snapshot } from "./ir/listing.js";
import { problemCard } from "./problem.js";
import { snippets } from "./snippets.js";
import { state } from "./state.js";

const BARS = 64;

export class TryView {
  constructor() {
    this.body = h("div", { class: "view-body" });
    this.element = h("div", { class: "try-view" }, this.body);
    this.sizes = {};
  }

  async show() {
    const key = `${state.a.id}/${state.a.state}`;
    if (key === this.key) return;
    this.key = key;
    const { signature } = state.a;
    if (state.a.state !== "succeeded" || !signature || !state.a.artifact) {
      const waiting = ["running", "queued"].includes(state.a.state);
      fill(
        this.body,
        h(
          "p",
          { class: "empty" },
          waiting ? "The library is not built yet." : "There is no library to run: compile to the end first.",
        ),
      );
      return;
    }
    this.example = null;
    fill(this.body, h("p", { class: "empty loading", role: "status" }, "Opening …"));
    try {
      this.example = (await snapshot(state.a.id, state.a.steps[0])).example ?? null;
    } catch {
      /* what was not recorded cannot be shown; the rest works without */
    }
    if (key !== this.key) return;
    this.answer = h(
      "div",
      { class: "answer", "aria-live": "polite" },
      h("p", { class: "empty" }, "The answer comes here."),
    );
    this.code = h("div", { class: "snippets" });
    this.forms = null;
    const changed = () => this.forms && this.#showSnippets();
    this.forms = signature.inputs.map(
      (spec) => new InputForm(spec, this.sizes, changed, this.example?.inputs[spec.name]),
    );
    const symbols = Object.entries(signature.symbols ?? {}).map(([name, { min, max }]) =>
      field(
        `size of ${name}`,
        h("input", {
          type: "number",
          min,
          max,
          value: this.sizes[name] ?? Math.max(1, min),
          onChange: (event) => this.#resize(name, event.target),
        }),
        `${min} to ${max ?? "any"}`,
      ),
    );
    this.go = button("Predict", () => this.#run(), { class: "primary large" });
    fill(
      this.body,
      h(
        "div",
        { class: "two" },
        h(
          "section",
          null,
          h("h3", null, "Inputs"),
          symbols,
          this.forms.map((form) => form.element),
          h("div", { class: "go" }, this.go),
        ),
        h("section", null, h("h3", null, "Answer"), this.answer),
      ),
      h("section", null, h("h3", null, "The same from elsewhere"), this.code),
    );
    this.#showSnippets();
    getOnce("/openapi.json").then(
      ({ paths }) => {
        this.protocol = Object.keys(paths).some((path) => path.startsWith("/v2/"));
        this.#showSnippets();
      },
      () => {},
    );
  }

  #resize(name, input) {
    if (!input.reportValidity()) return;
    this.sizes[name] = Number(input.value);
    for (const form of this.forms) form.resize();
  }

  #inputs() {
    return Object.fromEntries(this.forms.map((form) => [form.spec.name, form.value]));
  }

  async #run() {
    const missing = this.forms.find((form) => form.value === undefined);
    if (missing) {
      fill(this.answer, h("p", { class: "empty" }, `Choose a value for ${missing.spec.name} first.`));
      return;
    }
    this.go.disabled = true;
    const began = performance.now();
    try {
      const { outputs } = await infer({ model: state.a.id, inputs: this.#inputs() });
      const ms = performance.now() - began;
      this.#show(outputs, ms, this.forms.every((form) => form.isRecorded) ? this.example.outputs : {});
    } catch (error) {
      fill(this.answer, problemCard(error, { retry: () => this.#run() }));
    } finally {
      this.go.disabled = false;
    }
  }

  /** `recorded` are PyTorch eager's outputs for the same inputs, where they are known. */
  #show(outputs, ms, recorded) {
    const verified = new Map((state.a.verification?.outputs ?? []).map((output) => [output.name, output]));
    const first = this.ran ? "" : ", the first of a session loads the library";
    this.ran = true;
    fill(
      this.answer,
      h(
        "p",
        null,
        h("strong", null, milliseconds(ms)),
        h("span", { class: "muted" }, ` from here to the server and back${first}`),
      ),
      Object.entries(outputs).map(([name, values]) => {
        const spec = state.a.signature.outputs.find((each) => each.name === name);
        const eager = verified.get(name);
        return h(
          "div",
          { class: "output" },
          h("h4", null, name, " ", h("code", { class: "muted" }, spec ? shapeText(spec) : "")),
          name in recorded
            ? beside(values, recorded[name], eager)
            : [picture(values), h("p", { class: "muted" }, distance(eager))],
          h(
            "details",
            null,
            h("summary", null, "All values"),
            h("pre", null, clip(JSON.stringify(values))),
            button("Copy", () => copy(JSON.stringify(values), name)),
          ),
        );
      }),
    );
  }

  #showSnippets() {
    const found = snippets(window.location.origin, state.a, this.#inputs(), this.protocol);
    this.chosen = found.some(([name]) => name === this.chosen) ? this.chosen : found[0][0];
    const [, code] = found.find(([name]) => name === this.chosen);
    fill(
      this.code,
      h(
        "div",
        { class: "snippet-tabs", role: "group", "aria-label": "Language" },
        found.map(([name]) =>
          button(
            name,
            () => {
              this.chosen = name;
              this.#showSnippets();
            },
            { "aria-pressed": String(name === this.chosen) },
          ),
        ),
        button("Copy", () => copy(code, "the code")),
      ),
      h("pre", { tabindex: 0, "aria-label": `Code for ${this.chosen}` }, code),
    );
  }
}

const distance = (eager) =>
  eager
    ? `PyTorch eager, on the inputs of the verification: at most ${scientific(eager.max_abs_error)} away (allowed: ${scientific(eager.atol)}). Choose “recorded example” as input to see its answer.`
    : "No recorded answer of PyTorch to compare with.";

/** The answer and PyTorch's, with the largest difference. */
function beside(values, recorded, eager) {
  const [mine, theirs] = [values, recorded].map((each) => [each].flat(Infinity).map(Number));
  const most = mine.reduce((largest, value, at) => Math.max(largest, Math.abs(value - theirs[at]) || 0), 0);
  const allowed = eager ? ` (allowed: ${scientific(eager.atol)})` : "";
  return [
    h(
      "div",
      { class: "beside" },
      h("div", null, h("h5", null, "relaxd"), picture(values)),
      h("div", null, h("h5", null, "PyTorch eager, recorded"), picture(recorded)),
    ),
    h("p", null, h("strong", null, scientific(most)), ` is the largest difference${allowed}.`),
    h("details", null, h("summary", null, "All of PyTorch's values"), h("pre", null, clip(JSON.stringify(recorded)))),
  ];
}

const clip = (text) => (text.length > 20_000 ? `${text.slice(0, 20_000)} …` : text);

/** Values as bars where they are few: a row of logits reads at a glance. */
function picture(values) {
  let row = values;
  let rows = 1;
  while (Array.isArray(row?.[0])) {
    rows *= row.length;
    row = row[0];
  }
  if (!Array.isArray(row) || row.length > BARS || row.some((value) => typeof value !== "number")) return null;
  const [least, most] = [Math.min(0, ...row), Math.max(0, ...row)];
  const best = row.indexOf(Math.max(...row));
  const place = (value) => ((value - least) / (most - least || 1)) * 100;
  return h(
    "div",
    null,
    rows > 1 ? h("p", { class: "muted" }, `the first of ${rows} rows`) : null,
    h(
      "ol",
      { class: "logits" },
      row.map((value, at) => {
        const bar = h("span", { class: "bar", "aria-hidden": "true" });
        bar.style.left = `${Math.min(place(0), place(value))}%`;
        bar.style.width = `${Math.abs(place(value) - place(0))}%`;
        return h(
          "li",
          { class: at === best ? "best" : "" },
          h("span", { class: "index" }, at),
          h("span", { class: "track" }, bar),
          h("span", { class: "num" }, Number(value.toPrecision(5)), at === best ? h("span", null, " ← largest") : null),
        );
      }),
    ),
  );
}
