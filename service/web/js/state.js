// What the page shows now, and the same as the fragment of its address.

import { knownPasses } from "./ir/inner.js";

/**
 * @typedef {{side: "a"|"b", step: number|null, inner?: number}} Place a step, or after a pass of TVM inside of it
 * @typedef {{kind: "model"} | ({kind: "ir"} & Place) | {kind: "diff", left: Place, right: Place}} Pane
 */

const TABS = ["ir", "graph", "profile", "accuracy", "try", "bisect"];

export const state = {
  a: null, // the Compilation
  b: null, // the one it is compared with
  tab: "ir",
  panes: [],
  active: 1,
  line: null, // {pane, line}: the pinned line
  fn: null, // the function that was gone to
  graph: null, // {side, step}: what the graph shows
};

const listeners = new Set();

/** Calls `act(names)` after each change with the set of names that changed. */
export function onChange(act) {
  listeners.add(act);
  return () => listeners.delete(act);
}

/** Changes the state, tells all listeners, and writes the address. */
export function change(values, { history = "replace" } = {}) {
  const names = new Set(Object.keys(values).filter((name) => state[name] !== values[name]));
  if (names.size === 0) return;
  Object.assign(state, values);
  writeAddress(history);
  for (const act of [...listeners]) act(names);
}

const place = ({ side, step, inner }) =>
  `${side === "b" ? "b" : ""}${step ?? "last"}${inner === undefined ? "" : `.${inner}`}`;

function parsePlace(text) {
  const match = /^(b?)(\d+|last)(?:\.(\d+))?$/.exec(text);
  if (!match) return null;
  const inner = match[3] === undefined ? {} : { inner: Number(match[3]) };
  return { side: match[1] || "a", step: match[2] === "last" ? null : Number(match[2]), ...inner };
}

export function paneKey(pane) {
  if (pane.kind === "model") return "model";
  if (pane.kind === "ir") return place(pane);
  return `${place(pane.left)}~${place(pane.right)}`;
}

export function parsePane(text) {
  if (text === "model") return { kind: "model" };
  const [left, right] = text.split("~").map(parsePlace);
  if (!left) return null;
  return right ? { kind: "diff", left, right } : { kind: "ir", ...left };
}

/** The fragment for what is shown: opened anew, it shows the same. */
export function address() {
  if (!state.a) return "#";
  const parts = { c: state.a.id };
  if (state.b) parts.b = state.b.id;
  if (state.tab !== "ir") parts.tab = state.tab;
  parts.panes = state.panes.map(paneKey).join(",");
  if (state.active !== 1) parts.at = state.active;
  if (state.line) parts.line = `${state.line.pane}:${state.line.line + 1}`;
  if (state.fn) parts.fn = state.fn;
  if (state.graph !== null) parts.graph = place(state.graph);
  return `#${Object.entries(parts)
    .map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3A", ":")}`)
    .join("&")}`;
}

let written = null;

function writeAddress(history) {
  const next = address();
  if (next === window.location.hash || (next === "#" && !window.location.hash)) return;
  written = next;
  const url = next === "#" ? window.location.pathname : next;
  window.history[history === "push" ? "pushState" : "replaceState"](null, "", url);
}

/** What a fragment asks for: ids in place of Compilations. */
export function parseAddress(hash) {
  const parts = Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
  const line = /^(\d+):(\d+)$/.exec(parts.line ?? "");
  return {
    c: parts.c ?? null,
    b: parts.b ?? null,
    tab: TABS.includes(parts.tab) ? parts.tab : "ir",
    panes: (parts.panes ?? "").split(",").map(parsePane).filter(Boolean),
    active: Number(parts.at ?? 1),
    line: line && { pane: Number(line[1]), line: Number(line[2]) - 1 },
    fn: parts.fn ?? null,
    graph: parsePlace(parts.graph ?? ""),
  };
}

/** Whether the page itself wrote the present address. */
export const isOurs = () => window.location.hash === written;

/** All steps of a Compilation and the results of its build, assembly included. */
export function shown(compilation) {
  if (!compilation) return [];
  const results = compilation.results;
  const all = [...compilation.steps, ...results];
  if (results.some((entry) => entry.stage === "llvm") && !results.some((entry) => entry.stage === "asm")) {
    // It is made when it is first asked for.
    all.push({ ...results.at(-1), index: all.length, stage: "asm", pass: null, wall_ms: null, details: {} });
  }
  return all;
}

export const compilationOf = (side) => (side === "b" ? state.b : state.a);

/** The step that is meant; with `inner` as it stands after a pass inside of it. */
export function findStep({ side, step: index, inner }) {
  const step = shown(compilationOf(side)).find((each) => each.index === index) ?? null;
  if (!step || inner === undefined) return step;
  const name = knownPasses(compilationOf(side).id, index)?.[inner]?.name;
  return { ...step, inner, innerName: name ?? `pass ${inner + 1} inside` };
}

/** What tells steps of one compilation apart. */
export const stepKey = (step) => `${step.stage}/${step.index}${step.inner === undefined ? "" : `.${step.inner}`}`;
