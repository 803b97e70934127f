// Where the nodes of a graph go: layers from top to bottom, modules as boxes in boxes, each laid out by itself.

const GAP_X = 14;
const GAP_Y = 26;
const PADDING = 12;
const TITLE = 20;
const NODE_HEIGHT = 34;
const SWEEPS = 3;

/**
 * @typedef {{id: string, op: string, name: string, path: string[], inputs: string[]}} Node
 * @typedef {{key: string, node: Node|null, children: Box[]|null, label: string, count: number, order: number,
 *   x: number, y: number, width: number, height: number, depth: number}} Box `x` and `y` in the whole graph
 */

/** The tree of modules over nodes: groups have `children`, leaves a `node`. */
export function tree(nodes) {
  const root = { key: "", label: "", node: null, children: [], count: 0, order: 0, depth: 0 };
  const groups = new Map([["", root]]);
  const group = (path) => {
    const key = path.join(".");
    if (!groups.has(key)) {
      const made = { key, label: path.at(-1), node: null, children: [], count: 0, order: Infinity, depth: path.length };
      groups.set(key, made);
      group(path.slice(0, -1)).children.push(made);
    }
    return groups.get(key);
  };
  nodes.forEach((node, order) => {
    const parent = group(node.path);
    parent.children.push({
      key: `node:${node.id}`,
      label: node.name,
      node,
      children: null,
      count: 1,
      order,
      depth: node.path.length + 1,
    });
    for (let length = 0; length <= node.path.length; length += 1) {
      const above = groups.get(node.path.slice(0, length).join("."));
      above.count += 1;
      above.order = Math.min(above.order, order);
    }
  });
  return { root, groups };
}

/** Lays out what `open` (keys of groups) shows. Answers the boxes, parents first, and the edges between leaves and closed groups. */
export function layout({ root }, open, widthOf) {
  const shownAs = new Map();
  const edges = new Map();
  collect(root, open, shownAs, null);
  const parents = new Map();
  index(root, null, parents);
  for (const [id, box] of shownAs) {
    for (const input of box.node?.inputs ?? nodeInputs(box, id)) link(edges, shownAs.get(input), shownAs.get(id));
  }
  // Inside of closed groups: what their nodes read from outside.
  place(root, open, [...edges.values()], parents, widthOf);
  const boxes = [];
  settle(root, open, 0, 0, boxes);
  return { boxes, edges: [...edges.values()], width: root.width, height: root.height };
}

function nodeInputs(box, id) {
  return box.members.get(id) ?? [];
}

function collect(box, open, shownAs, closed) {
  if (box.node) {
    if (closed) closed.members.set(box.node.id, box.node.inputs);
    shownAs.set(box.node.id, closed ?? box);
    return;
  }
  const here = closed ?? (box.key === "" || open.has(box.key) ? null : box);
  if (here === box) box.members = new Map();
  for (const child of box.children) collect(child, open, shownAs, here);
}

function index(box, parent, parents) {
  parents.set(box, parent);
  for (const child of box.children ?? []) index(child, box, parents);
}

function link(edges, from, to) {
  if (!from || from === to) return;
  const key = `${from.key}>${to.key}`;
  if (!edges.has(key)) edges.set(key, { from, to });
}

const isOpen = (box, open) => box.children !== null && (box.key === "" || open.has(box.key));

/** Sizes of all boxes and their places inside of their parents. */
function place(root, open, edges, parents, widthOf) {
  const inside = new Map();
  for (const edge of edges) {
    const [from, to] = lifted(edge, parents);
    const parent = parents.get(from);
    if (!inside.has(parent)) inside.set(parent, []);
    inside.get(parent).push([from, to]);
  }
  const size = (box) => {
    if (!isOpen(box, open)) {
      box.width = widthOf(box);
      box.height = NODE_HEIGHT;
      return;
    }
    for (const child of box.children) size(child);
    layers(box, inside.get(box) ?? []);
  };
  size(root);
}

