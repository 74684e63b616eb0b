/** Proofs of possession at a resource server (RFC 9449). */

import { importPublicKey, numericDate, parseJws, parseObject, sha256, thumbprint, verifyJws, type Jwk } from "./jose.js";

export const PROOF_ALGORITHMS = ["ES256", "RS256", "PS256", "EdDSA", "Ed25519"];
export type ProofCheck = `dpop_${"proof" | "key" | "htm" | "htu" | "ath" | "iat" | "jti"}`;

const MAX_SIZE = 16384;
const TOLERANCE = 60;
const MAX_JTI = 256;
const MAX_USED = 1_000_000;
const MAX_USED_OF_ONE_KEY = 100_000;
/** Seconds by which the clock may be set back. */
const SKEW = 10;
/** Seconds. Proofs that expire in the same period are forgotten together. */
const PERIOD = 10;
const PRIVATE_MEMBERS = ["d", "k", "p", "q", "dp", "dq", "qi", "oth"];

/**
 * The used proofs that have not expired, in this process.
 *
 * None is forgotten before it expires. At the limits, new proofs are refused. That of one key keeps a client from using
 * up the memory for the others.
 */
export class UsedProofs {
  readonly #periods = new Map<number, Map<string, string>>(); // by when they expire: proofs, and their keys
  readonly #ofKey = new Map<string, number>(); // how many proofs of a key there are

  constructor(
    readonly limit: number = MAX_USED,
    readonly limitPerKey: number = MAX_USED_OF_ONE_KEY,
  ) {}

  /** Record a proof, by a hash of its key and jti. Returns false if it was used before, or if there are too many. */
  add(key: string, proof: string, issued: number, now: number): boolean {
    this.#forgetExpired(now);
    let count = 0;
    for (const proofs of this.#periods.values()) {
      if (proofs.has(proof)) return false;
      count += proofs.size;
    }
    const ofKey = this.#ofKey.get(key) ?? 0;
    if (ofKey >= this.limitPerKey || count >= this.limit) return false;
    this.#ofKey.set(key, ofKey + 1);
    const period = Math.floor((issued + TOLERANCE + SKEW) / PERIOD);
    const proofs = this.#periods.get(period) ?? new Map<string, string>();
    this.#periods.set(period, proofs.set(proof, key));
    return true;
  }

  /** There are about fifteen periods, because the times of accepted proofs are within TOLERANCE of `now`. */
  #forgetExpired(now: number): void {
    for (const [period, proofs] of this.#periods) {
      if ((period + 1) * PERIOD > now) continue;
      this.#periods.delete(period);
      for (const key of proofs.values()) {
        const left = this.#ofKey.get(key)! - 1;
        if (left > 0) this.#ofKey.set(key, left);
        else this.#ofKey.delete(key);
      }
    }
  }
}

/** Check the proof of a request with a bound token (RFC 9449, section 4.3). Returns the check that failed, or null. */
export async function checkProof(
  proofs: readonly string[],
  request: { method: string; url: string },
  token: string,
  boundTo: unknown,
  used: UsedProofs,
  now: number,
): Promise<ProofCheck | null> {
  const [proof] = proofs;
  if (proof === undefined || proofs.length > 1 || proof.length > MAX_SIZE) return "dpop_proof";
  const jws = parseJws(proof);
  const alg = jws?.header["alg"];
  const jwk = jws?.header["jwk"];
  if (!jws || jws.header["typ"] !== "dpop+jwt" || typeof alg !== "string" || !PROOF_ALGORITHMS.includes(alg)) {
    return "dpop_proof";
  }
  const claims = parseObject(jws.payload);
  if (!isPublicKey(jwk) || !claims) return "dpop_proof";
  // Anyone can send a key that is expensive to verify with, so the keys are compared before that.
  const fingerprint = await thumbprint(jwk);
  if (fingerprint !== boundTo) return "dpop_key";
  const key = await importPublicKey(jwk, alg);
  if (!key || !(await verifyJws(jws, alg, key))) return "dpop_proof";
  if (claims["htm"] !== request.method) return "dpop_htm";
  const url = normalizeUrl(request.url);
  if (url === null || normalizeUrl(claims["htu"]) !== url) return "dpop_htu";
  if (claims["ath"] !== (await sha256(token))) return "dpop_ath";
  const issued = numericDate(claims["iat"]);
  if (issued === null || Math.abs(now - issued) > TOLERANCE) return "dpop_iat";
  const { jti } = claims;
  if (typeof jti !== "string" || jti.length < 1 || jti.length > MAX_JTI) return "dpop_jti";
  return used.add(fingerprint, await sha256(`${fingerprint} ${jti}`), issued, now) ? null : "dpop_jti";
}

function isPublicKey(jwk: unknown): jwk is Jwk {
  return typeof jwk === "object" && jwk !== null && !Array.isArray(jwk) && !PRIVATE_MEMBERS.some((member) => member in jwk);
}

/** A URL without query and fragment, normalized as in RFC 3986, sections 6.2.2 and 6.2.3. Null if it is not one. */
export function normalizeUrl(text: unknown): string | null {
  if (typeof text !== "string" || !/^https?:\/\/[!-[\]-~]+$/i.test(text)) return null;
  const url = parseUrl(text);
  if (!url || url.username || url.password) return null;
  const path = url.pathname.replace(/%([0-9a-f]{2})/gi, (escape, digits: string) => {
    const character = String.fromCharCode(parseInt(digits, 16));
    return /[A-Za-z0-9._~-]/.test(character) ? character : escape.toUpperCase();
  });
  return url.origin + path;
}

function parseUrl(text: string): URL | null {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}
