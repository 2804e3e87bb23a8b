// Sort: hundreds of photos without labels. Known ones by class, the others in groups to name.

import * as api from "./api.js";
import { $, button, fileName, grouped, inSlices, make, percent, plural } from "./elements.js";
import { change, complain, tellGone } from "./notices.js";
import { chooseName } from "./naming.js";
import { enlarge, ofAddress, ofFile, opener, openerOfFile, showFile } from "./pictures.js";
import * as sightings from "./sightings.js";
import { Selection, picker, setUpBar } from "./selection.js";
import { Sending, partsOf } from "./sending.js";
import * as takeHome from "./takehome.js";

const PART = 16; // photos in a request
const SHORT = 24; // photos of a group that are shown before "Show all"
let beginning = null;
let session = null; // id of the set on the service, which keeps the features of the photos
let cleared = null; // the former set, which was cleared
let files = new Map(); // by the number from the service
let tiles = new Map(); // their elements
let sorting = null;
let skipped = new Set();
let again = 0; // photos that were sent before
let bad = []; // {photo, reason}: photos that cannot be used
let sending = null;
let selection = null;
let round = 0;

export const open = () => sightings.open();
export const take = (found) => sending.add(found.map(({ file }) => file));

function begin() {
  if (cleared) api.endSorting(cleared).catch(() => {}); // until now it could be restored
  cleared = null;
  return api.startSorting();
}

// Returns a number for each photo, or why it cannot be used.
async function send(photos) {
  beginning ||= begin(); // only once, although parts are sent in parallel
  session = (await beginning).id;
  const { numbers, refused } = await api.addToSorting(session, photos).catch(beginAgain);
  return photos.map((photo) => {
    if (refused[0]?.name === api.sentName(photo)) return refused.shift();
    return numbers.shift();
  });
}

// The service drops a set without requests after a while. Then all photos are sent again.
function beginAgain(error) {
  if (!["not_found", "outdated"].includes(error.code)) throw error;
  const photos = [...files.values()];
  forgetAll();
  sending.queue.unshift(...photos);
  sending.total += photos.length;
  throw new api.Failure("", "The service has dropped these photos after a while without requests", "Continue to send them again");
}

function received(some) {
  for (const { photo, value, error } of some) {
    const reason = error?.message || value?.message;
    if (reason) {
      bad.push({ photo, reason });
      $("sort-bad").append(make("li", "", `${photo.name}: ${reason}`));
    } else if (files.has(value)) again += 1;
    else if (value !== undefined) files.set(value, photo);
  }
  $("sort-bad-box").hidden = !$("sort-bad").children.length;
}

// Requests the groups and shows them.
async function look() {
  if (!session || !files.size) return;
  const mine = ++round;
  $("sort-busy").hidden = false;
  try {
    const answer = await api.sorting(session).catch(beginAgain);
    if (mine !== round) return;
    sorting = answer;
    await show(mine);
  } catch (error) {
    if (mine === round) complain(error, $("sort-messages"));
  } finally {
    if (mine === round) $("sort-busy").hidden = true;
  }
}

async function show(mine) {
  selection.clear();
  const known = grouped(sorting.known, (one) => one.label);
  const left = sorting.known.length + sorting.groups.reduce((sum, group) => sum + group.photos.length, 0);
  $("sorted").hidden = false;
  $("sort-count").textContent = countText(left, known.size);
  ask();
  const sections = [
    ...sorting.groups.map((group) => ({ group, numbers: group.photos })),
    ...Array.from(known, ([label, ones]) => ({ label, ones, numbers: ones.map((one) => one.photo) })),
  ];
  const still = () => mine === round;
  await inSlices([...$("groups").children].reverse(), (one) => one.remove(), still);
  if (still()) await inSlices(sections, (one) => $("groups").append(one.group ? unknownSection(one) : knownSection(one)), still);
}

