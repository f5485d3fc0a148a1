// Traces that were dropped here: they stay in this browser, the newest few, so that a design that names one finds it after a reload.
const MOST = 5;

function opened() {
  return new Promise((resolve, reject) => {
    const asked = indexedDB.open("mlsysim", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore("traces");
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
}

async function within(mode, action) {
  const store = await opened();
  try {
    return await new Promise((resolve, reject) => {
      const request = action(store.transaction("traces", mode).objectStore("traces"));
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  } finally {
    store.close();
  }
}

export async function keep(path, { name, text }) {
  try {
    await within("readwrite", (traces) => traces.put({ name, text, at: Date.now() }, path));
    const paths = await within("readonly", (traces) => traces.getAllKeys());
    const held = await Promise.all(paths.map(async (each) => [each, (await kept(each))?.at ?? 0]));
    const old = held.sort((one, other) => other[1] - one[1]).slice(MOST);
    for (const [each] of old) await within("readwrite", (traces) => traces.delete(each));
  } catch {
    // a browser may refuse storage: then a trace is there until the page is left
  }
}

export async function kept(path) {
  try {
    return await within("readonly", (traces) => traces.get(path)) ?? null;
  } catch {
    return null;
  }
}
