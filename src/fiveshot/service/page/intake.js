// New photos: dropped (folders too), pasted, chosen, or taken with the camera.

import { $, button, inSlices, make, plural } from "./elements.js";
import { complain, quiet } from "./notices.js";

const PICTURE = /\.(jpe?g|jfif|png|webp|gif|bmp|tiff?|mpo|hei[cf]|avif)$/i;
const NEVER_MEANT = /^(\.|thumbs\.db$|desktop\.ini$)/i; // files of operating systems
const touch = matchMedia("(hover: none) and (pointer: coarse)");
let take = () => {};
let stream = null;

// Keeps only pictures, and reports other files once. Browsers need time to find the types of thousands of files.
async function hand(found) {
  quiet();
  const pictures = [];
  let others = 0;
  await inSlices(found, ({ file, folder = nameOf((file.webkitRelativePath || "").split("/").slice(0, -1)) }) => {
    if (NEVER_MEANT.test(file.name)) return;
    if (PICTURE.test(file.name) || file.type.startsWith("image/")) pictures.push({ file, folder });
    else others += 1;
  });
  if (others) complain(`${plural(others, "file")} left out: only pictures can be used.`);
  else if (!found.length) complain("There are no pictures in it.");
  if (pictures.length) take(pictures);
}

const loose = (files) => Array.from(files, (file) => ({ file }));
// Each folder with photos is a class, named by its path inside of the given folder.
const nameOf = (folders) => (folders.length > 1 ? folders.slice(1).join("/") : folders[0] || "");

// Folders must be requested during the event; their contents are read later.
async function dropped(transfer) {
  const entries = Array.from(transfer.items || [], (item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return loose(transfer.files);
  const found = [];
  for (const entry of entries) await walk(entry, [], found);
  return found;
}

async function walk(entry, folders, found) {
  if (entry.isFile) {
    found.push({ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), folder: nameOf(folders) });
    return;
  }
  const reader = entry.createReader();
  for (;;) { // a hundred at a time
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return;
    for (const inner of some) await walk(inner, [...folders, entry.name], found);
  }
}

async function hasCamera() {
  if (!navigator.mediaDevices?.getUserMedia) return touch.matches; // the phone's own camera application
  const devices = await navigator.mediaDevices.enumerateDevices().catch(() => []);
  return devices.some((device) => device.kind === "videoinput");
}

async function startCamera() {
  if (!navigator.mediaDevices?.getUserMedia) return $("snap").click();
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch (error) {
    const reason = error.name === "NotAllowedError" ? "The browser does not allow the camera" : "The camera cannot be used";
    return complain(`${reason}. Choose photos instead.`);
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

let shots = 0;
function shoot() {
  const video = $("video");
  const canvas = Object.assign(make("canvas"), { width: video.videoWidth, height: video.videoHeight });
  if (!canvas.width) return;
  canvas.getContext("2d").drawImage(video, 0, 0);
  canvas.toBlob((blob) => {
    shots += 1;
    hand(loose([new File([blob], `camera ${shots}.jpg`, { type: "image/jpeg" })]));
    if ($("camera").dataset.once) $("camera").close();
    else $("taken").textContent = `${plural(shots, "photo")} taken`;
  }, "image/jpeg", 0.92);
}

function chooser(files, folders) {
  const input = Object.assign(make("input"), { type: "file", multiple: true, hidden: true });
  if (folders) input.webkitdirectory = true;
  else input.accept = "image/*,.heic,.heif";
  input.id = files;
  input.addEventListener("change", () => { hand(loose(input.files)); input.value = ""; });
  return input;
}

// Adds the buttons of a zone: photos, a folder if the browser supports it, a camera if there is one.
export function setUpZone(zone, name, { once = false } = {}) {
  const photos = chooser(`pick-${name}`, false);
  const folder = chooser(`folder-${name}`, true);
  const ways = zone.querySelector(".ways");
  const camera = button("Use camera", "camera", () => {
    $("camera").dataset.once = once ? "yes" : "";
    shots = 0;
    startCamera();
  });
  camera.hidden = true;
  ways.append(button("Choose photos", "choose", () => photos.click()), photos);
  if ("webkitdirectory" in folder && !touch.matches) ways.append(button("Choose a folder", "choose-folder", () => folder.click()), folder);
  ways.append(camera);
  const look = async () => { camera.hidden = !(await hasCamera()); };
  look();
  navigator.mediaDevices?.addEventListener?.("devicechange", look);
}

// Everything that is dropped or pasted goes to the open view.
export function setUpIntake(taker) {
  take = taker;
  const over = (yes) => document.body.classList.toggle("over", yes);
  addEventListener("dragover", (event) => { event.preventDefault(); over(true); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) over(false); });
  addEventListener("drop", async (event) => {
    event.preventDefault();
    over(false);
    try {
      await hand(await dropped(event.dataTransfer));
    } catch {
      complain("These files cannot be read. Choose the photos instead.");
    }
  });
  addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    hand(loose(event.clipboardData.files));
  });
  $("snap").addEventListener("change", () => { hand(loose($("snap").files)); $("snap").value = ""; });
  $("shoot").addEventListener("click", shoot);
  $("camera").addEventListener("close", stopCamera);
}
