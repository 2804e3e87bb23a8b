// Review: photos to look at again, classes that are confused, and whether there are enough photos.

import * as api from "./api.js";
import { $, button, fileName, grouped, inSlices, make, percent, plural, sentence } from "./elements.js";
import { change, complain } from "./notices.js";
import { isKnown, model, whenChanged } from "./model.js";
import { chooseName } from "./naming.js";
import { enlarge, ofPhoto, openerOfPhoto, showPhoto } from "./pictures.js";
import { Selection, picker, setUpBar } from "./selection.js";
import { addTo } from "./teach.js";

const KINDS = {
  "mixed-up": ["Perhaps in the wrong class", "They fit another class better than their own."],
  harmful: ["Photos that harm", "More of the others are recognized without them."],
  duplicates: ["Near duplicates", "The same photo twice teaches nothing new."],
  outliers: ["Unlike the others", "They have little in common with the other photos of their class."],
};
const MORE = [1, 2, 5];
const MOST_ROWS = 30; // classes, or findings of a kind, listed before "Show all"
let review = null;
let found = new Map(); // suggestions by key
let selection = null;
let round = 0;

export async function open() {
  if (!isKnown()) return; // once it is, this is called again
  if (!model.classes) return empty("The model knows no class yet. Teach it one first.");
  if (review && review.state === model.state) return;
  const mine = ++round;
  $("review-busy").hidden = false;
  try {
    const answer = await api.review();
    if (mine !== round) return;
    review = answer;
    await show(mine);
  } catch (error) {
    if (mine === round) complain(error, $("review-messages"));
  } finally {
    if (mine === round) $("review-busy").hidden = true;
  }
}

function empty(text) {
  review = null;
  $("review-note").textContent = text;
  for (const part of ["review-findings", "review-pairs", "review-enough"]) $(part).hidden = true;
}

async function show(mine) {
  selection.clear();
  found = new Map(review.suggestions.map((one) => [`${one.kind}:${one.photo}`, one]));
  const photos = review.judged ? `${percent(review.accuracy)} of ${plural(review.judged, "photo")} are recognized when each is left out in turn.` : "Too few photos to test: two classes are needed, one of them with two photos or more.";
  const kept = review.kept ? ` Not shown: ${plural(review.kept, "photo")} that you decided about.` : "";
  $("review-note").textContent = photos + (found.size ? "" : " Nothing else to look at.") + kept;
  $("review-findings").hidden = !found.size;
  $("review-pairs").hidden = !review.pairs.length;
  $("review-enough").hidden = !review.classes.length;
  $("findings").replaceChildren();
  for (const [kind, ones] of grouped(found, ([, one]) => one.kind)) showKind(kind, ones, mine);
  $("pairs").replaceChildren();
  await inSlices(review.pairs, (pair) => $("pairs").append(confused(pair)), () => mine === round);
  enough(false);
}

function showKind(kind, ones, mine) {
  const [title, note] = KINDS[kind] || [kind, ""];
  const more = make("li", "", button(`Show all ${ones.length}`, "quiet", () => {
    inSlices(ones.slice(MOST_ROWS), ([key, one]) => more.before(finding(key, one)), () => mine === round);
    more.hidden = true;
  }));
  $("findings").append(make("li", "heading", make("h3", "", `${title} (${ones.length})`), make("p", "muted small", note)));
  $("findings").append(...ones.slice(0, MOST_ROWS).map(([key, one]) => finding(key, one)), more);
  more.hidden = ones.length <= MOST_ROWS;
}

const shown = ([id, label, name]) => ({
  show: showPhoto(id), title: label, note: [id, name].filter(Boolean).join(" "),
  ways: () => [["Move to …", () => move([{ photo: id, label }])], ["Remove", () => remove([{ photo: id, label }]), "danger"]],
});

// Two photos side by side, each with its class; either can be enlarged, with the other next to it.
function sideBySide(first, second) {
  const both = [first, second].filter(([id]) => id);
  const pictures = both.map(shown);
  return make("div", "beside", ...both.map(([id, label, name], place) =>
    make("figure", "", openerOfPhoto(id, label, () => enlarge(pictures, place)), make("figcaption", "small", label, make("span", "muted", ` ${id}`, ...(name ? [" ", fileName(name)] : []))))));
}

const actionText = (one) => (one.action === "move" ? `Move to ${one.to}` : "Remove");

function finding(key, one) {
  const other = one.kind === "mixed-up" ? one.to : one.label;
  const ways = make("div", "actions",
    button(actionText(one), "", () => apply([one])),
    button("Keep", "", () => keep([one])),
    one.action === "move" ? button("Remove", "quiet danger", () => remove([one])) : button("Move to …", "quiet", () => move([one])));
  const item = make("li", "finding", picker(`${one.photo} of ${one.label}`), sideBySide([one.photo, one.label, one.name], [one.beside, other, one.beside_name]), make("div", "grow", make("p", "", one.firm ? make("strong", "", "Firm: ") : "Look at this: ", `${one.reason}.`), ways));
  item.dataset.key = key;
  return item;
}

