// What the page says: one error at a time, and what was done with the way back.

import * as api from "./api.js";
import { $, button, message, plural, quoted } from "./elements.js";
import { model } from "./model.js";

const ACTIONS = {
  learn: "learning", add: "adding to", forget: "forgetting", rename: "renaming to", merge: "merging",
  remove: "removing photos of", move: "moving photos between", correct: "correcting to", none: "“none of these”",
  set: "setting", keep: "keeping", review: "the review of",
};
const listeners = new Set();
const done = []; // what was done here and stands: {state, steps, then}
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

// Says what was done. `back` takes it back: the state it led to, how many changes that were, and what then.
export function tell(text, { back, further = [] } = {}) {
  quiet();
  if (back) {
    back = { steps: 1, then: () => {}, ...back };
    done.push(back);
  }
  notice("", text, [...(back ? [button("Undo", "", () => undo(back))] : []), ...further]);
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

// Takes back what was done here last; if that is not the last change of the model, the last one, whoever made it.
export async function undoLast() {
  const last = done.at(-1);
  await undo(last?.state === model.state ? last : { state: undefined, steps: 1, then: () => {} });
}

async function undo(back) {
  let { state } = back;
  let answer, failure;
  try {
    for (let step = 0; step < back.steps; step++) {
      answer = await api.undo(state);
      state = answer.state;
    }
    const place = done.indexOf(back);
    if (place >= 0) {
      const earlier = done[place - 1];
      if (earlier?.state === back.state - back.steps) earlier.state = state; // nobody was in between
      done.splice(place, 1);
    }
    back.then();
    const more = answer.total > answer.classes.length ? ` and ${plural(answer.total - answer.classes.length, "other class")}` : "";
    tell(`Took back ${back.steps > 1 ? plural(back.steps, "change") : actionText(answer) + more}.`);
  } catch (error) {
    failure = error;
  }
  for (const listener of listeners) await listener();
  if (failure) complain(failure); // after the page knows the model as it is: the next undo is of that
}

export function setUpNotices() {
  $("notice-close").addEventListener("click", () => { $("notice").hidden = true; });
  document.addEventListener("close", (event) => {
    if (event.target.contains($("notice"))) document.body.append($("notice"));
  }, true);
}
