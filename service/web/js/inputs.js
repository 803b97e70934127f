// One input of a model: numbers, drawn at random, from an image, by hand, or from an .npy file.

import { button, field, fill, h } from "./dom.js";
import { shape as shapeText } from "./format.js";
import { nested, readNpy } from "./npy.js";

const SHOWN = 4096;

/** Height and width of an input that may be an image, and how its values are laid out; null where it may not. */
export function imageShape(spec) {
  if (!/^float|^uint8/.test(spec.dtype)) return null;
  const sizes = spec.shape.slice(1).map((size) => (typeof size === "number" ? size : null));
  if (sizes.includes(null) || sizes.length === 0) return null;
  if (sizes.length === 1) {
    const side = Math.sqrt(sizes[0]);
    return Number.isInteger(side) && side >= 8 && side <= 64
      ? { height: side, width: side, channels: 1, last: false }
      : null;
  }
  if (sizes.length === 2)
    return sizes.every((size) => size >= 8) ? { height: sizes[0], width: sizes[1], channels: 1, last: false } : null;
  if (sizes.length !== 3) return null;
  if ([1, 3].includes(sizes[0]) && sizes[1] >= 8 && sizes[2] >= 8)
    return { height: sizes[1], width: sizes[2], channels: sizes[0], last: false };
  if ([1, 3].includes(sizes[2]) && sizes[0] >= 8 && sizes[1] >= 8)
    return { height: sizes[0], width: sizes[1], channels: sizes[2], last: true };
  return null;
}

export class InputForm {
  /** `recorded` is the model's own example of this input, which PyTorch's answer is known for. */
  constructor(spec, sizes, onChange, recorded) {
    Object.assign(this, { spec, sizes, onChange, recorded });
    this.image = imageShape(spec);
    this.mode = this.image ? "draw" : recorded === undefined ? "random" : "recorded";
    this.seed = 1;
    this.area = h("div", { class: "input-area" });
    this.error = h("p", { class: "state-failed", role: "alert" });
    const modes = [
      ...(recorded === undefined ? [] : [["recorded", "recorded example"]]),
      ["random", "random"],
      ["numbers", "numbers"],
      ...(this.image
        ? [
            ["draw", "draw"],
            ["image", "image file"],
          ]
        : []),
      ["npy", ".npy file"],
    ];
    const choose = (event) => {
      this.mode = event.target.value;
      this.#show();
    };
    this.element = h(
      "fieldset",
      { class: "input-form" },
      h("legend", null, h("b", null, spec.name), " ", h("code", { class: "muted" }, shapeText(spec))),
      field(
        "From",
        h(
          "select",
          { onChange: choose },
          modes.map(([value, label]) => h("option", { value, selected: value === this.mode }, label)),
        ),
      ),
      this.area,
      this.error,
    );
    this.#show();
  }

  get shape() {
    return this.spec.shape.map((size) => (typeof size === "number" ? size : (this.sizes[size] ?? 1)));
  }

  get isRecorded() {
    return this.mode === "recorded";
  }