// How many photos are shown here, and where the others are.
function countText(left, classes) {
  const is = (count) => (count === 1 ? "is" : "are");
  const learned = files.size - left;
  const others = [
    learned && `${learned} ${is(learned)} learned already`,
    again && `${again} ${is(again)} here twice`,
    bad.length && `${bad.length} cannot be used`,
  ].filter(Boolean);
  const all = files.size + again + bad.length;
  const count = others.length ? `${left.toLocaleString("en")} of ${plural(all, "photo")} (${others.join(", ")})` : plural(left, "photo");
  if (!left) return `Nothing is left to name: ${others.join(", ")}.`;
  return `${count}: ${sorting.known.length} in ${plural(classes, "known class")}, ${left - sorting.known.length} in ${plural(sorting.groups.length, "group")} to name`;
}

function unknownSection({ group, numbers }) {
  const name = Object.assign(make("input"), { type: "text", maxLength: 200, autocomplete: "off", placeholder: "Name of what they show" });
  name.setAttribute("aria-label", `Name for a group of ${plural(numbers.length, "photo")}`);
  const form = make("form", "line", name, Object.assign(make("button", "main", "Learn"), { type: "submit" }), button("Choose …", "", async () => {
    const chosen = await nameFor(numbers);
    if (chosen) learn(numbers, chosen);
  }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (name.value.trim()) learn(numbers, name.value.trim());
    else { complain("Give the group a name.", $("sort-messages")); name.focus(); }
  });
  return section("group unknown-group", numbers, make("div", "bar", make("h3", "", plural(numbers.length, "photo")), form));
}

function knownSection({ label, ones, numbers }) {
  const chances = ones.map((one) => one.probability).filter((one) => one !== null); // the only class of a model has none
  const sure = chances.length ? `, ${percent(chances.reduce((sum, one) => sum + one, 0) / ones.length)} sure on average` : "";
  const unsure = ones.filter((one) => one.between.length).length;
  const title = make("h3", "", label, " ", make("span", "share", `${plural(ones.length, "photo")}${sure}${unsure ? `, ${unsure} unsure` : ""}`));
  const add = button(`Add to ${label}`, "", () => learn(numbers, label));
  return section("group", numbers, make("div", "bar", title, add), new Map(ones.map((one) => [one.photo, one])));
}

function section(kind, numbers, head, known = new Map()) {
  const list = make("ul", "tiles");
  const more = button(`Show all ${numbers.length}`, "quiet", () => {
    more.remove();
    inSlices(numbers.slice(SHORT), (number) => list.append(tile(number, known.get(number))));
  });
  list.append(...numbers.slice(0, SHORT).map((number) => tile(number, known.get(number))));
  const rows = Math.ceil(Math.min(numbers.length, SHORT) / 8);
  const made = make("section", kind, head, list, numbers.length > SHORT ? more : undefined);
  made.style.containIntrinsicSize = `auto ${80 + 150 * rows}px`;
  return made;
}

// A photo; `known` says what it shows, if that is known.
function tile(number, known) {
  let item = tiles.get(number);
  const photo = files.get(number);
  const name = photo?.name || `photo ${number + 1}`;
  if (!item) {
    item = make("li", "", opener(ofAddress(api.sortedPicture(session, number), name), name, () => enlargeAll(item)), picker(name), make("p", "small muted"));
    item.dataset.key = String(number);
    tiles.set(number, item);
  }
  const unsure = Boolean(known?.between.length);
  item.classList.toggle("doubtful", unsure);
  item.title = unsure ? `${name}: unsure: ${known.between.join(" or ")}` : name;
  const share = known ? known.probability : null; // the only class of a model has none
  item.lastChild.replaceChildren(share === null ? fileName(photo?.name || "") : `${percent(share)}${unsure ? ", unsure" : ""}`);
  return item;
}

function enlargeAll(item) {
  const around = Array.from(item.parentElement.querySelectorAll("[data-key]"));
  enlargeFiles(around.map((one) => Number(one.dataset.key)), around.indexOf(item));
}

const enlargeFiles = (numbers, place) => enlarge(numbers.map((number) => picture(files.get(number))), place);
const picture = (photo) => ({ show: showFile(photo), title: photo.name });

