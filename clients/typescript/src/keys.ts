/** The key set of the issuer, fetched when it is needed and cached. */

import { importPublicKey, type Jwk } from "./jose.js";

const MAX_AGE = 900; // Gatepost announces keys at least a day before it uses them
const MIN_INTERVAL = 60;
const TIMEOUT = 10_000;

export class KeySet {
  readonly #url: string;
  readonly #fetch: typeof fetch;
  readonly #now: () => number;
  #keys: Map<string, Jwk> | null = null;
  #imported = new Map<string, Promise<CryptoKey | null>>();
  #fetchedAt = -Infinity;
  #triedAt = -Infinity;
  #fetching: Promise<void> | null = null;

  constructor(url: string, fetcher: typeof fetch, now: () => number) {
    this.#url = url;
    this.#fetch = fetcher;
    this.#now = now;
  }

  /** The key with this id for signatures, or null. Throws if there is no key set. */
  async find(kid: unknown): Promise<Jwk | null> {
    const isKnown = typeof kid === "string" && this.#keys?.has(kid) === true;
    if (this.#isDue(isKnown) || (!isKnown && this.#fetching)) {
      await (this.#fetching ??= this.#refresh().finally(() => (this.#fetching = null)));
    }
    if (!this.#keys) throw new Error("no key set");
    return (typeof kid === "string" && this.#keys.get(kid)) || null;
  }

  /** The key for an algorithm, imported once for each key set. */
  import(jwk: Jwk, alg: string): Promise<CryptoKey | null> {
    const name = `${alg} ${jwk.kid}`;
    const found = this.#imported.get(name) ?? importPublicKey(jwk, alg);
    this.#imported.set(name, found);
    return found;
  }

  #isDue(isKnown: boolean): boolean {
    if (!this.#keys) return true;
    const isOld = this.#now() - this.#fetchedAt > MAX_AGE;
    return (isOld || !isKnown) && this.#now() - this.#triedAt >= MIN_INTERVAL;
  }

  async #refresh(): Promise<void> {
    this.#triedAt = this.#now();
    try {
      const response = await this.#fetch(this.#url, { redirect: "manual", signal: AbortSignal.timeout(TIMEOUT) });
      if (!response.ok) return;
      const { keys } = (await response.json()) as { keys: (Jwk | null)[] };
      this.#keys = new Map(keys.flatMap((key) => (isForSignatures(key) ? [[key.kid, key]] : [])));
      this.#imported = new Map();
      this.#fetchedAt = this.#now();
    } catch {
      // The previous key set stays in use.
    }
  }
}

/** Others are ignored: RFC 7517, section 5. */
function isForSignatures(key: Jwk | null): key is Jwk & { kid: string } {
  return typeof key?.kid === "string" && key.kid !== "" && (key.use === undefined || key.use === "sig");
}
