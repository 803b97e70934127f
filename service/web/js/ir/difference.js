// What differs between two Listings: functions are paired by name, lines by content, words inside of changed lines.

const SHOWN_AROUND = 3;
const MOST_STEPS = 1500; // of Myers' search, before two hunks are taken as wholly different
const ALIKE_WITHIN = 24; // lines in which a changed line looks for the one that it became
const WORDS = /\w+|\s+|[^\w\s]/g;

/**
 * Rows for two views side by side, equally long: `left` and `right` are line numbers, or -1; `kinds` says "del", "add",
 * "chg" or nothing; `marks` of a row are [start, end, class] inside of its line.
 */
export function difference(left, right) {
  const rows = { left: [], right: [], leftKinds: [], rightKinds: [], leftMarks: new Map(), rightMarks: new Map() };
  const counts = { added: 0, removed: 0, changed: 0 };
  for (const [a, b] of pieces(left, right)) align(left, right, a, b, rows, counts);
  return { ...rows, ...counts };
}

/** Pairs of line ranges to compare: what lies before, between and after functions, and functions of one name. */
function pieces(left, right) {
  const names = new Map(right.functions.map((span, index) => [span.title, index]));
  const pairs = increasing(
    left.functions.map((span, index) => [index, names.get(span.title)]).filter(([, other]) => other !== undefined),
  );
  const found = [];
  let a = 0;
  let b = 0;
  for (const [one, other] of pairs) {
    const [first, second] = [left.functions[one], right.functions[other]];
    found.push(
      [
        [a, first.start],
        [b, second.start],
      ],
      [
        [first.start, first.end],
        [second.start, second.end],
      ],
    );
    [a, b] = [first.end, second.end];
  }
  found.push([
    [a, left.lines.length],
    [b, right.lines.length],
  ]);
  return found;
}

/** The longest subsequence of pairs whose second members increase, too. */
function increasing(pairs) {
  const tails = [];
  const before = new Array(pairs.length).fill(-1);
  pairs.forEach(([, value], index) => {
    let low = 0;
    let high = tails.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[tails[middle]][1] < value) low = middle + 1;
      else high = middle;
    }
    before[index] = low > 0 ? tails[low - 1] : -1;
    tails[low] = index;
  });
  const chosen = [];
  for (let index = tails.at(-1) ?? -1; index >= 0; index = before[index]) chosen.push(pairs[index]);
  return chosen.reverse();
}

function align(left, right, [a, aEnd], [b, bEnd], rows, counts) {
  while (a < aEnd && b < bEnd && left.lines[a] === right.lines[b]) put(rows, a++, b++, "");
  let tail = 0;
  while (aEnd - tail > a && bEnd - tail > b && left.lines[aEnd - tail - 1] === right.lines[bEnd - tail - 1]) tail += 1;
  const [ones, others] = [left.lines.slice(a, aEnd - tail), right.lines.slice(b, bEnd - tail)];
  for (const hunk of hunks(ones, others)) {
    if (hunk.same) for (let at = 0; at < hunk.same; at += 1) put(rows, a + hunk.a + at, b + hunk.b + at, "");
    else replace(left, right, a + hunk.a, hunk.removed, b + hunk.b, hunk.added, rows, counts);
  }
  for (let at = tail; at > 0; at -= 1) put(rows, aEnd - at, bEnd - at, "");
}

function put(rows, a, b, kind) {
  rows.left.push(a);
  rows.right.push(b);
  rows.leftKinds.push(kind === "" ? "" : a < 0 ? "none" : kind);
  rows.rightKinds.push(kind === "" ? "" : b < 0 ? "none" : kind);
}

/** Runs of equal lines, and of removed and added ones, in order. */
function hunks(ones, others) {
  const anchors = increasing(uniqueMatches(ones, others));
  const found = [];
  let a = 0;
  let b = 0;
  for (const [one, other] of [...anchors, [ones.length, others.length]]) {
    if (one < a || other < b) continue;
    found.push(...myers(ones, others, a, one, b, other));
    if (one < ones.length) found.push({ same: 1, a: one, b: other });
    [a, b] = [one + 1, other + 1];
  }
  return joined(found);
}

function joined(found) {
  const result = [];
  for (const hunk of found) {
    const last = result.at(-1);
    if (last && !last.same && !hunk.same) {
      last.removed += hunk.removed;
      last.added += hunk.added;
    } else {
      result.push({ ...hunk });
    }
  }
  return result;
}

/** Lines that are once on each side. */
function uniqueMatches(ones, others) {
  const places = (lines) => {
    const found = new Map();
    lines.forEach((line, at) => found.set(line, found.has(line) ? -1 : at));
    return found;
  };
  const there = places(others);
  return [...places(ones)]
    .filter(([line, at]) => at >= 0 && (there.get(line) ?? -1) >= 0)
    .map(([line, at]) => [at, there.get(line)]);
}

/** Myers' greedy search between two ranges; one hunk for all where they differ in too much. */
function myers(ones, others, a, aEnd, b, bEnd) {
  const [n, m] = [aEnd - a, bEnd - b];
  if (n === 0 && m === 0) return [];
  if (n === 0 || m === 0) return [{ a, b, removed: n, added: m }];
  const most = Math.min(n + m, MOST_STEPS);
  const reach = new Int32Array(2 * most + 3);
  const trace = [];
  for (let depth = 0; depth <= most; depth += 1) {
    trace.push(reach.slice(most + 1 - depth - 1, most + 1 + depth + 2));
    for (let k = -depth; k <= depth; k += 2) {
      const down = k === -depth || (k !== depth && reach[most + k] < reach[most + k + 2]);
      let x = down ? reach[most + k + 2] : reach[most + k] + 1;
      let y = x - k;
      while (x < n && y < m && ones[a + x] === others[b + y]) [x, y] = [x + 1, y + 1];
      reach[most + k + 1] = x;
      if (x >= n && y >= m) return backtrack(trace, depth, k, n, a, b);
    }
  }
  return [{ a, b, removed: n, added: m }];
}

