// Server-sent events over fetch: unlike EventSource it can say who calls.

import { credentials } from "./key.js";

const AGAIN_MS = 1000;
const MOST_TRIES = 10;

/**
 * Follows a Compilation: `onStep` for each step, `onEnded` with the whole at its end. After a broken connection it goes on
 * from the last step; `onLost` when that does not help. Returns a function that stops.
 */
export function follow(id, { onStep, onEnded, onLost }) {
  const stopping = new AbortController();
  const act = {
    step: onStep,
    ended: (compilation) => {
      stopping.abort();
      onEnded(compilation);
    },
  };
  read(id, act, stopping.signal).catch((error) => {
    if (!stopping.signal.aborted) onLost(error);
  });
  return () => stopping.abort();
}

async function read(id, act, signal) {
  let last = null;
  for (let tries = 0; tries < MOST_TRIES && !signal.aborted; tries += 1) {
    try {
      const resume = last === null ? {} : { "Last-Event-ID": last };
      const response = await fetch(`/compile/${encodeURIComponent(id)}/events`, {
        headers: { ...credentials(), ...resume },
        signal,
      });
      if (!response.ok) throw new Error(`the events answer ${response.status}`);
      for await (const event of events(response.body)) {
        tries = 0;
        if (event.id !== null) last = event.id;
        act[event.name]?.(JSON.parse(event.data));
        if (event.name === "ended") return;
      }
    } catch (error) {
      if (signal.aborted || tries === MOST_TRIES - 1) throw error;
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

/** The events of a stream, as {name, id, data}. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = parse(block);
      if (event) yield event;
    }
  }
}

function parse(block) {
  const fields = Object.fromEntries(
    block
      .split("\n")
      .filter((line) => line && !line.startsWith(":"))
      .map((line) => {
        const at = line.indexOf(": ");
        return [line.slice(0, at), line.slice(at + 2)];
      }),
  );
  return "data" in fields ? { name: fields.event ?? "message", id: fields.id ?? null, data: fields.data } : null;
}