function confused(pair) {
  const [first, second] = pair.classes;
  const title = make("h3", "", `${first} and ${second}: ${plural(pair.count, "photo")} mistaken`);
  const photos = make("ul", "telling", ...pair.photos.map((one) =>
    make("li", "", sideBySide([one.photo, one.label, one.name], [one.beside, one.taken_for, one.beside_name]), make("p", "small muted", `taken for ${one.taken_for}, ${percent(one.probability)}`))));
  if (!pair.alike) return make("li", "pair", title, photos);
  const ways = make("div", "actions", ...[[first, second], [second, first]].map(([name, to]) =>
    button(`Join them as ${to}`, "", () => changeModel([() => api.join(name, to)], `Joined “${name}” with “${to}”.`))));
  return make("li", "pair", title, make("p", "", sentence(pair.advice)), ways, photos);
}

function enough(all) {
  const now = review.expected.length ? `Expected now: ${percent(review.expected[0])}. ` : "";
  const later = MORE.map((more, place) => [more, review.expected[place + 1]]).filter(([, share]) => share !== undefined);
  $("enough-note").textContent = now + (later.length ? `With more photos of every class: ${later.map(([more, share]) => `${more} more, ${percent(share)}`).join("; ")}.` : "");
  const rows = all ? review.classes : review.classes.slice(0, MOST_ROWS);
  $("enough-rows").replaceChildren();
  const mine = round;
  inSlices(rows, (one) => $("enough-rows").append(enoughRow(one)), () => mine === round);
  $("enough-all").hidden = rows.length === review.classes.length;
  $("enough-all").textContent = `Show all ${plural(review.classes.length, "class")}`;
}

function enoughRow(one) {
  const shares = [0, ...MORE].map((_, place) => one.expected[place]);
  const cell = (share) => make("td", "number", share === undefined || share === null ? "" : percent(share));
  const name = make("th", "", one.name);
  name.scope = "row";
  return make("tr", "", name, make("td", "number", String(one.photos)), cell(one.accuracy), ...shares.map(cell),
    make("td", "", button("Add photos", "quiet", () => addTo(one.name), `Add photos to ${one.name}`)));
}

// One request for each class that gets photos, one for all removed photos. They can be undone one by one or all at once.
async function apply(all, more = "") {
  const ones = [...new Map([...all].reverse().map((one) => [one.photo, one])).values()]; // the first suggestion for a photo
  const moves = grouped(ones.filter((one) => one.action === "move"), (one) => one.to);
  const gone = ones.filter((one) => one.action === "remove").map((one) => one.photo);
  const work = Array.from(moves, ([to, some]) => () => api.move(idsOf(some), to));
  if (gone.length) work.push(() => api.remove(gone));
  const said = ones.length > 1 ? `Followed the suggestions for ${plural(ones.length, "photo")}.` : ones[0].action === "move" ? `Moved ${ones[0].photo} to “${ones[0].to}”.` : `Removed ${ones[0].photo} of “${ones[0].label}”.`;
  await changeModel(work, said + more);
}

// Of several at once only firm ones are followed, as `review --apply` does. The others are for a person to decide.
function applyFirm(all) {
  const firm = all.filter((one) => one.firm);
  const others = all.length - firm.length;
  if (!firm.length) return complain("No suggestion that you selected is firm. Look at each photo and use the buttons beside it.", $("review-messages"));
  return apply(firm, others ? ` ${others} left for you to decide.` : "");
}

const idsOf = (ones) => [...new Set(ones.map((one) => one.photo))];
const changeModel = (requests, said) => change(requests, said, { place: $("review-messages") });
const remove = (ones) => changeModel([() => api.remove(idsOf(ones))], `Removed ${plural(idsOf(ones).length, "photo")}.`);

async function move(ones) {
  const likely = [...new Set(ones.map((one) => one.to).filter(Boolean))].map((label) => ({ label }));
  const to = await chooseName(`Move ${plural(idsOf(ones).length, "photo")} to`, { candidates: likely, none: true, pictures: ones.map((one) => ofPhoto(one.photo, one.label)) });
  if (to) await changeModel([() => api.move(idsOf(ones), to)], `Moved ${plural(idsOf(ones).length, "photo")} to “${to}”.`);
}

async function keep(ones) {
  const work = Array.from(grouped(ones, (one) => one.kind), ([kind, some]) => () => api.keep(idsOf(some), kind));
  await changeModel(work, `Kept ${plural(idsOf(ones).length, "photo")}: not suggested again.`);
}

export const take = () => complain("Photos are taken in Teach, Try and Sort.", $("review-messages"));

export function setUp() {
  selection = new Selection($("findings"), (chosen) => tellChosen(chosen));
  const tellChosen = setUpBar($("review-bar"), () => selection, "finding");
  const chosen = () => [...selection.chosen].map((key) => found.get(key)).filter(Boolean);
  $("review-apply").addEventListener("click", () => applyFirm(chosen()));
  $("review-move").addEventListener("click", () => move(chosen()));
  $("review-remove").addEventListener("click", () => remove(chosen()));
  $("review-keep").addEventListener("click", () => keep(chosen()));
  $("enough-all").addEventListener("click", () => enough(true));
  whenChanged(() => { if (!$("view-review").hidden) open(); });
}