function backtrack(trace, depth, k, n, a, b) {
  const found = [];
  let x = n;
  for (let d = depth; d >= 0; d -= 1) {
    const reach = (diagonal) => trace[d][diagonal + d + 1];
    const down = k === -d || (k !== d && reach(k - 1) < reach(k + 1));
    const before = d === 0 ? 0 : down ? k + 1 : k - 1;
    const startX = d === 0 ? 0 : reach(before);
    const startY = startX - before;
    const edited = d === 0 ? [0, 0] : down ? [startX, startY + 1] : [startX + 1, startY];
    if (x > edited[0]) found.push({ same: x - edited[0], a: a + edited[0], b: b + edited[1] });
    if (d > 0) found.push({ a: a + startX, b: b + startY, removed: down ? 0 : 1, added: down ? 1 : 0 });
    [x, k] = [startX, before];
  }
  return found.reverse();
}

/** Removed and added lines: those that resemble each other stand side by side with their words compared. */
function replace(left, right, a, removed, b, added, rows, counts) {
  let other = 0;
  for (let one = 0; one < removed; one += 1) {
    const match = mostAlike(left.lines[a + one], right.lines, b + other, b + Math.min(added, other + ALIKE_WITHIN));
    if (match < 0) {
      put(rows, a + one, -1, "del");
      counts.removed += 1;
      continue;
    }
    for (; b + other < match; other += 1, counts.added += 1) put(rows, -1, b + other, "add");
    const row = rows.left.length;
    put(rows, a + one, match, "chg");
    const [ours, theirs] = changedWords(left.lines[a + one], right.lines[match]);
    rows.leftMarks.set(row, ours);
    rows.rightMarks.set(row, theirs);
    counts.changed += 1;
    other += 1;
  }
  for (; other < added; other += 1, counts.added += 1) put(rows, -1, b + other, "add");
}

function mostAlike(line, lines, from, to) {
  const words = new Set(line.match(/\w+/g));
  if (words.size === 0) return -1;
  let best = -1;
  let most = 0.55;
  for (let at = from; at < to; at += 1) {
    const others = new Set(lines[at].match(/\w+/g));
    let shared = 0;
    for (const word of words) if (others.has(word)) shared += 1;
    const likeness = (2 * shared) / (words.size + others.size) - (at - from) * 0.005;
    if (likeness > most) [best, most] = [at, likeness];
  }
  return best;
}

function changedWords(one, other) {
  const [ones, others] = [one.match(WORDS) ?? [], other.match(WORDS) ?? []];
  const [left, right] = [[], []];
  let [x, y] = [0, 0];
  for (const hunk of joined(myers(ones, others, 0, ones.length, 0, others.length))) {
    if (hunk.same) {
      x += length(ones, hunk.a, hunk.same);
      y += length(others, hunk.b, hunk.same);
      continue;
    }
    const [out, into] = [length(ones, hunk.a, hunk.removed), length(others, hunk.b, hunk.added)];
    if (out) left.push([x, x + out, "gone"]);
    if (into) right.push([y, y + into, "come"]);
    [x, y] = [x + out, y + into];
  }
  return [left, right];
}

const length = (words, from, howMany) => words.slice(from, from + howMany).reduce((sum, word) => sum + word.length, 0);

/** The rows with long runs of equal ones taken together; `open` has the rows whose run is shown. */
export function condensed({ left, right, leftKinds, rightKinds, leftMarks, rightMarks }, open) {
  const result = {
    left: [],
    right: [],
    leftKinds: [],
    rightKinds: [],
    leftMarks: new Map(),
    rightMarks: new Map(),
    gaps: new Map(),
  };
  const keep = (row) => {
    const at = result.left.length;
    if (leftMarks.has(row)) result.leftMarks.set(at, leftMarks.get(row));
    if (rightMarks.has(row)) result.rightMarks.set(at, rightMarks.get(row));
    result.left.push(left[row]);
    result.right.push(right[row]);
    result.leftKinds.push(leftKinds[row]);
    result.rightKinds.push(rightKinds[row]);
  };
  let row = 0;
  while (row < left.length) {
    let end = row;
    while (end < left.length && leftKinds[end] === "" && rightKinds[end] === "") end += 1;
    const [from, to] = [row === 0 ? 0 : row + SHOWN_AROUND, end === left.length ? end : end - SHOWN_AROUND];
    if (end > row && to - from > 3 && !open.has(row)) {
      for (let at = row; at < from; at += 1) keep(at);
      result.gaps.set(result.left.length, row);
      for (const side of [result.left, result.right]) side.push(-2 - (to - from));
      for (const side of [result.leftKinds, result.rightKinds]) side.push("");
      for (let at = to; at < end; at += 1) keep(at);
    } else {
      for (let at = row; at < end; at += 1) keep(at);
    }
    for (row = end; row < left.length && (leftKinds[row] !== "" || rightKinds[row] !== ""); row += 1) keep(row);
  }
  return { ...result, left: Int32Array.from(result.left), right: Int32Array.from(result.right) };
}
