/**
 * Public answers kept for later, so that the page works without a network. Only what everyone may
 * read is kept: no token, no report, nothing that depends on a place.
 */

const CACHE = "panda-mdp data";

function available(): boolean {
  return typeof caches !== "undefined";
}

export async function keep(url: URL, body: BodyInit, type: string): Promise<void> {
  if (!available()) return;
  try {
    const cache = await caches.open(CACHE);
    await cache.put(url, new Response(body, { headers: { "content-type": type } }));
  } catch {
    // A full disk costs the way to work offline, and nothing else.
  }
}

export async function kept(url: URL): Promise<Response | null> {
  if (!available()) return null;
  try {
    return (await (await caches.open(CACHE)).match(url)) ?? null;
  } catch {
    return null;
  }
}

/** Drop table files that are no longer in force. */
export async function keepOnly(files: readonly URL[]): Promise<void> {
  if (!available()) return;
  const wanted = new Set(files.map((url) => url.href));
  const cache = await caches.open(CACHE);
  for (const request of await cache.keys()) {
    if (request.url.endsWith("/file") && !wanted.has(request.url)) await cache.delete(request);
  }
}
