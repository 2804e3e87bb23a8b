// The page: teach, try, and look after the classes.

import * as api from "./api.js";
import { Gallery } from "./gallery.js";

const $ = (id) => document.getElementById(id);
const make = (kind, className, text) => {
  const element = document.createElement(kind);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};
const plural = (count, one) => `${count.toLocaleString("en")} ${one}${count === 1 ? "" : one.endsWith("s") ? "es" : "s"}`;
const percent = (share) => `${(100 * share).toFixed(share > 0.995 || share < 0.0005 ? 0 : 1)} %`;

let limits = { photos: 50, body_bytes: 64 * 2 ** 20 };
let chosen = []; // photos to learn from: {file, url}
let target = "teach"; // where pasted photos go
let open = null; // the class of the dialog

const gallery = new Gallery($("gallery"), { onOpen: showClass, onFound: tellFound, onError: complain });

let alertTimer, toastTimer;
let toastState; // that the change in the toast has led to
function complain(error) {
  $("alert").textContent = error.message;
  clearTimeout(alertTimer);
  alertTimer = setTimeout(() => { $("alert").textContent = ""; }, 9000);
}

function toast(text, { undo } = {}) {
  $("toast-text").textContent = text;
  toastState = undo;
  $("toast-undo").hidden = undo === undefined;
  $("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $("toast").hidden = true; }, 12000);
}

const message = (kind, strong, text) => {
  const box = make("div", `message ${kind}`);
  if (strong) box.append(make("strong", "", strong), " ");
  box.append(text);
  return box;
};

function tellFound(total, search) {
  $("found").textContent = search ? `${plural(total, "class")} with “${search}”` : total ? "" : "None yet. Teach the first one above.";
}

async function tellModel() {
  const model = await api.model();
  limits = model.limits;
  $("summary").replaceChildren(plural(model.classes, "class"), make("span", "wide", `, ${model.backbone}`));
}

async function changed(fresh) {
  await Promise.all([gallery.reload({ fresh }), tellModel()]).catch(complain);
}

function pictures(files) {
  const images = Array.from(files).filter((file) => file.type.startsWith("image/") || /\.(jpe?g|png|webp|gif|bmp|tiff?|mpo)$/i.test(file.name));
  const others = files.length - images.length;
  if (others) complain(new api.Failure("", `${plural(others, "file")} left out`, "Only pictures can be used"));
  return images;
}

function choose(files) {
  for (const file of pictures(files)) {
    if (chosen.length >= limits.photos) {
      complain(new api.Failure("", `At most ${limits.photos} photos at once`, "Learn these first, then add more"));
      break;
    }
    chosen.push({ file, url: URL.createObjectURL(file) });
  }
  showChosen();
}

function showChosen() {
  $("chosen").replaceChildren(...chosen.map((photo, index) => {
    const item = make("li");
    const image = make("img");
    Object.assign(image, { src: photo.url, alt: photo.file.name || `photo ${index + 1}` });
    const remove = make("button", "", "×");
    Object.assign(remove, { type: "button", ariaLabel: `Remove ${photo.file.name || `photo ${index + 1}`}` });
    remove.addEventListener("click", () => {
      URL.revokeObjectURL(photo.url);
      chosen = chosen.filter((other) => other !== photo);
      showChosen();
      ($("chosen").querySelectorAll("button")[index] || $("learn")).focus();
    });
    item.append(image, remove);
    return item;
  }));
  $("clear").hidden = !chosen.length;
  $("learn").textContent = chosen.length ? `Learn from ${plural(chosen.length, "photo")}` : "Learn";
}

function clearChosen() {
  chosen.forEach((photo) => URL.revokeObjectURL(photo.url));
  chosen = [];
  showChosen();
}

function progress(loaded, total) {
  const done = loaded >= total;
  if (done) $("progress").removeAttribute("value");
  else $("progress").value = (100 * loaded) / total;
  $("progress-text").textContent = done ? "Looking at the photos" : `Uploading, ${Math.round((100 * loaded) / total)} %`;
}

async function learn(event) {
  event.preventDefault();
  const name = $("name").value.trim();
  const problem = !name ? "Give the class a name." : !chosen.length ? "Add photos of it: about five are good." : tooLarge(chosen);
  if (problem) {
    $("teach-result").replaceChildren(message("bad", "", problem));
    (name ? document.querySelector("[data-pick=teach]") : $("name")).focus();
    return;
  }
  $("learn").disabled = true;
  $("upload").hidden = false;
  progress(0, 1);
  try {
    const report = await api.learn(name, chosen.map((photo) => photo.file), progress);
    tellLearned(report);
    clearChosen();
    $("name").value = "";
    $("name-note").textContent = "";
    await changed(report.name);
  } catch (error) {
    $("teach-result").replaceChildren(message("bad", "", error.message));
  } finally {
    $("learn").disabled = false;
    $("upload").hidden = true;
  }
}

function tooLarge(photos) {
  const bytes = photos.reduce((sum, photo) => sum + photo.file.size, 0);
  return bytes > limits.body_bytes ? `These photos have ${(bytes / 1e6).toFixed(0)} MB together, the limit is ${(limits.body_bytes / 1e6).toFixed(0)} MB. Learn from some of them first, then add the others.` : "";
}

function tellLearned(report) {
  const verb = report.created ? "Learned" : "Added to";
  const number = report.created ? `from ${plural(report.photos, "photo")}.` : `, now ${plural(report.photos, "photo")}.`;
  const said = [message("good", `${verb} ${report.name}`, report.added ? number : "before: nothing new in these photos.")];
  if (!report.confusion && (report.verdict === "close" || report.verdict === "confused")) { // else a warning says it
    const how = report.verdict === "confused" ? "very much " : "";
    said.push(message("warn", `Looks ${how}like ${report.nearest}.`, "They may be mistaken for each other; more photos of both help."));
  }
  said.push(...report.warnings.map((text) => message("warn", "", text)));
  $("teach-result").replaceChildren(...said);
}

let noteTimer;
function noteName() {
  clearTimeout(noteTimer);
  noteTimer = setTimeout(async () => {
    const name = $("name").value.trim().normalize("NFC");
    const found = name ? await api.classes(name, 0, 50).catch(() => null) : null;
    const known = found?.classes.find((entry) => entry.name === name);
    if ($("name").value.trim().normalize("NFC") !== name) return;
    $("name-note").textContent = known ? `Known already, from ${plural(known.photos, "photo")}: these will be added.` : "";
  }, 250);
}

async function recognize(files) {
  const photos = pictures(files).slice(0, limits.photos);
  if (!photos.length) return;
  const problem = tooLarge(photos.map((file) => ({ file })));
  if (problem) return complain(new api.Failure("", problem, ""));
  $("try-result").replaceChildren(message("", "", "Looking …"));
  try {
    const { predictions } = await api.predict(photos);
    $("try-result").replaceChildren(...predictions.map((one, index) => seen(one, photos[index])));
  } catch (error) {
    $("try-result").replaceChildren(message("bad", "", error.message));
  }
}

function seen(one, file) {
  const box = make("div", one.unknown ? "seen unknown-photo" : "seen");
  const image = make("img");
  image.alt = one.photo;
  image.src = URL.createObjectURL(file);
  image.onload = () => URL.revokeObjectURL(image.src);
  image.onerror = () => { image.removeAttribute("src"); };
  const text = make("div");
  text.append(make("p", one.unknown ? "label unknown" : "label", one.unknown ? "Unknown" : one.label));
  if (one.unknown) text.append(make("p", "muted", "Unlike every class it knows. The nearest are:"));
  const answers = make("ul", "answers");
  for (const { label, probability } of one.candidates) {
    const item = make("li");
    const track = make("span", "track");
    const fill = make("span", "fill");
    fill.style.width = `${100 * probability}%`;
    fill.style.display = "block";
    track.append(fill);
    item.append(make("span", "who", label), make("span", "share", percent(probability)), track);
    answers.append(item);
  }
  text.append(answers);
  box.append(image, text);
  return box;
}

function showClass(entry) {
  open = entry;
  $("about-title").textContent = entry.name;
  $("about-note").textContent = `${plural(entry.photos, "photo")}${entry.base ? ", a class of the base" : ""}`;
  $("new-name").value = entry.name;
  $("about-error").textContent = "";
  $("purge").textContent = "Forget without a trace";
  $("about-photos").replaceChildren(...Array.from({ length: Math.min(entry.thumbnails, 60) }, (_, number) => {
    const item = make("li");
    const image = Object.assign(make("img"), { alt: `Photo ${number + 1} of ${entry.name}` });
    image.onerror = () => item.remove();
    api.showPicture(image, entry.name, number, entry.version).catch(() => item.remove());
    item.append(image);
    return item;
  }));
  $("about").showModal();
}

async function renameClass(event) {
  event.preventDefault();
  const wanted = $("new-name").value.trim();
  if (wanted === open.name) return $("about").close();
  try {
    const answer = await api.rename(open.name, wanted);
    $("about").close();
    toast(`“${open.name}” is now called “${answer.classes[0]}”.`, { undo: answer.state });
    await changed(answer.classes[0]);
  } catch (error) {
    $("about-error").textContent = error.message;
  }
}

async function forgetClass(purge) {
  if (purge && $("purge").textContent !== "Really? This cannot be undone") {
    $("purge").textContent = "Really? This cannot be undone";
    return;
  }
  try {
    const answer = await api.forget(open.name, purge);
    $("about").close();
    const erased = answer.pending ? `“${open.name}”: ${answer.pending}.` : `“${open.name}” is gone without a trace.`;
    toast(purge ? erased : `Forgot “${open.name}”.`, { undo: purge ? undefined : answer.state });
    await changed();
  } catch (error) {
    $("about-error").textContent = error.message;
  }
}

const DONE = { learn: "learning", add: "adding to", forget: "forgetting", rename: "renaming to", merge: "merging" };
async function undo(state) {
  try {
    const answer = await api.undo(state);
    const named = answer.classes.slice(0, 5).map((name) => `“${name}”`).join(", ");
    const more = answer.total > 5 ? ` and ${plural(answer.total - 5, "other class")}` : "";
    toast(`Took back ${DONE[answer.action] || answer.action} ${named}${more}.`);
    await changed();
  } catch (error) {
    complain(error);
    if (error.code === "changed") await changed();
  }
}

let stream = null;
const take = (files) => (target === "try" ? recognize(files) : choose(files));

async function startCamera(where) {
  target = where;
  if (!navigator.mediaDevices?.getUserMedia) return $("snap").click(); // the phone's own camera application
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch (error) {
    const reason = error.name === "NotFoundError" ? "There is no camera" : error.name === "NotAllowedError" ? "The browser does not allow the camera" : "The camera cannot be used";
    return complain(new api.Failure("", reason, "Choose photos instead"));
  }
  $("taken").textContent = "";
  $("video").srcObject = stream;
  $("camera").showModal();
  await $("video").play();
}

function stopCamera() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  $("video").srcObject = null;
}

