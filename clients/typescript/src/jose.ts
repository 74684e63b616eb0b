/** JSON Web Signatures (RFC 7515) and keys (RFC 7517) with WebCrypto. */

import { decodeBase64url, encodeBase64url } from "./base64.js";

/** A key as JSON. The members that a type of key needs are in RFC 7518, section 6, and RFC 8037. */
export interface Jwk {
  kty: string;
  kid?: string;
  use?: string;
  alg?: string | null;
  crv?: string;
  [member: string]: unknown;
}

export interface Jws {
  header: Record<string, unknown>;
  payload: Uint8Array;
  signature: Uint8Array<ArrayBuffer>;
  signed: Uint8Array<ArrayBuffer>;
}

interface Algorithm {
  kty: string;
  crv?: string;
  key: EcKeyImportParams | RsaHashedImportParams | { name: string };
  signature: EcdsaParams | RsaPssParams | { name: string };
}

const ED25519 = { kty: "OKP", crv: "Ed25519", key: { name: "Ed25519" }, signature: { name: "Ed25519" } };
const PSS = { name: "RSA-PSS", hash: "SHA-256" };
const PKCS1 = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
const ALGORITHMS: Readonly<Record<string, Algorithm>> = {
  ES256: {
    kty: "EC",
    crv: "P-256",
    key: { name: "ECDSA", namedCurve: "P-256" },
    signature: { name: "ECDSA", hash: "SHA-256" },
  },
  RS256: { kty: "RSA", key: PKCS1, signature: PKCS1 },
  PS256: { kty: "RSA", key: PSS, signature: { ...PSS, saltLength: 32 } },
  EdDSA: ED25519,
  Ed25519: ED25519,
};
const PUBLIC_MEMBERS: ReadonlyMap<unknown, readonly string[]> = new Map([
  ["EC", ["crv", "kty", "x", "y"]],
  ["OKP", ["crv", "kty", "x"]],
  ["RSA", ["e", "kty", "n"]],
]);
const encoder = new TextEncoder();

/** Throw if the runtime has no WebCrypto, so that it is not taken for a wrong signature. */
export function requireWebCrypto(): void {
  if (globalThis.crypto?.subtle) return;
  throw new TypeError("WebCrypto is missing. In Node 18, start node with --experimental-global-webcrypto.");
}

/** The parts of a compact JWS, or null if it is malformed or needs extensions (`crit`, `b64`). */
export function parseJws(text: string): Jws | null {
  const [first, second, third, ...more] = text.split(".");
  if (first === undefined || second === undefined || third === undefined || more.length > 0) return null;
  const [head, payload, signature] = [first, second, third].map(decodeBase64url);
  const header = head && parseObject(head);
  if (!header || "crit" in header || "b64" in header || !payload || !signature) return null;
  return { header, payload, signature, signed: encoder.encode(`${first}.${second}`) };
}