  #set(values, shape = this.shape) {
    this.error.textContent = "";
    this.value = nested(values, shape);
    this.onChange();
  }

  #fail(error) {
    this.value = undefined;
    this.error.textContent = error.message;
    this.onChange();
  }

  #show() {
    this.error.textContent = "";
    const show = {
      recorded: () => this.#recorded(),
      random: () => this.#random(),
      numbers: () => this.#numbers(),
      draw: () => this.#draw(),
      image: () => this.#file("image/*", (file) => this.#fromImage(file)),
      npy: () => this.#file(".npy", (file) => this.#fromNpy(file)),
    };
    show[this.mode]();
  }

  /** Called when a symbol has another size. */
  resize() {
    if (this.mode === "random") this.#fillRandom();
    else if (this.pixels) this.#setPixels();
  }

  #recorded() {
    fill(
      this.area,
      h("p", { class: "muted" }, "The example that came with the model, whose answer PyTorch has given."),
    );
    this.value = this.recorded;
    this.onChange();
  }

  #random() {
    fill(
      this.area,
      field(
        "seed",
        h("input", {
          type: "number",
          min: 0,
          value: this.seed,
          onChange: (event) => {
            this.seed = Number(event.target.value);
            this.#fillRandom();
          },
        }),
        /^int/.test(this.spec.dtype) ? "integers from 0 to 31" : "from the normal distribution",
      ),
    );
    this.#fillRandom();
  }

  #fillRandom() {
    const next = random(this.seed);
    const count = this.shape.reduce((product, size) => product * size, 1);
    const draw = {
      int: () => Math.floor(next() * 32),
      bool: () => next() < 0.5,
      float: () => Math.fround(Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next())),
    };
    const kind = /^u?int/.test(this.spec.dtype) ? "int" : this.spec.dtype === "bool" ? "bool" : "float";
    this.#set(Array.from({ length: count }, draw[kind]));
  }

  #numbers() {
    const text = JSON.stringify(
      this.value ?? nested(new Array(this.shape.reduce((product, size) => product * size, 1)).fill(0), this.shape),
    );
    const area = h("textarea", {
      rows: 5,
      "aria-label": `Values of ${this.spec.name} as JSON`,
      spellcheck: "false",
      value: text.length > SHOWN * 8 ? "" : text,
    });
    const read = () => {
      try {
        this.error.textContent = "";
        this.value = JSON.parse(area.value);
        this.onChange();
      } catch (error) {
        this.#fail(new Error(`This is no JSON: ${error.message}`));
      }
    };
    area.addEventListener("input", read);
    fill(this.area, area);
    read();
  }

  #file(accept, read) {
    const input = h("input", {
      type: "file",
      accept,
      "aria-label": `File for ${this.spec.name}`,
      onChange: () => input.files[0] && read(input.files[0]),
    });
    const zone = h("div", { class: "drop small" }, "Drop it here, or ", input);
    zone.addEventListener("dragover", (event) => event.preventDefault());
    zone.addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
    });
    this.preview = h("div");
    fill(this.area, zone, this.preview);
    this.value = undefined;
    this.onChange();
  }

  async #fromNpy(file) {
    try {
      const { shape, values } = readNpy(await file.arrayBuffer());
      fill(this.preview, h("p", { class: "muted" }, `${file.name}: [${shape.join(", ")}]`));
      this.#set(values, shape);
    } catch (error) {
      this.#fail(error);
    }
  }

  async #fromImage(file) {
    const { width, height } = this.image;
    try {
      const bitmap = await createImageBitmap(file);
      const canvas = h("canvas", { width, height, class: "preview" });
      canvas.getContext("2d").drawImage(bitmap, 0, 0, width, height);
      fill(this.preview, canvas, h("p", { class: "muted" }, `scaled to ${width} × ${height}, values from 0 to 1`));
      this.pixels = () => canvas.getContext("2d").getImageData(0, 0, width, height).data;
      this.#setPixels();
    } catch {
      this.#fail(new Error("The browser cannot read this as an image."));
    }
  }

  #setPixels() {
    const { width, height, channels, last } = this.image;
    const data = this.pixels();
    const scale = this.spec.dtype === "uint8" ? 1 : 1 / 255;
    const one = [];
    const value = (pixel, channel) =>
      (channels === 1 ? (data[pixel] + data[pixel + 1] + data[pixel + 2]) / 3 : data[pixel + channel]) * scale;
    for (let at = 0; at < width * height * channels; at += 1) {
      const [pixel, channel] = last
        ? [Math.floor(at / channels), at % channels]
        : [at % (width * height), Math.floor(at / (width * height))];
      one.push(
        this.spec.dtype === "uint8"
          ? Math.round(value(pixel * 4, channel))
          : Number(value(pixel * 4, channel).toFixed(4)),
      );
    }
    const [batch] = this.shape;
    this.#set(Array.from({ length: batch }, () => one).flat());
  }

  #draw() {
    const { width, height } = this.image;
    const side = 168;
    const pad = h("canvas", {
      width: side,
      height: Math.round((side * height) / width),
      class: "pad",
      role: "img",
      "aria-label": "Draw with the pointer; choose numbers or a file to do without",
    });
    const pen = pad.getContext("2d", { willReadFrequently: true });
    const small = h("canvas", { width, height });
    const clear = () => {
      pen.fillStyle = "#000";
      pen.fillRect(0, 0, pad.width, pad.height);
    };
    clear();
    Object.assign(pen, { strokeStyle: "#fff", lineWidth: side / 9, lineCap: "round", lineJoin: "round" });
    this.pixels = () => {
      const shrunk = small.getContext("2d", { willReadFrequently: true });
      shrunk.imageSmoothingQuality = "high";
      shrunk.drawImage(pad, 0, 0, width, height);
      return shrunk.getImageData(0, 0, width, height).data;
    };
    let drawing = false;
    const move = (event) => {
      if (!drawing) return;
      pen.lineTo(event.offsetX, event.offsetY);
      pen.stroke();
    };
    pad.addEventListener("pointerdown", (event) => {
      drawing = true;
      pad.setPointerCapture(event.pointerId);
      pen.beginPath();
      pen.moveTo(event.offsetX, event.offsetY);
      move(event);
    });
    pad.addEventListener("pointermove", move);
    pad.addEventListener("pointerup", () => {
      drawing = false;
      this.#setPixels();
    });
    const seven = () => {
      clear();
      pen.beginPath();
      pen.moveTo(side * 0.28, side * 0.2);
      pen.lineTo(side * 0.72, side * 0.2);
      pen.lineTo(side * 0.45, side * 0.85);
      pen.stroke();
      this.#setPixels();
    };
    fill(
      this.area,
      pad,
      h(
        "div",
        { class: "pad-tools" },
        button("Clear", () => {
          clear();
          this.#setPixels();
        }),
        button("A seven", seven),
      ),
    );
    seven();
  }
}

/** Numbers from 0 to 1 that are the same for the same seed (mulberry32). */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
