// Messages of the page: one error at a time, and what was done, with undo.

import * as api from "./api.js";
import { $, button, message, plural, quoted } from "./elements.js";
import { model, refresh, whenChanged } from "./model.js";

const ACTIONS = {
  learn: "learning", add: "adding to", forget: "forgetting", rename: "renaming to", merge: "merging",
  remove: "removing photos of", move: "moving photos between", correct: "correcting to", none: "“none of these”",
  set: "setting", keep: "keeping", review: "the review of", dismiss: "dismissing photos",
};
const SURE = "Really? This cannot be undone";
const STAYS = 10_000; // milliseconds that a message is shown after it was last pointed at
const done = []; // changes made here and not undone: {state, steps, what, then}; without steps only the page was changed
let timer;

const actionText = ({ action, classes = [] }) => `${ACTIONS[action] || action} ${quoted(classes)}`.trim();

// Removes the last error, wherever it is.
export function quiet() {
  for (const old of document.querySelectorAll(".message.bad:not(.stays), .note.error")) {
    if (old.matches(".message")) old.remove();
    else old.textContent = "";
  }
  if ($("notice").classList.contains("bad")) leave();
}

// Shows an error in its place, or at the foot of the page.
export function complain(error, place) {
  const text = error instanceof Error ? error.message : error;
  quiet();
  if (place) {
    place.prepend(message("bad", "", text));
    place.firstChild.scrollIntoView({ block: "nearest" });
  } else notice("bad", text, []);
}

// Says what was done. `back` is needed to undo it: the resulting state, the number of changes, and a callback.
export function tell(text, { back, further = [] } = {}) {
  quiet();
  if (back) {
    back = { steps: 1, then: () => {}, ...back };
    const same = done.findIndex((one) => !one.steps && one.what === back.what);
    if (!back.steps && same >= 0) done.splice(same, 1); // for changes of the page only, the last one is enough
    done.push(back);
    tellUndo();
  }
  notice("", text, [...(back ? [button("Undo", "", () => undo(back))] : []), ...further]);
}

// Says that something was removed from the page, with undo.
export const tellGone = (what, text, then) => tell(text, { back: { steps: 0, what, then } });

const asked = (value, answer) => (typeof value === "function" ? value(answer) : value);

// Changes the model with one or more requests, and shows the result with undo, or the error. Returns how many succeeded.
export async function change(requests, said, { place, then, fresh, further, forGood = false } = {}) {
  let answer;
  let steps = 0;
  try {
    for (const request of requests) {
      answer = await request();
      steps += 1;
    }
    tell(asked(said, answer), { back: forGood ? undefined : { state: answer.state, steps, ...(then && { then }) }, further });
  } catch (error) {
    complain(error, place);
  }
  if (steps) await refresh(asked(fresh, answer)).catch(complain);
  return steps;
}

// A button that asks again, and then erases all traces from the disk.
export function forGood(request, what) {
  const made = button("Erase for good", "", () => {
    if (made.textContent === SURE) change([request], ({ pending }) => (pending ? `${what}: ${pending}.` : `${what} erased, for good.`), { forGood: true });
    else made.textContent = SURE;
  });
  return made;
}

function notice(kind, text, ways) {
  $("notice").className = kind;
  $("notice").setAttribute("role", kind ? "alert" : "status");
  $("notice-text").textContent = text;
  $("notice-ways").replaceChildren(...ways);
  $("notice").hidden = false;
  // A dialog blocks everything else, so the notice moves into it.
  (Array.from(document.querySelectorAll("dialog[open]")).pop() || document.body).append($("notice"));
  later();
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if ($("notice").contains(document.activeElement)) later(); // it is being used with the keyboard
    else leave();
  }, STAYS);
}

const leave = () => { $("notice").hidden = true; };

// The last change made here; if the model was changed since, its last change, by any client.
function next() {
  const last = done.at(-1);
  if (last && (!last.steps || (model.undo && last.state === model.state))) return last;
  return model.undo ? { steps: 1, then: () => {} } : null;
}

function tellUndo() {
  const back = next();
  $("undo").hidden = !back;
  $("undo").title = !back ? "" : `Undo ${back.what || actionText(model.undo)}`;
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
      const earlier = done.slice(0, place).findLast((one) => one.steps);
      if (earlier && earlier.state === back.state - back.steps) earlier.state = state; // no other client changed the model in between
      done.splice(place, 1);
    }
    back.then();
    tell(`Undone: ${backText(back, answer)}.`);
  } catch (error) {
    failure = error;
  }
  if (back.steps) await refresh().catch(complain);
  tellUndo();
  if (failure) complain(failure); // after the page has read the model again: the next undo starts from there
}

function backText(back, answer) {
  if (!back.steps) return back.what;
  if (back.steps > 1) return plural(back.steps, "change");
  const more = answer.total - answer.classes.length;
  return actionText(answer) + (more > 0 ? ` and ${plural(more, "other class")}` : "");
}

export function setUpNotices() {
  $("notice-close").addEventListener("click", leave);
  $("notice").addEventListener("pointermove", later); // a pointer that only rests on it does not keep it
  $("notice").addEventListener("keydown", (event) => { if (event.key === "Escape") { event.preventDefault(); leave(); } });
  addEventListener("hashchange", leave);
  document.addEventListener("close", (event) => {
    if (event.target.contains($("notice"))) document.body.append($("notice"));
  }, true);
  whenChanged(tellUndo);
  $("undo").addEventListener("click", () => undo(next()));
  addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input:not([type=checkbox]):not([type=range]), textarea");
    if (event.key !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey || typing || !next()) return;
    event.preventDefault();
    undo(next());
  });
  // The bar of a selection is also at the foot of the page: the notice goes above it.
  const bars = Array.from(document.querySelectorAll("main .selected"));
  const above = new ResizeObserver(() => { $("notice").style.marginBottom = `${Math.max(...bars.map((bar) => bar.offsetHeight))}px`; });
  bars.forEach((bar) => above.observe(bar));
}
