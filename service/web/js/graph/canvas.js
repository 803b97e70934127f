// The drawing of a laid out graph: only what is in sight, with less detail from afar. Pan, zoom, click.

import { colour, onTheme } from "../colours.js";
import { everyFrame, h } from "../dom.js";

const READABLE = 0.45;
const SMALLEST = 0.02;
const LARGEST = 3;

export class GraphCanvas {
  /** `fillOf(box)` gives {fill, text, sign} for a box; `onPick(box)` and `onToggle(box)` get boxes. */
  constructor({ label, fillOf, onPick, onToggle }) {
    this.element = h("canvas", { class: "graph-canvas", tabindex: 0, role: "img", "aria-label": label });
    Object.assign(this, { fillOf, onPick, onToggle });
    this.graph = { boxes: [], edges: [], width: 0, height: 0 };
    this.view = { x: 0, y: 0, scale: 1 };
    this.lit = () => false;
    this.draw = everyFrame(() => this.#draw());
    this.#listen();
    onTheme(this.draw);
    new ResizeObserver(() => {
      if (!this.fitted && this.graph.boxes.length) this.fit();
      this.draw();
    }).observe(this.element);
  }

  show(graph) {
    this.graph = graph;
    this.fitted = this.fitted && graph.boxes.length > 0;
    if (!this.fitted) this.fit();
    this.draw();
  }

  /** The whole graph, or its top where the whole would be too small to read. */
  fit() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !this.graph.width) return;
    const scale = Math.min(
      1,
      Math.max(READABLE + 0.2, Math.min(width / (this.graph.width + 40), height / (this.graph.height + 40))),
    );
    this.view = { scale, x: (width - this.graph.width * scale) / 2, y: 16 };
    this.fitted = true;
    this.draw();
  }

  whole() {
    const { clientWidth: width, clientHeight: height } = this.element;
    const scale = Math.max(SMALLEST, Math.min(1, width / (this.graph.width + 40), height / (this.graph.height + 40)));
    this.view = { scale, x: (width - this.graph.width * scale) / 2, y: (height - this.graph.height * scale) / 2 };
    this.draw();
  }

  centre(box) {
    const { clientWidth: width, clientHeight: height } = this.element;
    const scale = Math.max(this.view.scale, READABLE + 0.15);
    this.view = { scale, x: width / 2 - (box.x + box.width / 2) * scale, y: height / 3 - box.y * scale };
    this.draw();
  }

  zoom(factor, x = this.element.clientWidth / 2, y = this.element.clientHeight / 2) {
    const scale = Math.max(SMALLEST, Math.min(LARGEST, this.view.scale * factor));
    const by = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * by, y: y - (y - this.view.y) * by };
    this.draw();
  }

  #listen() {
    const { element } = this;
    element.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        if (event.ctrlKey || event.metaKey || Math.abs(event.deltaY) > 40)
          this.zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
        else this.#pan(-event.deltaX, -event.deltaY);
      },
      { passive: false },
    );
    let last = null;
    let moved = 0;
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      last = [event.clientX, event.clientY];
      moved = 0;
    });
    element.addEventListener("pointermove", (event) => {
      if (!last) {
        element.style.cursor = this.#boxAt(event) ? "pointer" : "grab";
        return;
      }
      const [x, y] = [event.clientX - last[0], event.clientY - last[1]];
      moved += Math.abs(x) + Math.abs(y);
      last = [event.clientX, event.clientY];
      this.#pan(x, y);
    });
    element.addEventListener("pointerup", (event) => {
      last = null;
      if (moved > 4) return;
      const box = this.#boxAt(event);
      if (box?.children) this.onToggle(box);
      else this.onPick(box);
    });
    element.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (event.key in moves) this.#pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.whole();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #pan(x, y) {
    this.view = { ...this.view, x: this.view.x + x, y: this.view.y + y };
    this.draw();
  }

  #boxAt(event) {
    const { x, y, scale } = this.view;
    const [px, py] = [(event.offsetX - x) / scale, (event.offsetY - y) / scale];
    const inside = (box) =>
      px >= box.x && px <= box.x + box.width && py >= box.y && py <= box.y + (box.isOpen ? 20 : box.height);
    return this.graph.boxes.findLast((box) => box.key !== "" && inside(box)) ?? null;
  }

  #draw() {
    const { element, view } = this;
    const dots = window.devicePixelRatio || 1;
    const [width, height] = [element.clientWidth, element.clientHeight];
    if (!width || !height) return;
    if (element.width !== width * dots || element.height !== height * dots)
      Object.assign(element, { width: width * dots, height: height * dots });
    const pen = element.getContext("2d");
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.translate(view.x, view.y);
    pen.scale(view.scale, view.scale);
    const sight = {
      left: -view.x / view.scale,
      top: -view.y / view.scale,
      right: (width - view.x) / view.scale,
      bottom: (height - view.y) / view.scale,
    };
    const inSight = (box) =>
      box.x < sight.right && box.x + box.width > sight.left && box.y < sight.bottom && box.y + box.height > sight.top;
    const seen = this.graph.boxes.filter((box) => box.key !== "" && inSight(box));
    for (const box of seen) if (box.isOpen) this.#group(pen, box);
    this.#edges(pen, sight);
    for (const box of seen) if (!box.isOpen) this.#node(pen, box);
  }

  #group(pen, box) {
    pen.fillStyle = colour(box.depth % 2 ? "--sunk" : "--graph-inner");
    pen.strokeStyle = colour("--edge");
    pen.lineWidth = 1 / this.view.scale;
    outline(pen, box, 6);
    pen.fill();
    pen.stroke();
    if (this.view.scale < READABLE / 2) return;
    pen.fillStyle = colour("--muted");
    pen.font = "600 11px system-ui, sans-serif";
    pen.fillText(`− ${box.label}`, box.x + 8, box.y + 15);
  }

  #edges(pen, sight) {
    pen.lineWidth = Math.max(1, 0.6 / this.view.scale);
    for (const strong of [false, true]) {
      pen.strokeStyle = colour(strong ? "--lit-edge" : "--graph-edge");
      pen.beginPath();
      for (const { from, to } of this.graph.edges) {
        if ((this.lit(from) && this.lit(to)) !== strong) continue;
        const [x1, y1, x2, y2] = [from.x + from.width / 2, from.y + from.height, to.x + to.width / 2, to.y];
        if (
          Math.max(y1, y2) < sight.top ||
          Math.min(y1, y2) > sight.bottom ||
          Math.max(x1, x2) < sight.left ||
          Math.min(x1, x2) > sight.right
        )
          continue;
        const bend = Math.min(60, Math.abs(y2 - y1) / 2 + 6);
        pen.moveTo(x1, y1);
        pen.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
      }
      pen.stroke();
    }
  }

  #node(pen, box) {
    const { fill, text, sign, note } = this.fillOf(box);
    const lit = this.lit(box);
    pen.fillStyle = colour(fill);
    pen.strokeStyle = colour(lit ? "--lit-edge" : box === this.chosen ? "--accent" : "--edge");
    pen.lineWidth = (lit || box === this.chosen ? 2.5 : 1) / Math.min(1, this.view.scale);
    if (this.view.scale < READABLE / 2) {
      pen.fillRect(box.x, box.y, box.width, box.height);
      if (lit) pen.strokeRect(box.x, box.y, box.width, box.height);
      return;
    }
    outline(pen, box, box.children ? 6 : 4);
    pen.fill();
    pen.stroke();
    if (this.view.scale < READABLE) return;
    pen.fillStyle = colour(text);
    pen.font = "600 11px ui-monospace, monospace";
    const title = box.children ? `+ ${box.label}` : box.title;
    pen.fillText(clipped(title, box.width - (sign ? 24 : 12)), box.x + 7, box.y + 14);
    pen.font = "10px ui-monospace, monospace";
    pen.globalAlpha = 0.85;
    pen.fillText(
      clipped(note ?? (box.children ? `${box.count} nodes` : box.subtitle), box.width - 12),
      box.x + 7,
      box.y + 27,
    );
    pen.globalAlpha = 1;
    if (sign) pen.fillText(sign, box.x + box.width - 14, box.y + 14);
  }
}

const clipped = (text, width) =>
  text.length * 6.7 > width ? `${text.slice(0, Math.max(1, Math.floor(width / 6.7) - 1))}…` : text;

function outline(pen, box, radius) {
  pen.beginPath();
  pen.roundRect(box.x, box.y, box.width, box.height, radius);
}