function shoot() {
  const video = $("video");
  const canvas = Object.assign(make("canvas"), { width: video.videoWidth, height: video.videoHeight });
  if (!canvas.width) return;
  canvas.getContext("2d").drawImage(video, 0, 0);
  canvas.toBlob((blob) => {
    take([new File([blob], `camera ${chosen.length + 1}.jpg`, { type: "image/jpeg" })]);
    if (target === "try") $("camera").close();
    else $("taken").textContent = `${plural(chosen.length, "photo")} chosen`;
  }, "image/jpeg", 0.92);
}

function dropZone(zone, where) {
  const over = (event) => { event.preventDefault(); zone.classList.add("over"); };
  zone.addEventListener("dragover", over);
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    target = where;
    take(event.dataTransfer.files);
  });
}

function wire() {
  for (const where of ["teach", "try"]) {
    dropZone($(`${where}-zone`).closest("section"), where);
    const input = $(`pick-${where}`);
    document.querySelector(`[data-pick=${where}]`).addEventListener("click", () => { target = where; input.click(); });
    document.querySelector(`[data-camera=${where}]`).addEventListener("click", () => startCamera(where));
    $(`${where}-zone`).closest("section").addEventListener("focusin", () => { target = where; });
    input.addEventListener("change", () => { target = where; take(input.files); input.value = ""; });
  }
  $("snap").addEventListener("change", () => { take($("snap").files); $("snap").value = ""; });
  for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
  addEventListener("paste", (event) => { if (event.clipboardData.files.length) { event.preventDefault(); take(event.clipboardData.files); } });
  $("teach").addEventListener("submit", learn);
  $("clear").addEventListener("click", () => { clearChosen(); document.querySelector("[data-pick=teach]").focus(); });
  $("name").addEventListener("input", noteName);
  $("undo").addEventListener("click", () => undo());
  $("toast-undo").addEventListener("click", () => undo(toastState));
  $("toast-close").addEventListener("click", () => { $("toast").hidden = true; });
  $("rename").addEventListener("submit", renameClass);
  $("forget").addEventListener("click", () => forgetClass(false));
  $("purge").addEventListener("click", () => forgetClass(true));
  $("more").addEventListener("click", () => { $("about").close(); $("name").value = open.name; noteName(); document.querySelector("[data-pick=teach]").focus(); });
  $("shoot").addEventListener("click", shoot);
  $("camera").addEventListener("close", stopCamera);
  for (const button of document.querySelectorAll("dialog .close")) button.addEventListener("click", () => button.closest("dialog").close());
  let searchTimer;
  $("search").addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(() => gallery.reload({ search: $("search").value.trim() }).catch(complain), 120);
  });
}

let asking = null; // several requests may find out at once that a token is wanted
api.whenTokenIsWanted((error) => {
  asking ||= new Promise((resolve) => {
    $("token-error").textContent = error.code === "wrong_token" ? "That was not the token." : "";
    $("ask-token").showModal();
    $("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      api.useToken($("token").value.trim());
      $("token").value = "";
      $("ask-token").close();
      asking = null;
      resolve();
    }, { once: true });
    $("ask-token").addEventListener("cancel", (event) => event.preventDefault());
  });
  return asking;
});

api.whenLoading((error) => { $("summary").textContent = error.message; });

async function begin() {
  try {
    await tellModel();
    await gallery.reload();
  } catch (error) {
    complain(error);
  }
}

wire();
begin();
