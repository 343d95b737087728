/**
 * Keeps the client's page for when there is no network. Answers of the API never pass through
 * here: the page keeps the public ones itself, and nothing else is kept.
 */

export {};

declare const __FILES__: string[];
declare const __VERSION__: string;

const worker = self as unknown as ServiceWorkerGlobalScope;
const CACHE = `panda-mdp page ${__VERSION__}`;
const address = (name: string) => new URL(name, worker.registration.scope).href;
const files = new Set(__FILES__.map(address));
const page = address("./");

worker.addEventListener("install", (event) => {
  event.waitUntil(
    (async () => {
      await (await caches.open(CACHE)).addAll([...files]);
      await worker.skipWaiting();
    })(),
  );
});

worker.addEventListener("activate", (event) => {
  event.waitUntil(
    (async () => {
      for (const name of await caches.keys()) {
        if (name.startsWith("panda-mdp page ") && name !== CACHE) await caches.delete(name);
      }
      await worker.clients.claim();
    })(),
  );
});

worker.addEventListener("fetch", (event) => {
  const url = event.request.url.split("#")[0];
  if (event.request.method !== "GET" || !files.has(url)) return;
  event.respondWith(url === page ? newest(event.request) : oldest(event.request, url));
});

/** The page itself: the server's, or the one that is kept. */
async function newest(request: Request): Promise<Response> {
  try {
    const response = await fetch(request);
    if (response.ok) return response;
    return (await caches.match(page)) ?? response;
  } catch (error) {
    const before = await caches.match(page);
    if (before) return before;
    throw error;
  }
}

/** Parts of the page have their content's hash in their name. */
async function oldest(request: Request, url: string): Promise<Response> {
  return (await caches.match(url)) ?? fetch(request);
}
