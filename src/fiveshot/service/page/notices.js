// What the page says: one error at a time, and what was done with the way back.

import * as api from "./api.js";
import { $, button, message, plural, quoted } from "./elements.js";

const ACTIONS = {
  learn: "learning", add: "adding to", forget: "forgetting", rename: "renaming to", merge: "merging",
  remove: "removing photos of", move: "moving photos to", correct: "correcting to", none: "“none of these”",
  set: "setting", keep: "keeping", review: "the review of",
};
const listeners = new Set();
let timer;

export const whenUndone = (listener) => listeners.add(listener);
export const actionText = ({ action, classes = [] }) => `${ACTIONS[action] || action} ${quoted(classes)}`.trim();

// An error that was said before goes, wherever it stands.
export function quiet() {
  for (const old of document.querySelectorAll(".message.bad:not(.stays), .note.error")) {
    if (old.matches(".message")) old.remove();
    else old.textContent = "";
  }
  if ($("notice").classList.contains("bad")) $("notice").hidden = true;
}

// Says an error where it belongs, or at the foot of the page.
export function complain(error, place) {
  const text = error instanceof Error ? error.message : error;
  quiet();
  if (place) {
    place.prepend(message("bad", "", text));
    place.firstChild.scrollIntoView({ block: "nearest" });
  } else notice("bad", text, []);
}

// Says what was done. `back` takes it back: the state it led to, and how many changes that were.
export function tell(text, { back, further = [] } = {}) {
  quiet();
  const undoing = back ? [button("Undo", "", () => undo(back))] : [];
  notice("", text, [...undoing, ...further]);
}

function notice(kind, text, ways) {
  $("notice").className = kind;
  $("notice").setAttribute("role", kind ? "alert" : "status");
  $("notice-text").textContent = text;
  $("notice-ways").replaceChildren(...ways);
  $("notice").hidden = false;
  // A dialog makes all else unreachable: the notice moves into it.
  (Array.from(document.querySelectorAll("dialog[open]")).pop() || document.body).append($("notice"));
  later();
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if ($("notice").matches(":hover, :focus-within")) later();
    else $("notice").hidden = true;
  }, 15000);
}

export async function undo({ state, steps = 1 } = {}) {
  const undone = [];
  try {
    for (let step = 0; step < steps; step++) {
      const answer = await api.undo(state);
      undone.push({ ...answer, before: state });
      state = answer.state;
    }
    const { total, ...last } = undone.at(-1);
    const more = total > last.classes.length ? ` and ${plural(total - last.classes.length, "other class")}` : "";
    tell(`Took back ${steps > 1 ? plural(steps, "change") : actionText(last) + more}.`);
  } catch (error) {
    complain(error);
  }
  for (const listener of listeners) await listener(undone);
}

export function setUpNotices() {
  $("notice-close").addEventListener("click", () => { $("notice").hidden = true; });
  document.addEventListener("close", (event) => {
    if (event.target.contains($("notice"))) document.body.append($("notice"));
  }, true);
}
