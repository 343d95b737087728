/** IndexedDB as promises. A write counts when the browser says that it is on disk. */

const NAME = "panda-mdp";
const VERSION = 2;
export const STORES = ["settings", "entries", "outbox"] as const;
export type StoreName = (typeof STORES)[number];

export function openDatabase(factory: IDBFactory): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const asked = factory.open(NAME, VERSION);
    asked.onupgradeneeded = (event) => {
      const database = asked.result;
      if (event.oldVersion === 1) {
        if (asked.transaction) forgetSent(asked.transaction.objectStore("outbox"));
        return;
      }
      database.createObjectStore("settings");
      const entries = database.createObjectStore("entries", { keyPath: "id" });
      entries.createIndex("memo", "memo");
      entries.createIndex("period", "period");
      database.createObjectStore("outbox", { keyPath: "id" });
    };
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
    asked.onblocked = () => reject(new Error("another tab holds an older version open"));
  });
}

/** Reports of an earlier version: what was sent is let go, and what waits loses its output. */
function forgetSent(outbox: IDBObjectStore): void {
  const all = outbox.getAll() as IDBRequest<Record<string, unknown>[]>;
  all.onsuccess = () => {
    for (const { id, entry, deployment, version, at, state } of all.result) {
      outbox.delete(id as string);
      if (state !== "waiting") continue;
      outbox.put({ id, entry, deployment, version, at, state, problem: null });
    }
  };
}

/** The answer of one request. */
export function answer<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Read in one transaction. */
export async function read<T>(
  database: IDBDatabase, store: StoreName, action: (store: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  return answer(action(database.transaction(store).objectStore(store)));
}

/** Write in one transaction, and wait until it is durable. */
export function write(
  database: IDBDatabase, store: StoreName, action: (store: IDBObjectStore) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(store, "readwrite", { durability: "strict" });
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
    transaction.onerror = () => reject(transaction.error);
    action(transaction.objectStore(store));
  });
}

const waiting = new Map<string, Promise<unknown>>();

/** Run alone, across tabs where the browser has locks, and in this page in any case. */
export async function exclusively<T>(name: string, action: () => Promise<T>): Promise<T> {
  if (typeof navigator !== "undefined" && navigator.locks) {
    return (await navigator.locks.request(name, action)) as T;
  }
  const before = waiting.get(name) ?? Promise.resolve();
  const mine = before.catch(() => undefined).then(action);
  waiting.set(name, mine);
  return mine;
}
