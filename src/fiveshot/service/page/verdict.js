// The user's verdict on answers (right, "no, it is ...", none of these), and the reason for an answer.

import * as api from "./api.js";
import { $, button, fileName, make, percent, plural } from "./elements.js";
import { change, complain } from "./notices.js";
import { readOnly } from "./model.js";
import { chooseName, likelyNames } from "./naming.js";
import { enlarge, ofFile, openerOfPhoto, showPhoto } from "./pictures.js";
import { partsOf } from "./sending.js";

const NEAREST = 3; // learned photos that are shown for an answer
let redraw = () => {};

const isClass = (one) => one.found?.answer === "class";
const answered = ({ found }) => found.label !== null;
// The two classes of an answer that is unsure: one of them, but which?
export const between = ({ found }) => found?.between || [];
// What the photo shows, as the user said: a name, null for none of the classes, undefined without a verdict.
export const truth = ({ verdict }) => verdict && verdict.name;
export const isRight = (one) => one.verdict.kind === "right" || (one.found.unknown ? one.verdict.name === null : one.verdict.name === one.found.label);

// The buttons for a verdict, or the verdict.
export function verdictLine(one) {
  const line = make("div", "verdict actions");
  if (!readOnly) line.append(...verdictWays(one));
  line.append(button("Why?", "quiet", () => why([one]), `Why ${one.found.label || "unknown"}?`));
  return line;
}

function verdictWays(one) {
  const { verdict } = one;
  if (!verdict) {
    const isIt = button(answered(one) ? "No, it is …" : "It is …", "", () => itIs([one]));
    const ways = [isIt, button("None of these", "", () => noneOfThese([one]))];
    if (!answered(one)) return [...between(one).map((name) => button(`It is ${name}`, "", () => teach([one], name))), ...ways];
    return [button("Right", "", () => right([one]), `Right: ${one.photo.name}`), ...ways];
  }
  const ways = [make("span", "said", verdictText(one))];
  if (verdict.kind === "right" && isClass(one)) ways.push(button(`Add to ${one.found.label}`, "", () => teach([one], one.found.label)));
  if (verdict.kind === "right") ways.push(button("Change", "quiet", () => say([one], null)));
  return ways;
}

function verdictText({ verdict, found }) {
  if (verdict.kind === "right") return "✓ Right";
  if (verdict.name === null) return "Learned as none of these";
  return verdict.name === found.label ? `✓ Added to ${verdict.name}` : `Learned as ${verdict.name}`;
}

function say(ones, verdict) {
  for (const one of ones) one.verdict = verdict;
  redraw(ones);
}

export function right(ones) {
  say(ones.filter((one) => answered(one) && one.verdict?.kind !== "taught"), { kind: "right" });
}

export async function itIs(ones) {
  const wrong = ones.length === 1 ? ones[0].found.label ?? "" : "";
  const candidates = likelyNames(ones.map((one) => one.found));
  const name = await chooseName(ones.length > 1 ? `What do ${plural(ones.length, "photo")} show?` : `What does ${ones[0].photo.name} show?`, { candidates, not: wrong, pictures: ones.map((one) => ofFile(one.photo)) });
  if (name) await teach(ones, name);
}

export const teach = (ones, name) => send(ones, name, `Learned ${plural(ones.length, "photo")} as “${name}”.`, (photos) => api.correct(photos, name));
export const noneOfThese = (ones) => send(ones, null, `Learned ${plural(ones.length, "photo")} as none of these.`, api.learnNone);

async function send(ones, name, said, request) {
  const done = [];
  const requests = partsOf(ones.map((one) => one.photo)).map((part) => async () => {
    if (ones.length > 1) $("try-said").textContent = `${done.length} of ${plural(ones.length, "photo")}`;
    const answer = await request(part);
    done.push(...ones.slice(done.length, done.length + part.length));
    if (done.length === ones.length) say(done, { kind: "taught", name });
    return answer;
  });
  const steps = await change(requests, said, { place: $("try-messages"), fresh: name || undefined, then: () => say(done, null) });
  if (steps && done.length < ones.length) say(done, { kind: "taught", name });
  $("try-said").textContent = "";
}

// The learned photos that are most like it.
async function why([one]) {
  const there = one.item.querySelector(".why");
  if (there) return there.remove();
  const strip = make("div", "why", make("p", "muted small", "Looking …"));
  one.item.querySelector(".grow").append(strip);
  try {
    const { predictions } = await api.predict([one.photo], { why: NEAREST });
    const near = predictions[0].why;
    const pictures = near.map((photo) => ({ show: showPhoto(photo.id), title: photo.label, note: likeText(photo) }));
    strip.replaceChildren(make("p", "small", near.length ? "The learned photos most like it:" : "No learned photo is kept to compare it with."),
      make("div", "beside", ...near.map((photo, place) => make("figure", "",
        openerOfPhoto(photo.id, photo.label, () => enlarge(pictures, place)),
        make("figcaption", "small", photo.label, make("span", "muted", " ", fileName(likeText(photo))))))));
  } catch (error) {
    strip.remove();
    complain(error, $("try-messages"));
  }
}

const likeText = (photo) => `${[photo.id, photo.name].filter(Boolean).join(" ")}, ${percent(photo.likeness)} alike`;

const oneOfTwo = (place) => ([one]) => between(one)[place] && teach([one], between(one)[place]);
const KEYS = readOnly ? { w: why } : { r: right, n: itIs, 0: noneOfThese, w: why, 1: oneOfTwo(0), 2: oneOfTwo(1) };

// Keys to go through many answers.
export function verdictKeys(list, answerOf) {
  list.addEventListener("keydown", (event) => {
    const one = answerOf(event.target.closest("[data-key]")?.dataset.key);
    if (!one?.found || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox])")) return;
    const run = KEYS[event.key.toLowerCase()];
    if (!run) return;
    event.preventDefault();
    run([one]);
  });
}

export const whenSaid = (listener) => { redraw = listener; };