function nameFor(numbers, given = {}) {
  const title = numbers.length > 1 ? `What do ${plural(numbers.length, "photo")} show?` : `What does ${files.get(numbers[0]).name} show?`;
  return chooseName(title, { ...given, pictures: numbers.map((number) => ofFile(files.get(number))) });
}

// The queue: one question at a time, the most useful first.
function ask() {
  const question = sorting.queue.find((one) => !skipped.has(one.photo) && files.has(one.photo));
  $("question").hidden = !question;
  if (!question) return;
  const numbers = [question.photo, ...question.companions];
  const others = question.companions.length;
  $("question-text").textContent = `This is the most useful photo to name.${others ? ` ${plural(others, "other photo")} like it ${others === 1 ? "gets" : "get"} the same name.` : ""}`;
  $("question-photo").replaceChildren(...numbers.slice(0, 5).map((number, place) =>
    openerOfFile(files.get(number), () => enlargeFiles(numbers, place))));
  const guess = question.guess ? [button(`It is ${question.guess}`, "", () => learn(numbers, question.guess))] : [];
  $("question-ways").replaceChildren(...guess,
    button(question.guess ? "No, it is …" : "It is …", "", async () => {
      const name = await nameFor(numbers, { candidates: question.guess ? [{ label: question.guess }] : [] });
      if (name) learn(numbers, name);
    }),
    button("None of these", "", () => none(numbers)),
    button("Skip", "quiet", () => { skipped.add(question.photo); ask(); $("question-ways").querySelector("button")?.focus(); }));
}

async function put(requests, said, fresh) {
  if (await change(requests, said, { place: $("sort-messages"), then: look, fresh })) await look();
}

const learn = (numbers, name) => put([() => api.learnSorted(session, numbers, name)], `Learned ${plural(numbers.length, "photo")} as “${name}”.`, name);

function none(numbers) {
  const parts = partsOf(numbers.map((number) => files.get(number)));
  return put(parts.map((part) => () => api.learnNone(part)), `Learned ${plural(numbers.length, "photo")} as none of these.`);
}

function clear() {
  const left = sending.clear();
  const count = files.size + left.length;
  const before = [beginning, session, sorting, files, tiles, skipped, again, bad];
  const [unused, refused] = [[...$("sort-bad").children], $("sort-bad-box").hidden];
  cleared = session;
  forgetAll();
  for (const part of ["groups", "sort-bad", "sort-messages"]) $(part).replaceChildren();
  for (const part of ["sorted", "sort-bad-box", "sort-busy", "question"]) $(part).hidden = true;
  selection.clear();
  tellGone("clearing Sort", `Cleared ${plural(count, "photo")}.`, () => {
    if (beginning) return sending.add([...before[3].values(), ...left]); // to photos that were added since
    [beginning, session, sorting, files, tiles, skipped, again, bad] = before;
    $("sort-bad").replaceChildren(...unused);
    $("sort-bad-box").hidden = refused;
    cleared = null;
    if (left.length) sending.add(left);
    else look();
  });
}

function forgetAll() {
  [beginning, session, sorting, files, tiles, skipped, again, bad] = [null, null, null, new Map(), new Map(), new Set(), 0, []];
  round += 1;
}

export function setUp() {
  selection = new Selection($("groups"), (chosen) => tellChosen(chosen));
  const tellChosen = setUpBar($("sort-bar"), () => selection);
  const chosen = () => [...selection.chosen].map(Number);
  sending = new Sending($("sort-progress"), { most: PART, verb: "Looking", request: send, onAnswers: received, onDone: look });
  sending.place = $("sort-messages");
  $("sort-is").addEventListener("click", async () => {
    const numbers = chosen();
    const name = await nameFor(numbers);
    if (name) learn(numbers, name);
  });
  takeHome.setUp({ places: () => api.sortedPlaces(session), fileOf: (number) => files.get(number), bad: () => bad });
  $("sort-none").addEventListener("click", () => none(chosen()));
  $("sort-clear").addEventListener("click", clear);
}
