// Where the time of the library goes: kernels by time, the roofline of this machine, source lines.

import { getJson } from "./api.js";
import { mark, power, powers } from "./chart.js";
import { button, field, fill, h, s } from "./dom.js";
import { microseconds, percent, rate } from "./format.js";
import { problemCard } from "./problem.js";
import { change, shown, state } from "./state.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [460, 280, 58, 34];

export class ProfileView {
  constructor() {
    this.head = h("div", { class: "view-head" });
    this.body = h("div", { class: "view-body" });
    this.element = h("div", { class: "profile-view" }, this.head, this.body);
    this.sizes = {};
    this.runs = 50;
  }

  show() {
    const key = `${state.a.id}/${state.a.state}/${state.b?.id}`;
    if (key === this.key) return;
    this.key = key;
    this.#head();
    this.#measure();
  }

  #head() {
    const symbols = Object.entries(state.a.signature?.symbols ?? {});
    const runs = h("input", {
      type: "number",
      min: 1,
      max: 1000,
      value: this.runs,
      onChange: (event) => {
        if (event.target.reportValidity()) this.runs = Number(event.target.value);
      },
    });
    const size = ([name, { min, max }]) =>
      field(
        `size of ${name}`,
        h("input", {
          type: "number",
          min,
          max,
          value: this.sizes[name] ?? Math.max(1, min),
          onChange: (event) => {
            if (event.target.reportValidity()) this.sizes[name] = Number(event.target.value);
          },
        }),
      );
    fill(
      this.head,
      field("runs", runs),
      symbols.map(size),
      button("Measure again", () => this.#measure(), { class: "primary" }),
    );
  }

  async #measure() {
    const { key } = this;
    if (state.a.state !== "succeeded") {
      fill(
        this.body,
        h(
          "p",
          { class: "empty" },
          state.a.state === "running" || state.a.state === "queued"
            ? "The library is not built yet; then its kernels are measured."
            : "There is no library to measure: the compilation did not succeed.",
        ),
      );
      return;
    }
    fill(this.body, h("p", { class: "empty loading", role: "status" }, `Running it ${this.runs} times, one thread …`));
    const sizes = Object.entries(this.sizes)
      .map(([name, value]) => `${name}:${value}`)
      .join(",");
    const query = new URLSearchParams({ runs: this.runs, ...(sizes && { sizes }) });
    try {
      const found = [await getJson(`/compile/${state.a.id}/profile?${query}`)];
      // One after the other: at once they would share the cores.
      if (state.b?.state === "succeeded") found.push(await getJson(`/compile/${state.b.id}/profile?${query}`));
      if (key === this.key) this.#draw(...found);
    } catch (error) {
      if (key === this.key) fill(this.body, problemCard(error, { retry: () => this.#measure() }));
    }
  }

  #draw(a, b = null) {
    const sides = b
      ? [
          ["a", a],
          ["b", b],
        ]
      : [["a", a]];
    const total = ([side, found]) =>
      h(
        "div",
        { class: "figure" },
        b ? h("b", { class: `side-${side}` }, side.toUpperCase(), " ") : null,
        h("strong", null, microseconds(found.total.median_us)),
        h(
          "span",
          { class: "muted" },
          ` a run, the fastest ${microseconds(found.total.min_us)}, spread ${microseconds(found.total.spread_us)} · ${found.kernels.length} kernels`,
        ),
      );
    const faster = b
      ? h(
          "div",
          { class: "figure" },
          h("strong", null, `${(b.total.median_us / a.total.median_us).toFixed(2)}×`),
          h("span", { class: "muted" }, " B's time over A's"),
        )
      : null;
    fill(
      this.body,
      h("div", { class: "figures" }, sides.map(total), faster),
      h(
        "div",
        { class: "two" },
        h("section", null, h("h3", null, "Kernels"), this.#kernels(a, b)),
        h(
          "section",
          null,
          h("h3", null, "Roofline"),
          this.#roofline(sides, a.machine),
          h("h3", null, "By source line"),
          this.#sources(a),
        ),
      ),
    );
  }

  #kernels(a, b) {
    const others = new Map((b?.kernels ?? []).map((kernel) => [kernel.function, kernel]));
    const rows = a.kernels.map((kernel) => [kernel, others.get(kernel.function) ?? null]);
    const only = (b?.kernels ?? [])
      .filter((kernel) => !a.kernels.some((each) => each.function === kernel.function))
      .map((kernel) => [null, kernel]);
    const all = [...rows, ...only].sort((one, other) => time(other) - time(one));
    const most = Math.max(...all.map(time));
    return h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Kernels by time" },
      h(
        "table",
        { class: "kernels" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            [
              "kernel",
              "calls",
              b ? "A" : "time",
              b ? "B" : null,
              "share",
              "FLOP/s",
              "of peak",
              "bytes/s",
              "of memory",
              "bound by",
            ]
              .filter(Boolean)
              .map((name, at) => h("th", { scope: "col", class: at > 0 ? "num" : null }, name)),
          ),
        ),
        h(
          "tbody",
          null,
          all.map(([kernel, other]) => this.#kernel(kernel, other, b, most, a.machine)),
        ),
      ),
    );
  }

