// The first view: choose a model, look at it, choose a recipe, compile.

import { getJson, inspect } from "./api.js";
import { announce, button, fill, h } from "./dom.js";
import { bytes, count, shape, shortId } from "./format.js";
import { problemCard } from "./problem.js";

const SAMPLES = [
  { file: "digits-mlp.pt2", name: "Digits MLP", about: "64-128-10, any batch size", input: "8 × 8 pixels" },
  { file: "lenet.pt2", name: "LeNet", about: "two convolutions, three dense layers", input: "28 × 28 pixels" },
  {
    file: "tiny-transformer.pt2",
    name: "Tiny transformer",
    about: "two blocks with attention",
    input: "32 characters",
  },
];

export class Start {
  /** `compile(file)` starts a Compilation of the chosen model with the draft recipe. */
  constructor(editor, compile, open) {
    this.editor = editor;
    this.file = null;
    this.inspection = h("div", { class: "inspection", "aria-live": "polite" });
    this.recent = h("div", { class: "recent" });
    this.go = button("Compile", () => this.file && compile(this.file), { class: "primary large", disabled: true });
    this.error = h("div");
    this.open = open;
    this.element = h(
      "main",
      { class: "start" },
      h(
        "div",
        { class: "start-head" },
        h("h1", null, "See what a compiler makes of your model"),
        h(
          "p",
          null,
          "A PyTorch model through TVM Relax, pass by pass: every step kept, compared, checked against PyTorch, and linked from source line to instruction.",
        ),
      ),
      h(
        "section",
        { "aria-labelledby": "start-model" },
        h("h2", { id: "start-model" }, "Model"),
        this.#drop(),
        h("h3", null, "or a sample"),
        this.#samples(),
        this.inspection,
      ),
      h(
        "section",
        { "aria-labelledby": "start-recipe" },
        h("h2", { id: "start-recipe" }, "Recipe"),
        (this.slot = h("div")),
        h("div", { class: "go" }, this.go, h("kbd", null, "Ctrl Enter")),
        this.error,
        this.recent,
      ),
    );
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && this.file) compile(this.file);
    });
  }

  async show() {
    this.slot.append(this.editor.element);
    fill(this.error);
    this.editor.ready.catch((error) => fill(this.error, problemCard(error, { retry: () => window.location.reload() })));
    try {
      const { compilations } = await getJson("/compile?limit=6");
      fill(
        this.recent,
        compilations.length
          ? [
              h("h3", null, "Recent"),
              h(
                "ul",
                null,
                compilations.map((each) => this.#recentItem(each)),
              ),
            ]
          : null,
      );
    } catch {
      fill(this.recent);
    }
  }

  #recentItem(each) {
    const signs = { succeeded: "✓", failed: "✕", cancelled: "–", running: "…", queued: "…" };
    return h(
      "li",
      null,
      h(
        "a",
        { href: `#c=${each.id}` },
        h("span", { class: `state-${each.state}`, "aria-hidden": "true" }, signs[each.state]),
        " ",
        h("span", null, each.model.filename ?? shortId(each.model.sha256)),
        " ",
        h(
          "span",
          { class: "muted" },
          `${each.recipe.name ?? `${each.recipe.passes.length} passes`} · ${each.state} · ${shortId(each.id)}`,
        ),
      ),
    );
  }

  #drop() {
    const input = h("input", {
      type: "file",
      class: "hidden-input",
      id: "model-file",
      accept: ".pt2,.pt,.pth,.ts",
      onChange: () => input.files[0] && this.choose(input.files[0]),
    });
    const zone = h(
      "label",
      { class: "drop", for: "model-file" },
      h("b", null, "Drop a model here"),
      " or choose a file",
      h(
        "small",
        null,
        ".pt2 of torch.export, TorchScript, or a torch.fx GraphModule. Nothing in it is executed to read it.",
      ),
    );
    const over = (on) => (event) => {
      event.preventDefault();
      zone.classList.toggle("over", on);
    };
    zone.addEventListener("dragover", over(true));
    zone.addEventListener("dragleave", over(false));
    zone.addEventListener("drop", (event) => {
      over(false)(event);
      if (event.dataTransfer.files[0]) this.choose(event.dataTransfer.files[0]);
    });
    return h("div", { class: "drop-box" }, input, zone);
  }

  #samples() {
    return h(
      "div",
      { class: "samples" },
      SAMPLES.map((sample) =>
        button(
          [h("b", null, sample.name), h("span", null, sample.about), h("small", null, sample.input)],
          () => this.#sample(sample),
          { class: "sample", dataset: { file: sample.file } },
        ),
      ),
    );
  }

  async #sample(sample) {
    try {
      const response = await fetch(`/web/samples/${sample.file}`);
      this.choose(new File([await response.blob()], sample.file));
    } catch (error) {
      fill(this.inspection, problemCard(error));
    }
  }

  /** Takes a model and shows what it is. */
  async choose(file) {
    this.file = file;
    this.go.disabled = false;
    for (const card of this.element.querySelectorAll(".sample"))
      card.setAttribute("aria-pressed", String(card.dataset.file === file.name));
    fill(this.inspection, h("p", { class: "loading muted", role: "status" }, `Looking at ${file.name} …`));
    try {
      const found = await inspect(file);
      if (this.file === file) this.#show(file, found);
    } catch (error) {
      if (this.file !== file) return;
      this.go.disabled = true;
      fill(this.inspection, problemCard(error, { retry: () => this.choose(file) }));
    }
  }

  #show(file, { format, signature, parameters, operators, unsupported }) {
    const most = operators[0]?.count ?? 1;
    const spec = (kind) => (each) =>
      h(
        "tr",
        null,
        h("th", { scope: "row" }, kind),
        h("td", null, each.name),
        h("td", null, h("code", null, shape(each))),
      );
    const symbols = Object.entries(signature?.symbols ?? {}).map(
      ([name, { min, max }]) => `${name}: ${min} to ${max ?? "∞"}`,
    );
    fill(
      this.inspection,
      h(
        "h3",
        null,
        file.name,
        " ",
        h(
          "span",
          { class: "muted" },
          `${format.replace("_", " ")} · ${bytes(file.size)}${parameters ? ` · ${count(parameters.count)} parameters, ${bytes(parameters.bytes)}` : ""}`,
        ),
      ),
      signature
        ? h(
            "table",
            { class: "signature" },
            h("caption", { class: "visually-hidden" }, "Signature"),
            h("tbody", null, signature.inputs.map(spec("in")), signature.outputs.map(spec("out"))),
          )
        : null,
      symbols.length ? h("p", { class: "muted" }, symbols.join(", ")) : null,
      unsupported.length ? this.#unsupported(unsupported) : null,
      h(
        "h4",
        null,
        `${operators.reduce((sum, { count: each }) => sum + each, 0)} operators of ${operators.length} kinds`,
      ),
      h(
        "ul",
        { class: "operators" },
        operators.map(({ name, count: many }) => {
          const bar = h("span", { class: "bar", "aria-hidden": "true" });
          bar.style.width = `${(many / most) * 100}%`;
          return h(
            "li",
            null,
            bar,
            h("code", null, name.replace(/^aten\.|\.default$/g, "")),
            h("span", { class: "many" }, many),
          );
        }),
      ),
    );
    announce(`${file.name}: ${operators.length} kinds of operators. Ready to compile.`);
  }

  #unsupported(list) {
    return h(
      "div",
      { class: "problem" },
      h("h3", null, "Some operators cannot be compiled"),
      h(
        "ul",
        null,
        list.map((each) =>
          h(
            "li",
            null,
            h("code", null, each.operator),
            ` × ${each.count}`,
            each.source_line ? ` at ${each.source_line}` : "",
            each.module_path ? ` in ${each.module_path}` : "",
            h("br"),
            each.hint,
          ),
        ),
      ),
    );
  }
}
