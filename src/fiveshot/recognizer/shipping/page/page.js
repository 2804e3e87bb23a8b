// The page: takes photos and the camera's picture, shows what they are. Nothing leaves the device.

const $ = (id) => document.getElementById(id);
const policy = globalThis.trustedTypes?.createPolicy("fiveshot", { createScriptURL: (address) => address });
const script = (address) => (policy ? policy.createScriptURL(address) : address);
const percent = (share) => {
  const hundredths = 100 * share;
  if (hundredths > 0 && hundredths < 1) return "under 1 %";
  return `${hundredths > 99 && hundredths < 100 ? "over 99" : Math.round(hundredths)} %`;
};
const waiting = new Map(); // by the number of a question, what to do with its answer
let asked = 0;
let worker = null;
let stream = null;

function make(tag, kind, ...inside) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...inside.filter((one) => one !== null));
  return made;
}

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", bad);
}

function ask(picture, transfer = []) {
  return new Promise((resolve, reject) => {
    asked += 1;
    waiting.set(asked, { resolve, reject });
    worker.postMessage({ id: asked, picture }, transfer);
  });
}

function hear({ data }) {
  if (data.failed) return say(`It cannot be loaded: ${data.failed}. Load the page again.`, true);
  if (data.loaded) {
    $("loading").value = data.loaded / data.total;
    return say(`Loading, ${(data.loaded / 1e6).toFixed(0)} of ${(data.total / 1e6).toFixed(0)} MB`);
  }
  if (data.ready) {
    $("loading").hidden = true;
    document.body.dataset.ready = "yes";
    return say(navigator.serviceWorker?.controller ? "Ready, also without a network." : "Ready.");
  }
  const { resolve, reject } = waiting.get(data.id);
  waiting.delete(data.id);
  return data.error ? reject(new Error(data.error)) : resolve(data.answer);
}

function lines(answer) {
  const likely = answer.candidates.filter((one) => one.probability === null || one.probability >= 0.01).slice(0, 3);
  if (answer.unknown) {
    return [make("p", "label unknown", "Unknown"), make("p", "small", `Unlike every class it knows. Nearest: ${likely.map((one) => one.label).join(", ")}.`)];
  }
  if (answer.between) {
    const shown = likely.map((one) => `${one.label} ${percent(one.probability)}`).join(", ");
    return [make("p", "label unknown", `Unsure: ${answer.between.join(" or ")}`), make("p", "small", shown)];
  }
  const head = make("p", "label", answer.label);
  if (answer.probability !== null) head.append(" ", make("span", "share", percent(answer.probability)));
  if (answer.group) head.append(make("span", "muted small", ", a group of classes"));
  const others = likely.filter((one) => one.label !== answer.label);
  return [
    head,
    others.length ? make("p", "small muted", `Or ${others.map((one) => `${one.label} ${percent(one.probability)}`).join(", ")}`) : null,
    answer.canBeUnknown ? null : make("p", "small muted", "Nothing can be called unknown yet: other things get the name of a class, too."),
  ];
}

function fill(place, answer) {
  Object.assign(place.dataset, { label: answer.label ?? "", probability: answer.probability, unknown: answer.unknown });
  place.replaceChildren(...lines(answer).filter((one) => one !== null));
}

async function takePhoto(file) {
  const image = Object.assign(make("img"), { alt: "", src: URL.createObjectURL(file) });
  image.addEventListener("load", () => URL.revokeObjectURL(image.src));
  const text = make("div", "said", make("p", "muted", "Looking …"));
  const item = make("li", "answer", image, make("div", "grow", make("p", "file muted small", file.name), text));
  item.dataset.name = file.name;
  $("answers").prepend(item);
  try {
    const answer = await ask(file);
    fill(text, answer);
    say(`Ready. The last photo took ${answer.seconds.toFixed(1)} s.`);
  } catch (error) {
    text.replaceChildren(make("p", "error", error.message));
  }
}

function take(files) {
  for (const file of files) if (file.type.startsWith("image/") || !file.type) takePhoto(file);
}

async function startCamera() {
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch (error) {
    return say(error.name === "NotAllowedError" ? "The browser does not allow the camera." : "The camera cannot be used.", true);
  }
  const video = $("video");
  video.srcObject = stream;
  $("camera").hidden = false;
  $("start").hidden = true;
  await video.play();
  while (stream) { // one picture after the other, as fast as they are looked at
    const picture = await createImageBitmap(video);
    try {
      const answer = await ask(picture, [picture]);
      if (stream) fill($("seen"), answer);
    } catch (error) {
      $("seen").replaceChildren(make("p", "error", error.message));
    }
    await new Promise(requestAnimationFrame);
  }
}

function stopCamera() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  $("video").srcObject = null;
  $("camera").hidden = true;
  $("start").hidden = false;
  $("seen").replaceChildren();
}

function listen() {
  $("choose").addEventListener("click", () => $("files").click());
  $("files").addEventListener("change", () => { take($("files").files); $("files").value = ""; });
  $("start").addEventListener("click", startCamera);
  $("stop").addEventListener("click", stopCamera);
  $("start").hidden = !navigator.mediaDevices?.getUserMedia;
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => { event.preventDefault(); take(event.dataTransfer.files); });
  addEventListener("paste", (event) => take(event.clipboardData.files));
  addEventListener("pagehide", stopCamera);
}

// With the service worker in charge, everything that is loaded is kept, and is there without a network.
async function keep() {
  if (!navigator.serviceWorker) return; // an address without https
  try {
    await navigator.serviceWorker.register(script("sw.js"));
    if (navigator.serviceWorker.controller) return;
    await new Promise((resolve) => {
      navigator.serviceWorker.addEventListener("controllerchange", resolve, { once: true });
      setTimeout(resolve, 3000); // it works without, too
    });
  } catch (error) {
    console.info("the page is not kept for later:", error.message);
  }
}

async function begin() {
  listen();
  await keep();
  worker = new Worker(script("worker.js"), { type: "module" });
  worker.addEventListener("message", hear);
  worker.addEventListener("error", () => say("This browser is too old for the page.", true));
  const model = await (await fetch("model.json")).json();
  $("classes").replaceChildren(...model.classes.map((name) => make("li", "", name)));
  $("count").textContent = `It knows ${model.classes.length.toLocaleString("en")} ${model.classes.length === 1 ? "class" : "classes"}.`;
}

begin().catch((error) => say(`It cannot be loaded: ${error.message}`, true));
