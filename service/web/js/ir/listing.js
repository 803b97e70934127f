// A Listing is the text of one step with its structure: lines, functions, and which lines come from which nodes of the model.

import { getJson, irPath, isResult } from "../api.js";
import { compilationOf, stepKey } from "../state.js";
import { innerPasses } from "./inner.js";

/**
 * @typedef {{name: string, title: string, start: number, end: number, kind: string}} Span a function: lines start to end - 1
 * @typedef {{start: number, end: number, origins: number[], binding: string|null, fn: string, callee: string|null,
 *   kernel: string|null, statements: Set<number>|null}} Segment lines of a kernel have `kernel`; `statements` are the lines
 *   of that kernel's text after the last step that they are, or are made of
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
  /**
   * `functions` are those of the API's JSON; `last` those of the last step, for results of the build, whose kernels have
   * their origins from there. In `isLast`, the last step itself, each line of a kernel is a statement.
   */
  constructor(text, stage, functions, { last = functions, isLast = false, id = null } = {}) {
    this.id = id;
    this.stage = stage;
    this.text = text;
    this.lines = text.replace(/\n$/, "").split("\n");
    this.functions = findFunctions(this.lines, stage);
    this.entries = functions;
    this.known = new Map(last.map((entry) => [entry.name, entry]));
    this.isLast = isLast;
    this.segments = this.#segments().filter((segment) => segment.origins.length > 0 || segment.statements);
    this.widest = this.lines.reduce((most, line) => Math.max(most, line.length), 0);
  }

  #segments() {
    if (["llvm", "asm", "tir"].includes(this.stage)) return this.#results();
    if (this.stage === "vm") return this.functions.flatMap((span) => this.#calls(span));
    return this.functions.flatMap((span) => {
      const entry = this.known.get(span.name);
      if (!entry) return [];
      return entry.kind === "relax" ? this.#bindings(span, entry) : this.#kernel(span, entry);
    });
  }

  /** A kernel after a step: by its blocks, or where it is what is built, line by line. */
  #kernel(span, entry) {
    // By itself, a function has its type variables in front of it.
    const own = entry.text.trimEnd().split("\n");
    const before = own.length - (span.end - span.start);
    const exact =
      own.at(-1).trim() === this.lines[span.end - 1].trim() && own[before]?.trim() === this.lines[span.start].trim();
    const found = [];
    for (let line = span.start; line < span.end; line += 1) {
      const number = before + line - span.start + 1;
      const isCode = exact && this.isLast && !/^\s*(?:@|def |#|T\.func_attr)/.test(this.lines[line]);
      const statements = isCode ? range(number, before + blockEnd(this.lines, line, span.end) - span.start) : null;
      const origins = exact ? originsAt(entry, number) : entry.origins;
      add(found, { start: line, end: line + 1, origins, fn: span.name, kernel: span.name, statements });
    }
    return found;
  }

  /** Kernels as the build has them: which lines are made of which line is told by `made_of`. */
  #results() {
    const found = [];
    let start = 0;
    for (const { name, text, made_of: madeOf } of this.entries) {
      const lines = text.split("\n");
      const entry = this.known.get(name);
      const origins = entry?.origins ?? [];
      lines.slice(0, -1).forEach((_, at) => {
        const line = start + at;
        const madeOfLine = entry && madeOf?.[at];
        const inside = this.stage === "tir" ? statementsInside(lines, at, madeOf) : null;
        const statements = madeOfLine ? new Set([madeOfLine]) : inside?.size ? inside : null;
        add(found, {
          start: line,
          end: line + 1,
          origins: statements ? union([...statements].map((each) => originsAt(entry, each))) : origins,
          fn: name,
          kernel: name,
          statements,
        });
      });
      start += lines.length;
    }
    return found;
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
        kernel: null,
        statements: null,
      });
    }
    return found;
  }

  #calls(span) {
    const found = [];
    for (let line = span.start; line < span.end; line += 1) {
      const callee = /^\s+call\s+([\w.]+)/.exec(this.lines[line])?.[1];
      const origins = this.known.get(callee)?.origins ?? [];
      found.push({
        start: line,
        end: line + 1,
        origins,
        binding: null,
        fn: span.name,
        callee,
        kernel: null,
        statements: null,
      });
    }
    return found;
  }

  /**
   * The lines that belong to a segment of this or another Listing, the most telling first: its very statements; else the
   * kernels that it calls or lies in; else all that comes from the same nodes.
   */
  linesOf({ id, origins, kernels, statements }) {
    const named = this.segments.filter((each) => kernels.has(each.callee) || kernels.has(each.kernel));
    const isPart = (each) => each.statements && [...each.statements].every((one) => statements.has(one));
    // Lines of kernels are those of one compilation; nodes are those of the model.
    const exact =
      id === this.id && statements.size ? named.filter((each) => kernels.has(each.kernel) && isPart(each)) : [];
    if (exact.length) return linesIn([...exact, ...named.filter((each) => kernels.has(each.callee))]);
    const related = (named.length ? named : this.segments).filter((each) =>
      each.origins.some((one) => origins.has(one)),
    );
    const isWhole = (each) => each.kernel && each.origins.length === (this.known.get(each.kernel)?.origins.length ?? 0);
    const narrow = new Set(related.filter((each) => each.kernel && !isWhole(each)).map((each) => each.kernel));
    // Where blocks of a kernel are known, what belongs to the kernel as a whole says nothing of some of its nodes.
    return linesIn(
      related.filter(
        (each) => !isWhole(each) || !narrow.has(each.kernel) || each.origins.every((one) => origins.has(one)),
      ),
    );
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
      else return { ...segment, id: this.id };
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

/** Adds a segment, or its lines to the one before it where they say the same. */
function add(segments, { binding = null, callee = null, ...segment }) {
  const before = segments.at(-1);
  const same = (one, other) => one?.size === other?.size && [...(one ?? [])].every((each) => other.has(each));
  if (
    before?.end === segment.start &&
    before.kernel === segment.kernel &&
    same(before.statements, segment.statements)
  ) {
    const alike = before.origins.length === segment.origins.length;
    if (alike && before.origins.every((each, at) => each === segment.origins[at])) {
      before.end = segment.end;
      return;
    }
  }
  segments.push({ binding, callee, ...segment });
}

const range = (first, last) => new Set(Array.from({ length: last - first + 1 }, (_, at) => first + at));
const union = (lists) => [...new Set(lists.flat())].sort((one, other) => one - other);

function linesIn(segments) {
  const lines = new Set();
  for (const { start, end } of segments) for (let line = start; line < end; line += 1) lines.add(line);
  return lines;
}

const indent = (line) => line.search(/\S|$/);

/** The end of the lines that are indented deeper than a line. */
function blockEnd(lines, head, end) {
  let line = head + 1;
  while (line < end && indent(lines[line]) > indent(lines[head])) line += 1;
  return line;
}

/** The statements under the head of a loop or condition. */
function statementsInside(lines, head, madeOf) {
  if (!madeOf || !/^\s+(?:for|if|else|with|while)\b/.test(lines[head])) return null;
  return new Set(madeOf.slice(head, blockEnd(lines, head, lines.length)).filter((line) => line > 0));
}

/** The nodes that a line of a kernel's text comes from: those of its block, or of the kernel. */
function originsAt(entry, number) {
  const block = (entry.blocks ?? []).find((each) => each.first_line <= number && number <= each.last_line);
  return block?.origins ?? entry.origins ?? [];
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

/** The Listing of a step, once. */
export function listing(side, step) {
  const { id, steps } = compilationOf(side);
  return keep(`${id}/${stepKey(step)}`, async () => {
    if (step.inner !== undefined) {
      const passes = await innerPasses(id, step);
      return new Listing(passes[step.inner]?.text ?? "# This pass changed nothing.", "inner", [], { id });
    }
    const found = await snapshot(id, step);
    if (!isResult(step))
      return new Listing(found.text, step.stage, found.functions, { id, isLast: step.index === steps.at(-1).index });
    const last = await snapshot(id, steps.at(-1));
    return new Listing(found.text, step.stage, found.functions, { id, last: last.functions });
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