/** The ends of an edge as children of the innermost box that has both. */
function lifted({ from, to }, parents) {
  const above = new Map();
  for (let box = from; parents.get(box); box = parents.get(box)) above.set(parents.get(box), box);
  let box = to;
  while (!above.has(parents.get(box))) box = parents.get(box);
  return [above.get(parents.get(box)), box];
}

function layers(box, edges) {
  const items = [...box.children].sort((one, other) => one.order - other.order);
  const before = new Map(items.map((item) => [item, []]));
  const after = new Map(items.map((item) => [item, []]));
  for (const [from, to] of edges) {
    // Groups may read each other in a circle; what comes first in the program stays above.
    if (from === to || from.order > to.order) continue;
    before.get(to).push(from);
    after.get(from).push(to);
  }
  const rank = new Map();
  for (const item of items) rank.set(item, Math.max(-1, ...before.get(item).map((other) => rank.get(other))) + 1);
  // What nothing feeds, such as a constant of one use, goes right above its first reader.
  for (const item of items) {
    if (before.get(item).length === 0 && after.get(item).length > 0)
      rank.set(item, Math.min(...after.get(item).map((other) => rank.get(other))) - 1);
  }
  const lowest = Math.min(0, ...rank.values());
  const rows = [];
  for (const item of items) (rows[rank.get(item) - lowest] ??= []).push(item);
  const filled = rows.filter(Boolean);
  order(filled, before, after);
  coordinates(box, filled, before, after);
}

function order(rows, before, after) {
  const at = new Map();
  const number = (row) => row.forEach((item, index) => at.set(item, index - row.length / 2));
  rows.forEach(number);
  const mean = (others, own) =>
    others.length ? others.reduce((sum, other) => sum + at.get(other), 0) / others.length : own;
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      if (row.length < 2) continue;
      const wish = new Map(row.map((item) => [item, mean((down ? before : after).get(item), at.get(item))]));
      row.sort((one, other) => wish.get(one) - wish.get(other));
      number(row);
    }
  }
}

function coordinates(box, rows, before, after) {
  const centre = new Map();
  const wish = (item, sides) => {
    const others = sides.filter((other) => centre.has(other));
    return others.length ? others.reduce((sum, other) => sum + centre.get(other), 0) / others.length : null;
  };
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      const wishes = row.map((item) => wish(item, (down ? before : after).get(item)) ?? centre.get(item) ?? null);
      spread(row, wishes, centre);
    }
  }
  let left = Infinity;
  let right = -Infinity;
  for (const [item, x] of centre) {
    left = Math.min(left, x - item.width / 2);
    right = Math.max(right, x + item.width / 2);
  }
  let y = box.key === "" ? 0 : TITLE;
  for (const row of rows) {
    const tallest = Math.max(...row.map((item) => item.height));
    for (const item of row) {
      item.localX = centre.get(item) - item.width / 2 - left + PADDING;
      item.localY = y + PADDING + (tallest - item.height) / 2;
    }
    y += tallest + GAP_Y;
  }
  box.width = Math.max(right - left + 2 * PADDING, box.label.length * 7 + 40);
  box.height = y - GAP_Y + 2 * PADDING;
}

/** Puts a row where it wishes to be as far as its order and widths allow. */
function spread(row, wishes, centre) {
  const total = row.reduce((sum, item) => sum + item.width + GAP_X, -GAP_X);
  let cursor = -Infinity;
  let shift = 0;
  let weight = 0;
  const placed = row.map((item, at) => {
    const half = item.width / 2;
    const lowest = cursor === -Infinity ? (wishes[at] ?? -total / 2 + half) : cursor + GAP_X + half;
    const x = Math.max(lowest, wishes[at] ?? lowest);
    cursor = x + half;
    if (wishes[at] !== null) {
      shift += wishes[at] - x;
      weight += 1;
    }
    return x;
  });
  const by = weight ? shift / weight : 0;
  row.forEach((item, at) => centre.set(item, placed[at] + by));
}

function settle(box, open, x, y, boxes) {
  box.x = x;
  box.y = y;
  box.isOpen = isOpen(box, open);
  boxes.push(box);
  if (!box.isOpen) return;
  for (const child of box.children) settle(child, open, x + child.localX, y + child.localY, boxes);
}
