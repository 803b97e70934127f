// Small tokenizers for TVMScript, LLVM IR, assembly and the virtual machine's bytecode. Each line stands for itself.

const rules = (...pairs) => ({
  pattern: new RegExp(pairs.map(([, source]) => `(${source})`).join("|"), "g"),
  kinds: pairs.map(([kind]) => kind),
});

const STRING = String.raw`"(?:[^"\\]|\\.)*"`;

const TVMSCRIPT = rules(
  ["comment", "#.*"],
  ["string", STRING],
  ["decorator", String.raw`@[\w.]+`],
  [
    "keyword",
    String.raw`\b(?:def|return|with|for|in|class|if|else|elif|while|from|import|as|and|or|not|True|False|None)\b`,
  ],
  ["function", String.raw`(?<=\bdef )\w+|\bcls\.\w+|metadata\["[^"]*"\]\[\d+\]`],
  [
    "type",
    String.raw`\bR\.(?:Tensor|Tuple|Shape|Prim|Object|Callable)\b|\bT\.(?:Buffer|handle|let|int\d+|float\d+|bool|uint\d+)\b`,
  ],
  ["operator", String.raw`\b[RTI]\.[\w.]+`],
  ["number", String.raw`(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?\b`],
);

const LLVM = rules(
  ["comment", ";.*|#dbg_\\w+.*"],
  ["string", `c?${STRING}`],
  ["function", String.raw`@[\w.$-]+|@"[^"]*"`],
  ["label", String.raw`^[\w.$-]+:`],
  ["variable", String.raw`%[\w.$-]+`],
  ["comment", String.raw`![\w.]+`],
  ["type", String.raw`\b(?:void|ptr|half|float|double|label|i\d+|<\d+ x \w+>)\b|<\d+ x [\w]+>`],
  [
    "keyword",
    String.raw`\b(?:define|declare|to|label|phi|br|ret|switch|unreachable|call|tail|invoke|fastcc|internal|dllexport|nonnull|align|nsw|nuw|inbounds|exact|fast|contract|reassoc|nnan|ninf|nsz)\b`,
  ],
  [
    "operator",
    String.raw`\b(?:alloca|load|store|getelementptr|bitcast|[sz]ext|f?ptrunc|fpext|trunc|[su]itofp|fpto[su]i|ptrtoint|inttoptr|[if]cmp|select|f?add|f?sub|f?mul|[usf]div|[usf]rem|fneg|shl|[al]shr|and|or|xor|shufflevector|extractelement|insertelement|extractvalue|insertvalue)\b`,
  ],
  ["number", String.raw`(?<![\w.%@])-?(?:0x[\dA-Fa-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?)\b`],
);

const ASSEMBLY = rules(
  ["label", String.raw`^[\w.$@]+:`],
  ["comment", String.raw`^\s+[\da-f]+:|#.*|<[^>]*>`],
  ["operator", String.raw`(?<=^\s+[\da-f]+:\s+)(?:(?:rep|repz|repnz|lock|data16|cs|notrack)\s+)*[a-z][\w.]*`],
  ["type", String.raw`\b(?:[XYZ]MMWORD|[BDQ]?WORD|BYTE) (?:PTR|BCST)\b|\{[^}]*\}`],
  [
    "variable",
    String.raw`\b(?:r(?:[abcd]x|[sd]i|[sb]p|ip|\d+[dwb]?)|e(?:[abcd]x|[sd]i|[sb]p)|[abcd][xlh]|[sd]il?|[sb]pl?|[xyz]mm\d+|k[0-7])\b`,
  ],
  ["number", String.raw`\b(?:0x[\da-f]+|\d+|[\da-f]+)\b`],
);

const BYTECODE = rules(
  ["function", String.raw`^@[\w.]+|vm\.builtin\.[\w.]+|(?<=call\s+)[\w.]+`],
  ["keyword", String.raw`\b(?:call|ret|goto|if|in|dst)\b`],
  ["variable", String.raw`%\w+`],
  ["type", String.raw`\bc\[\d+\]`],
  ["number", String.raw`\bi-?\d+\b`],
);

const LANGUAGES = { llvm: LLVM, asm: ASSEMBLY, vm: BYTECODE };

/** The tokens of one line as [start, end, kind], in order; what lies between has no kind. */
export function tokenize(line, stage) {
  const { pattern, kinds } = LANGUAGES[stage] ?? TVMSCRIPT;
  const found = [];
  for (const match of line.matchAll(pattern)) {
    if (match[0] === "") continue;
    const group = match.findIndex((text, index) => index > 0 && text !== undefined);
    found.push([match.index, match.index + match[0].length, kinds[group - 1]]);
  }
  return found;
}

/** The line as nodes: tokens in spans, and what lies in `marks` ([start, end, class] in order) in `mark`s. */
export function paint(line, stage, marks = []) {
  const nodes = [];
  let at = 0;
  const emit = (from, to, kind) => {
    while (from < to) {
      const mark = marks.find(([start, end]) => end > from && start < to);
      const stop = mark ? (mark[0] > from ? mark[0] : Math.min(mark[1], to)) : to;
      const inside = mark && mark[0] <= from;
      nodes.push(piece(line.slice(from, stop), kind, inside ? mark[2] : null));
      from = stop;
    }
  };
  for (const [start, end, kind] of tokenize(line, stage)) {
    if (start > at) emit(at, start, null);
    emit(Math.max(start, at), end, kind);
    at = Math.max(at, end);
  }
  emit(at, line.length, null);
  return nodes;
}

function piece(text, kind, mark) {
  if (!kind && !mark) return document.createTextNode(text);
  const element = document.createElement(mark ? "mark" : "span");
  element.className = [kind && `t-${kind}`, mark].filter(Boolean).join(" ");
  element.textContent = text;
  return element;
}
