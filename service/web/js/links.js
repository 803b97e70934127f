// What belongs together: lines of every open pane that come from the same nodes of the model.

import { snapshot } from "./ir/listing.js";
import { state } from "./state.js";

const COLOURS = 10;

/** The nodes of a model, by the source lines that they come from. */
export class Model {
  constructor(origins) {
    this.origins = origins;
    this.sources = [];
    const known = new Map();
    origins.forEach((origin, index) => {
      const key = origin.source ?? `module ${origin.module ?? ""}`;
      if (!known.has(key)) {
        known.set(key, { key, ...place(origin), origins: [], at: this.sources.length });
        this.sources.push(known.get(key));
      }
      known.get(key).origins.push(index);
    });
    this.sources.sort(
      (one, other) => (one.file ?? "~").localeCompare(other.file ?? "~") || one.line - other.line || one.at - other.at,
    );
    this.colours = new Array(origins.length);
    this.sources.forEach((source, index) => {
      for (const origin of source.origins) this.colours[origin] = index % COLOURS;
    });
  }

  /** At most three colours for nodes: those of their source lines. */
  coloursOf(origins) {
    return [...new Set(origins.map((origin) => this.colours[origin]))]
      .filter((colour) => colour !== undefined)
      .slice(0, 3);
  }

  /** One line that says what nodes are. */
  describe(origins) {
    const found = [...origins].map((index) => this.origins[index]).filter(Boolean);
    if (found.length === 0) return "";
    const first = found[0];
    const parts = [first.operator, first.module && `in ${first.module}`, first.source].filter(Boolean);
    return parts.join(" · ") + (found.length > 1 ? `  and ${found.length - 1} more` : "");
  }
}

function place(origin) {
  const match = /^(.*?):(\d+): ?(.*)$/s.exec(origin.source ?? "");
  if (match) return { file: match[1], line: Number(match[2]), text: match[3] };
  return { file: null, line: 0, text: origin.source ?? (origin.module ? `module ${origin.module}` : "no source line") };
}

const models = new Map();

/** The Model of a Compilation whose import is done. */
export function modelOf(compilation) {
  const { id } = compilation;
  if (!models.has(id)) {
    const read = snapshot(id, compilation.steps[0]).then((found) => new Model(found.origins ?? []));
    models.set(id, read);
    read.catch(() => models.delete(id));
  }
  return models.get(id);
}

const panes = new Set();
let pinned = null;

/** Panes take part with `light(lit, go)`; the one where it began is left out when it scrolls. */
export function join(pane) {
  panes.add(pane);
  return () => panes.delete(pane);
}

/** Lights what comes from these nodes while the pointer is there. */
export function hover(segment, from) {
  show(segment ?? pinned?.segment ?? null, segment ? from : pinned?.from, false);
}

/** Lights it until something else is chosen, and scrolls every other pane to it. */
export function pin(segment, from) {
  pinned = segment ? { segment, from } : null;
  show(segment, from, true);
}

/** For panes that open later, or show something else now. */
export function again(pane) {
  if (pinned) pane.light(asLit(pinned.segment), pane !== pinned.from);
}

/** What is lit, as sets: nodes of the model, kernels, and lines of those after the last step of compilation `id`. */
const asLit = (segment) => ({
  id: segment?.id ?? null,
  origins: new Set(segment?.origins ?? []),
  kernels: new Set([segment?.callee, segment?.kernel].filter(Boolean)),
  statements: segment?.statements ?? new Set(),
});

function show(segment, from, go) {
  const lit = asLit(segment);
  for (const pane of panes) pane.light(lit, go && pane !== from);
  const line = document.getElementById("lit");
  if (!line) return;
  if (!segment) line.textContent = "";
  else if (state.a)
    modelOf(state.a).then(
      (model) => (line.textContent = model.describe(lit.origins)),
      () => {},
    );
}
