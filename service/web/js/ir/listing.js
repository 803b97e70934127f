// A Listing is the text of one step with its structure: lines, functions, and which lines come from which nodes of the model.

import { getJson, getText, irPath, isResult } from "../api.js";
import { compilationOf } from "../state.js";

/**
 * @typedef {{name: string, title: string, start: number, end: number, kind: string}} Span a function: lines start to end - 1
 * @typedef {{start: number, end: number, origins: number[], binding: string|null, fn: string}} Segment
 */

const HEADS = {
  llvm: /^define\b.*?@"?([\w.$]+)"?\(/,
  asm: /^([\w.$@]+):$/,
  vm: /^@([\w.]+):/,
};
const TVMSCRIPT_HEAD = /^\s*def (\w+)\(/;
const BINDING = /^\s+([A-Za-z_]\w*)(?:: .*?)? = /;

/** Which kernel a symbol of the library belongs to. */
const kernelName = (symbol) => symbol.replace(/^__tvm_ffi_/, "").replace(/(?:_compute_|\.\w+)$/, "");

export class Listing {
  /** `functions` are those of the API's JSON (with bindings and origins), or for results of the build, of the last step. */
  constructor(text, stage, functions) {
    this.stage = stage;
    this.text = text;
    this.lines = text.replace(/\n$/, "").split("\n");
    this.functions = findFunctions(this.lines, stage);
    this.known = new Map(functions.map((entry) => [entry.name, entry]));
    this.segments = this.#segments();
    this.widest = this.lines.reduce((most, line) => Math.max(most, line.length), 0);
  }

  #segments() {
    const found = [];
    for (const span of this.functions) {
      const entry = this.known.get(span.name);
      if (this.stage === "vm") found.push(...this.#calls(span));
      else if (!entry) continue;
      else if (entry.kind === "relax" && !["llvm", "asm", "tir"].includes(this.stage))
        found.push(...this.#bindings(span, entry));
      else found.push({ start: span.start, end: span.end, origins: entry.origins ?? [], binding: null, fn: span.name });
    }
    return found.filter((segment) => segment.origins.length > 0);
  }

  #bindings(span, entry) {
    const origins = new Map(entry.bindings.map((node) => [node.name, node.origins ?? []]));
    const callees = new Map(entry.bindings.map((node) => [node.name, node.callee ?? null]));
    const found = [];
    for (let line = span.start; line < span.end; line += 1) {
      const name = BINDING.exec(this.lines[line])?.[1];
      if (name === undefined || !origins.has(name)) continue;
      found.push({
        start: line,
        end: line + 1,
        origins: origins.get(name),
        binding: name,
        fn: span.name,
        callee: callees.get(name),
      });
    }
    return found;
  }

  #calls(span) {
    const found = [];
    for (let line = span.start; line < span.end; line += 1) {
      const callee = /^\s+call\s+([\w.]+)/.exec(this.lines[line])?.[1];
      const origins = this.known.get(callee)?.origins ?? [];
      found.push({ start: line, end: line + 1, origins, binding: null, fn: span.name, callee });
    }
    return found;
  }

  /** The segment that a line lies in, or null. */
  segmentAt(line) {
    let low = 0;
    let high = this.segments.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const segment = this.segments[middle];
      if (line < segment.start) high = middle - 1;
      else if (line >= segment.end) low = middle + 1;
      else return segment;
    }
    return null;
  }

  /** The function that a line lies in, or null. */
  functionAt(line) {
    return this.functions.find((span) => span.start <= line && line < span.end) ?? null;
  }

  functionNamed(name) {
    return (
      this.functions.find((span) => span.title === name) ?? this.functions.find((span) => span.name === name) ?? null
    );
  }
}

function findFunctions(lines, stage) {
  const head = HEADS[stage] ?? TVMSCRIPT_HEAD;
  const script = !HEADS[stage];
  const found = [];
  lines.forEach((line, number) => {
    const title = head.exec(line)?.[1];
    if (title === undefined) return;
    let start = number;
    // Decorators and type variables in front belong to it.
    while (script && start > 0 && /^\s*(?:@[RT]\.|\w+ = TypeVar)/.test(lines[start - 1])) start -= 1;
    if (found.length > 0) found.at(-1).end = Math.min(found.at(-1).end, start);
    const name = stage === "llvm" || stage === "asm" ? kernelName(title) : title;
    found.push({ name, title, start, end: lines.length, kind: stage });
  });
  for (const span of found) {
    if (stage === "llvm") {
      const close = lines.indexOf("}", span.start);
      if (close >= 0) span.end = Math.min(span.end, close + 1);
    }
    while (span.end > span.start + 1 && /^\s*$|^# Metadata/.test(lines[span.end - 1])) span.end -= 1;
  }
  return found;
}

const kept = new Map();

/** The API's JSON of a step, once. */
export function snapshot(id, step) {
  return keep(`${id}/${step.index}/json`, () => getJson(irPath(id, step, "json")));
}

/** The Listing of a step, once. Results of the build come as text only: their lines belong to kernels of the last step. */
export function listing(side, step) {
  const { id, steps } = compilationOf(side);
  return keep(`${id}/${step.stage}/${step.index}`, async () => {
    if (!isResult(step)) {
      const found = await snapshot(id, step);
      return new Listing(found.text, step.stage, found.functions);
    }
    const [text, last] = await Promise.all([getText(irPath(id, step, "text")), snapshot(id, steps.at(-1))]);
    return new Listing(text, step.stage, last.functions);
  });
}

function keep(key, make) {
  if (!kept.has(key)) {
    const made = make();
    kept.set(key, made);
    made.catch(() => kept.delete(key));
  }
  return kept.get(key);
}

/** Forgets what was read of a Compilation, as after it was compiled anew. */
export function forget(id) {
  for (const key of [...kept.keys()]) if (key.startsWith(`${id}/`)) kept.delete(key);
}
