// Forms from JSON Schemas: one field an option, with its description, default and limits.

import { field, h } from "./dom.js";

/** The fields for a pass's options. `onChange(options)` gets what differs from the defaults. */
export function optionsForm(schema, options, onChange) {
  const values = { ...options };
  const set = (name, value, fallback) => {
    if (value === undefined || JSON.stringify(value) === JSON.stringify(fallback)) delete values[name];
    else values[name] = value;
    onChange({ ...values });
  };
  const entries = Object.entries(schema.properties ?? {});
  if (entries.length === 0) return h("p", { class: "muted" }, "This pass has no options.");
  return h(
    "div",
    { class: "options" },
    entries.map(([name, part]) => {
      const value = values[name] ?? part.default;
      return field(
        name,
        control(part, value, (next) => set(name, next, part.default)),
        help(part),
      );
    }),
  );
}

function help(schema) {
  const limits = [];
  if (schema.minimum !== undefined && schema.maximum !== undefined)
    limits.push(`${schema.minimum} to ${schema.maximum}`);
  if (schema.default !== undefined && typeof schema.default !== "object") limits.push(`default ${schema.default}`);
  return [schema.description, limits.length && `(${limits.join(", ")})`].filter(Boolean).join(" ");
}

function control(schema, value, onChange) {
  if (schema.enum)
    return h(
      "select",
      { onChange: (event) => onChange(JSON.parse(event.target.value)) },
      schema.enum.map((choice) =>
        h("option", { value: JSON.stringify(choice), selected: choice === value }, String(choice)),
      ),
    );
  if (schema.type === "boolean")
    return h("input", {
      type: "checkbox",
      checked: Boolean(value),
      onChange: (event) => onChange(event.target.checked),
    });
  if (schema.type === "integer" || schema.type === "number") return number(schema, value, onChange);
  if (schema.type === "string")
    return h("input", {
      type: "text",
      value: value ?? "",
      maxlength: schema.maxLength,
      onChange: (event) => onChange(event.target.value),
    });
  if (schema.type === "array" && schema.items?.type === "string") return words(value, onChange);
  return json(value, onChange);
}

function number(schema, value, onChange) {
  const input = h("input", {
    type: "number",
    min: schema.minimum,
    max: schema.maximum,
    step: schema.type === "integer" ? 1 : "any",
    value: value ?? "",
  });
  input.addEventListener("change", () => {
    if (input.reportValidity()) onChange(input.value === "" ? undefined : Number(input.value));
  });
  return input;
}

function words(value, onChange) {
  const split = (text) => text.split(/[\s,→>]+/).filter(Boolean);
  return h("input", {
    type: "text",
    spellcheck: "false",
    placeholder: "matmul, add, relu",
    value: (value ?? []).join(", "),
    onChange: (event) => onChange(split(event.target.value)),
  });
}

function json(value, onChange) {
  const text = value === undefined ? "" : JSON.stringify(value, null, 1);
  const area = h("textarea", {
    rows: Math.min(10, text.split("\n").length + 1),
    spellcheck: "false",
    value: text === "[]" ? "" : text,
    placeholder: "JSON",
  });
  area.addEventListener("change", () => {
    try {
      area.setCustomValidity("");
      onChange(area.value.trim() === "" ? undefined : JSON.parse(area.value));
    } catch (error) {
      area.setCustomValidity(`This is no JSON: ${error.message}`);
      area.reportValidity();
    }
  });
  return area;
}
