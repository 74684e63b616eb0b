/** Proofs of possession at a resource server (RFC 9449). */

import { importPublicKey, parseJws, parseObject, sha256, thumbprint, verifyJws, type Jwk } from "./jose.js";

export const PROOF_ALGORITHMS = ["ES256", "RS256", "PS256", "EdDSA", "Ed25519"];
export type ProofCheck = `dpop_${"proof" | "key" | "htm" | "htu" | "ath" | "iat" | "jti"}`;

const MAX_SIZE = 16384;
const TOLERANCE = 60;
const MAX_JTI = 256;
const MAX_USED = 100_000;
const PRIVATE_MEMBERS = ["d", "k", "p", "q", "dp", "dq", "qi", "oth"];

/** The proofs that were used in the last two minutes, in this process, up to a limit. */
export class UsedProofs {
  readonly #until = new Map<string, number>(); // in the order of their times

  /** Record a proof. Returns false if it was used before. */
  add(proof: string, now: number): boolean {
    for (const [each, until] of this.#until) {
      if (until > now && this.#until.size < MAX_USED) break;
      this.#until.delete(each);
    }
    if (this.#until.has(proof)) return false;
    this.#until.set(proof, now + 2 * TOLERANCE);
    return true;
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
  if (!isPublicKey(jwk)) return "dpop_proof";
  const key = await importPublicKey(jwk, alg);
  const claims = parseObject(jws.payload);
  if (!key || !claims || !(await verifyJws(jws, alg, key))) return "dpop_proof";
  const fingerprint = await thumbprint(jwk);
  if (fingerprint !== boundTo) return "dpop_key";
  if (claims["htm"] !== request.method) return "dpop_htm";
  const url = normalizeUrl(request.url);
  if (url === null || normalizeUrl(claims["htu"]) !== url) return "dpop_htu";
  if (claims["ath"] !== (await sha256(token))) return "dpop_ath";
  const { iat, jti } = claims;
  if (typeof iat !== "number" || Math.abs(now - iat) > TOLERANCE) return "dpop_iat";
  if (typeof jti !== "string" || jti.length < 1 || jti.length > MAX_JTI) return "dpop_jti";
  return used.add(`${fingerprint} ${jti}`, now) ? null : "dpop_jti";
}

function isPublicKey(jwk: unknown): jwk is Jwk {
  return typeof jwk === "object" && jwk !== null && !PRIVATE_MEMBERS.some((member) => member in jwk);
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