  #kernel(kernel, other, b, most, machine) {
    const one = kernel ?? other;
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${(one.median_us / most) * 100}%`;
    const source = one.sources.find((each) => each.source)?.source ?? one.sources[0]?.module ?? "";
    const number = (value, show) =>
      h("td", { class: "num" }, value === null || value === undefined ? "–" : show(value));
    return h(
      "tr",
      null,
      h(
        "th",
        { scope: "row" },
        bar,
        button(one.function, () => this.#open(one.function), { class: "plain", title: source }),
      ),
      number(one.calls, String),
      number(kernel?.median_us, microseconds),
      b ? number(other?.median_us, microseconds) : null,
      number(one.share, percent),
      number(one.flops_per_s, (value) => rate(value, "")),
      number(one.of_peak, percent),
      number(one.bytes_per_s, (value) => rate(value, "B")),
      number(one.of_bandwidth, percent),
      h("td", null, boundBy(one, machine)),
    );
  }

  /** The assembly of a kernel beside its TIR. */
  #open(name) {
    const all = shown(state.a);
    const place = (stage) => ({ kind: "ir", side: "a", step: all.find((step) => step.stage === stage)?.index ?? 0 });
    change(
      { tab: "ir", panes: [{ kind: "model" }, place("tir"), place("asm")], active: 1, fn: name, line: null },
      { history: "push" },
    );
  }

  #roofline(sides, machine) {
    const dots = sides.flatMap(([side, found]) =>
      found.kernels
        .filter((kernel) => kernel.flops > 0 && kernel.bytes_moved > 0 && kernel.flops_per_s > 0)
        .map((kernel) => ({ side, kernel, x: kernel.flops / kernel.bytes_moved, y: kernel.flops_per_s })),
    );
    if (dots.length === 0)
      return h(
        "p",
        { class: "empty" },
        "No kernel can be placed: their FLOPs or bytes are not known, as where a size is a symbol.",
      );
    const ridge = machine.flops_per_s / machine.bytes_per_s;
    const x = powers(
      Math.min(0.1, ...dots.map((dot) => dot.x)),
      Math.max(ridge * 4, ...dots.map((dot) => dot.x)),
      LEFT,
      WIDTH - 10,
    );
    const y = powers(
      Math.min(machine.flops_per_s / 1e4, ...dots.map((dot) => dot.y)),
      machine.flops_per_s * 1.5,
      HEIGHT - BOTTOM,
      10,
    );
    const [lowX, highX] = [
      x.ticks[0].value,
      10 ** Math.ceil(Math.log10(Math.max(ridge * 4, ...dots.map((dot) => dot.x)))),
    ];
    const roof = [
      [lowX, lowX * machine.bytes_per_s],
      [ridge, machine.flops_per_s],
      [highX, machine.flops_per_s],
    ]
      .map(([one, other]) => `${x.at(one)},${Math.min(HEIGHT - BOTTOM, y.at(other))}`)
      .join(" ");
    const largest = Math.max(...dots.map(({ kernel }) => kernel.share));
    return h(
      "div",
      null,
      s(
        "svg",
        {
          viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
          class: "chart",
          role: "img",
          "aria-label": `Roofline: ${dots.length} kernels beside ${rate(machine.flops_per_s, "FLOP/s")} and ${rate(machine.bytes_per_s, "B/s")}. The table has the numbers.`,
        },
        x.ticks.map((tick) => [
          s("line", { class: "grid", x1: x.at(tick.value), x2: x.at(tick.value), y1: 10, y2: HEIGHT - BOTTOM }),
          s("text", { x: x.at(tick.value), y: HEIGHT - BOTTOM + 14, "text-anchor": "middle" }, power(tick.power)),
        ]),
        y.ticks.map((tick) => [
          s("line", { class: "grid", x1: LEFT, x2: WIDTH - 10, y1: y.at(tick.value), y2: y.at(tick.value) }),
          s("text", { x: LEFT - 6, y: y.at(tick.value) + 4, "text-anchor": "end" }, power(tick.power)),
        ]),
        s("text", { x: WIDTH - 10, y: HEIGHT - 4, "text-anchor": "end" }, "FLOP / byte"),
        s("text", { x: LEFT + 6, y: 20 }, "FLOP/s"),
        s("polyline", { class: "roof", points: roof }),
        dots.map(({ side, kernel, x: one, y: other }) =>
          mark(
            side,
            x.at(one),
            y.at(other),
            3 + 6 * Math.sqrt(kernel.share / largest),
            { class: `dot dot-${side}` },
            `${kernel.function}: ${microseconds(kernel.median_us)}, ${rate(kernel.flops_per_s, "FLOP/s")}, ${one.toFixed(2)} FLOP/byte`,
          ),
        ),
      ),
      h(
        "p",
        { class: "muted" },
        `One core of this machine, as measured: ${rate(machine.flops_per_s, "FLOP/s")}, ${rate(machine.bytes_per_s, "B/s")}. Area by share of time${sides.length > 1 ? "; dots are A, squares B" : ""}.`,
      ),
    );
  }

  #sources(a) {
    const lines = new Map();
    for (const { source, module, share } of a.sources) {
      const name = source ?? module;
      if (name) lines.set(name, (lines.get(name) ?? 0) + share);
    }
    const known = [...lines].sort(([, one], [, other]) => other - one);
    if (known.length === 0) return h("p", { class: "empty" }, "The model has no source lines.");
    return h(
      "ol",
      { class: "sources" },
      known.slice(0, 20).map(([name, share]) => {
        const bar = h("span", { class: "bar", "aria-hidden": "true" });
        bar.style.width = `${Math.min(1, share / known[0][1]) * 100}%`;
        return h("li", null, bar, h("code", { title: name }, name), h("span", { class: "num" }, percent(share)));
      }),
    );
  }
}

/** Under which part of the roof a kernel stands. */
function boundBy({ flops, bytes_moved: moved }, machine) {
  if (!flops || !moved) return moved ? "memory" : "–";
  return flops / moved < machine.flops_per_s / machine.bytes_per_s ? "memory" : "compute";
}

const time = ([kernel, other]) => Math.max(kernel?.median_us ?? 0, other?.median_us ?? 0);
