// How far the numbers are from PyTorch's: by step and by output, for A and B.

import { mark, power, powers } from "./chart.js";
import { fill, h, s } from "./dom.js";
import { scientific, stepName } from "./format.js";
import { verdict } from "./rail.js";
import { state } from "./state.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [760, 240, 52, 30];

export class AccuracyView {
  constructor() {
    this.body = h("div", { class: "view-body" });
    this.element = h("div", { class: "accuracy-view" }, this.body);
  }

  show() {
    const sides = [["a", state.a], ...(state.b ? [["b", state.b]] : [])];
    const measured = sides.some(([, each]) => each.steps.some((step) => outputs(step).length));
    fill(
      this.body,
      h(
        "div",
        { class: "figures" },
        sides.map(([side, each]) => this.#verdict(side, each)),
      ),
      measured
        ? h("section", null, h("h3", null, "Largest absolute error after each step"), this.#chart(sides))
        : h(
            "p",
            { class: "empty" },
            "The steps were not checked. Choose “Verify: every step” in the recipe and compile again.",
          ),
      sides.map(([side, each]) => [this.#outputs(side, each), measured ? this.#steps(side, each) : null]),
    );
  }

  #verdict(side, each) {
    const { verification } = each;
    const name = state.b ? h("b", { class: `side-${side}` }, `${side.toUpperCase()} `) : null;
    if (!verification)
      return h(
        "div",
        { class: "figure" },
        name,
        h(
          "span",
          { class: "muted" },
          each.state === "succeeded" ? "not verified" : `no verdict on the library: ${each.state}`,
        ),
      );
    const first = verification.steps?.first_wrong;
    const jump = verification.steps?.first_jump;
    return h(
      "div",
      { class: "figure" },
      name,
      h(
        "strong",
        { class: verification.passed ? "state-succeeded" : "state-failed" },
        verification.passed ? "✓ within tolerance" : "✕ beyond tolerance",
      ),
      h(
        "span",
        { class: "muted" },
        ` on ${verification.cases?.join(", ")}${first ? ` · first wrong: ${text(first)}` : ""}${jump ? ` · error jumps at ${text(jump)}` : ""}`,
      ),
      (verification.notes ?? []).map((note) => h("div", { class: "muted" }, note)),
    );
  }

  #chart(sides) {
    const dots = sides.flatMap(([side, each]) =>
      each.steps.flatMap((step, at) =>
        outputs(step).map((output) => ({ side, step, output, at, error: Number(output.max_abs_error) || 0 })),
      ),
    );
    const real = dots.filter(({ error }) => error > 0 && Number.isFinite(error)).map(({ error }) => error);
    const most = Math.max(2, ...sides.map(([, each]) => each.steps.length));
    const y = powers(Math.min(1e-8, ...real), Math.max(1e-5, ...real), HEIGHT - BOTTOM, 10);
    const x = (at) => LEFT + 20 + (at / (most - 1)) * (WIDTH - LEFT - 50);
    const height = (error) => (error > 0 ? (Number.isFinite(error) ? y.at(error) : 6) : HEIGHT - BOTTOM);
    return h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Chart of errors" },
      s(
        "svg",
        {
          viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
          class: "chart wide",
          role: "img",
          "aria-label": "Error after each step, by powers of ten. The tables below have the numbers.",
        },
        y.ticks.map((tick) => [
          s("line", { class: "grid", x1: LEFT, x2: WIDTH - 10, y1: y.at(tick.value), y2: y.at(tick.value) }),
          s("text", { x: LEFT - 6, y: y.at(tick.value) + 4, "text-anchor": "end" }, power(tick.power)),
        ]),
        sides[0][1].steps.map((step, at) =>
          s("text", { x: x(at), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, step.index),
        ),
        sides.map(([side]) =>
          s("polyline", {
            class: `line line-${side}`,
            points: dots
              .filter((dot) => dot.side === side)
              .map((dot) => `${x(dot.at)},${height(dot.error)}`)
              .join(" "),
          }),
        ),
        dots.map((dot) =>
          mark(
            dot.side,
            x(dot.at),
            height(dot.error),
            dot.output.passed === false ? 6 : 4,
            { class: `dot dot-${dot.side} ${dot.output.passed === false ? "dot-bad" : ""}` },
            `${dot.side.toUpperCase()} ${stepName(dot.step)}, ${dot.output.name}: ${scientific(dot.error)}`,
          ),
        ),
      ),
    );
  }

  #outputs(side, each) {
    const found = each.verification?.outputs ?? [];
    if (found.length === 0) return null;
    return h(
      "section",
      null,
      h("h3", null, state.b ? `${side.toUpperCase()}: ` : "", "The built library, by output"),
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": `${side.toUpperCase()}: errors of the library` },
        h(
          "table",
          null,
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              ["output", "case", "largest absolute", "allowed", "largest relative", "verdict"].map((name, at) =>
                h("th", { scope: "col", class: at > 1 && at < 5 ? "num" : null }, name),
              ),
            ),
          ),
          h(
            "tbody",
            null,
            found.map((output) =>
              h(
                "tr",
                null,
                h("th", { scope: "row" }, output.name),
                h("td", null, output.case),
                number(output.max_abs_error),
                number(output.atol),
                number(output.max_rel_error),
                h("td", null, passed(output)),
              ),
            ),
          ),
        ),
      ),
    );
  }

  #steps(side, each) {
    return h(
      "section",
      null,
      h("h3", null, state.b ? `${side.toUpperCase()}: ` : "", "Every step, by output"),
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": `${side.toUpperCase()}: errors of every step` },
        h(
          "table",
          null,
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              [
                "step",
                "output",
                "largest absolute",
                "mean absolute",
                "largest relative",
                "mean relative",
                "verdict",
              ].map((name, at) => h("th", { scope: "col", class: at > 1 && at < 6 ? "num" : null }, name)),
            ),
          ),
          h(
            "tbody",
            null,
            each.steps.flatMap((step) =>
              outputs(step).map((output, at) =>
                h(
                  "tr",
                  null,
                  h("th", { scope: "row" }, at === 0 ? `${step.index} ${stepName(step)}` : ""),
                  h("td", null, output.name),
                  number(output.max_abs_error),
                  number(output.mean_abs_error),
                  number(output.max_rel_error),
                  number(output.mean_rel_error),
                  h("td", null, at === 0 ? sign(verdict(step)) : passed(output)),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }
}

const outputs = (step) => step.details?.numbers?.outputs ?? [];
const text = (value) => (typeof value === "object" ? (value.pass ?? value.step ?? JSON.stringify(value)) : value);
const number = (value) => h("td", { class: "num" }, scientific(value ?? null));
const passed = (output) =>
  output.passed === false
    ? h("span", { class: "state-failed" }, "✕ beyond")
    : h("span", { class: "state-succeeded" }, "✓ within");
const sign = (found) => (found ? h("span", { class: `mark-${found.level}` }, `${found.sign} ${found.words}`) : "");
