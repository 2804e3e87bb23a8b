// Keeps everything that the page has loaded. The export writes VERSION and FILES above: another export, another version.

const PREFIX = `fiveshot ${registration.scope} `; // one host may have several of these pages
const NAME = PREFIX + VERSION;

addEventListener("install", (event) => {
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll(FILES.map((file) => new Request(file, { cache: "reload" })))));
});

async function takeOver() {
  const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== NAME);
  await Promise.all(old.map((name) => caches.delete(name)));
  await clients.claim();
}

addEventListener("activate", (event) => event.waitUntil(takeOver()));

async function answer(event) {
  const cache = await caches.open(NAME);
  const known = await cache.match(event.request.mode === "navigate" ? "./" : event.request, { ignoreSearch: true, ignoreVary: true });
  if (known) return known;
  const found = await fetch(event.request);
  if (found.ok) event.waitUntil(cache.put(event.request, found.clone()).catch(() => {})); // no room: it works with a network
  return found;
}

addEventListener("fetch", (event) => {
  const here = event.request.method === "GET" && event.request.url.startsWith(registration.scope);
  if (here) event.respondWith(answer(event));
});