/** The object in a JSON text, or null if it is anything else or one of its members is repeated. */
export function parseObject(bytes: Uint8Array): Record<string, unknown> | null {
  try {
    const text = decodeUtf8(bytes);
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) && !hasRepeatedMember(text)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** The text in UTF-8. Throws if it is not. A byte order mark stays, with which the text is not JSON. */
export function decodeUtf8(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

/** Whether an object in a valid JSON text has two members of the same name, of which parsers take different ones. */
function hasRepeatedMember(json: string): boolean {
  const objects: Set<string>[] = [];
  for (const [token, name] of json.matchAll(/("(?:[^"\\]|\\.)*")\s*:|"(?:[^"\\]|\\.)*"|[{}]/g)) {
    if (token === "{") objects.push(new Set());
    else if (token === "}") objects.pop();
    else if (name !== undefined) {
      const names = objects.at(-1)!;
      if (names.size === names.add(JSON.parse(name)).size) return true;
    }
  }
  return false;
}

/** A NumericDate (RFC 7519, section 2) before the year 6326, or null if it is none. */
export function numericDate(value: unknown): number | null {
  return typeof value === "number" && value >= 0 && value < 2 ** 37 ? value : null;
}

/** Import a public key for an algorithm, or return null if the key is not for it. */
export async function importPublicKey(jwk: Jwk, alg: string): Promise<CryptoKey | null> {
  const algorithm = ALGORITHMS[alg];
  if (!algorithm || !fits(jwk, alg, algorithm) || (jwk.kty === "RSA" && !isUsableRsa(jwk))) return null;
  try {
    return await crypto.subtle.importKey("jwk", publicMembers(jwk), algorithm.key, false, ["verify"]);
  } catch {
    return null;
  }
}

export async function verifyJws(jws: Jws, alg: string, key: CryptoKey): Promise<boolean> {
  return crypto.subtle.verify(ALGORITHMS[alg]!.signature, key, jws.signature, jws.signed);
}

/** Sign claims with a private key. The algorithm is `alg` of the key, or the usual one of its type. */
export async function signJwt(jwk: Jwk, claims: Record<string, unknown>): Promise<string> {
  const alg = jwk.alg ?? { EC: "ES256", OKP: "EdDSA", RSA: "PS256" }[jwk.kty] ?? "";
  const algorithm = ALGORITHMS[alg];
  if (!algorithm || !fits(jwk, alg, algorithm)) {
    throw new TypeError("privateKey must be a private JWK of the type EC (P-256), OKP (Ed25519) or RSA");
  }
  const { use: _use, key_ops: _operations, alg: _alg, ...members } = jwk;
  const key = await crypto.subtle.importKey("jwk", members as JsonWebKey, algorithm.key, false, ["sign"]);
  const header = { typ: "JWT", alg, ...(jwk.kid === undefined ? {} : { kid: jwk.kid }) };
  const content = [header, claims].map((part) => encodeBase64url(encoder.encode(JSON.stringify(part)))).join(".");
  const signature = await crypto.subtle.sign(algorithm.signature, key, encoder.encode(content));
  return `${content}.${encodeBase64url(new Uint8Array(signature))}`;
}

/** The thumbprint of a public key (RFC 7638). */
export async function thumbprint(jwk: Jwk): Promise<string> {
  return sha256(JSON.stringify(publicMembers(jwk)));
}

/** The SHA-256 hash of a text in base64url. */
export async function sha256(text: string): Promise<string> {
  return encodeBase64url(new Uint8Array(await crypto.subtle.digest("SHA-256", encoder.encode(text))));
}

function fits(jwk: Jwk, alg: string, { kty, crv }: Algorithm): boolean {
  return jwk.kty === kty && (crv === undefined || jwk.crv === crv) && (jwk.alg == null || jwk.alg === alg);
}

function publicMembers(jwk: Jwk): JsonWebKey {
  return Object.fromEntries((PUBLIC_MEMBERS.get(jwk.kty) ?? []).map((name) => [name, jwk[name]]));
}

/** Shorter keys are weak. Longer ones, and greater exponents, cost too much to verify with. */
function isUsableRsa(jwk: Jwk): boolean {
  const modulus = bigEndian(jwk["n"]);
  const exponent = bigEndian(jwk["e"]).reduce((number, byte) => number * 256 + byte, 0);
  const bits = modulus.length * 8 - Math.clz32(modulus[0] ?? 0) + 24;
  return bits >= 2048 && bits <= 8192 && exponent >= 3 && exponent <= 2 ** 32;
}

/** The bytes of a number in base64url, without zeros at the beginning. */
function bigEndian(text: unknown): Uint8Array {
  const bytes = (typeof text === "string" && decodeBase64url(text)) || new Uint8Array();
  const start = bytes.findIndex((byte) => byte !== 0);
  return start < 0 ? new Uint8Array() : bytes.subarray(start);
}
