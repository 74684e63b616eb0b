/** Verification of webhooks, as specified by Standard Webhooks. It works with any sender that follows it. */

import { decodeBase64, encodeBase64 } from "./base64.js";
import { headerValues, type HeadersLike } from "./headers.js";
import { decodeUtf8, requireWebCrypto } from "./jose.js";

/** The checks, in their order. */
export type WebhookCheck = "secret" | "headers" | "id" | "timestamp" | "signature" | "body";

/** The request cannot be trusted. `check` is the check that failed. */
export class WebhookVerificationError extends Error {
  override readonly name = "WebhookVerificationError";

  constructor(
    readonly check: WebhookCheck,
    message: string,
  ) {
    super(message);
  }
}

/** The body of a webhook of an endpoint with the format `standard`. */
export interface WebhookEvent<Data = unknown> {
  id: string;
  type: string;
  timestamp: string;
  account: string;
  data: Data;
}

export interface WebhookOptions {
  /** The current time in seconds since 1970. */
  now?: () => number;
}

const TOLERANCE = 300;
/** A sender adds one signature for each of its valid secrets, of which there are two during a rotation. */
const MAX_SIGNATURES = 16;
const ED25519_BYTES = 64;
const encoder = new TextEncoder();

/** Verifies signatures of one version with one secret. */
interface Verifier {
  version: "v1" | "v1a";
  /** Whether one of the signatures is valid. */
  matches(content: Uint8Array<ArrayBuffer>, signatures: readonly string[]): Promise<boolean>;
}

/**
 * Return the JSON of the body, if the request is recent and signed with one of the secrets.
 *
 * A secret is a `whsec_…`, or a `whpk_…` (the public key of an endpoint with `signing: v1a`). During a rotation, pass
 * several. The body must be the received bytes: JSON that was parsed and serialized again does not verify.
 */
export async function verifyWebhook<Event = WebhookEvent>(
  secret: string | readonly string[],
  headers: HeadersLike,
  body: string | Uint8Array | ArrayBuffer,
  { now = () => Date.now() / 1000 }: WebhookOptions = {},
): Promise<Event> {
  requireWebCrypto();
  if (typeof body !== "string" && !(body instanceof ArrayBuffer) && !ArrayBuffer.isView(body)) {
    throw new TypeError("body must be the received bytes or text, not parsed JSON");
  }
  const verifiers = await Promise.all((typeof secret === "string" ? [secret] : secret).map(verifier));
  if (verifiers.length === 0) throw new WebhookVerificationError("secret", "No secret was given.");
  const [id, timestamp, signatures] = ["id", "timestamp", "signature"].map((name) => header(headers, name)) as [
    string,
    string,
    string,
  ];
  // Otherwise the signed content could be split into id, timestamp and body in another way.
  if (id.includes(".")) throw new WebhookVerificationError("id", "webhook-id contains a dot.");
  if (!/^[0-9]{1,12}$/.test(timestamp)) {
    throw new WebhookVerificationError("timestamp", "webhook-timestamp is not a number of seconds.");
  }
  const age = now() - Number(timestamp);
  if (Math.abs(age) > TOLERANCE) {
    throw new WebhookVerificationError("timestamp", `webhook-timestamp is too ${age > 0 ? "old" : "new"}.`);
  }
  const received = signatures.split(" ", MAX_SIGNATURES + 1);
  if (received.length > MAX_SIGNATURES) {
    const message = `webhook-signature has more than ${MAX_SIGNATURES} signatures.`;
    throw new WebhookVerificationError("signature", message);
  }
  const raw = typeof body === "string" ? encoder.encode(body) : new Uint8Array(body);
  const content = concatenate(encoder.encode(`${id}.${timestamp}.`), raw);
  const results = await Promise.all(
    verifiers.map(({ version, matches }) => {
      const prefix = `${version},`;
      const own = received.filter((text) => text.startsWith(prefix)).map((text) => text.slice(prefix.length));
      return own.length > 0 && matches(content, own);
    }),
  );
  if (!results.includes(true)) throw new WebhookVerificationError("signature", "No signature matches a secret.");
  try {
    return JSON.parse(decodeUtf8(raw)) as Event;
  } catch {
    throw new WebhookVerificationError("body", "The body is signed but is not JSON.");
  }
}

/** The value of a header that is there once. `Headers` joins the values of a repeated header. */
function header(headers: HeadersLike, name: string): string {
  const values = headerValues(headers, `webhook-${name}`);
  const value = values.join(", ");
  if (!value) throw new WebhookVerificationError("headers", `The webhook-${name} header is missing.`);
  if (values.length > 1 || value.indexOf(", ") > 0) {
    throw new WebhookVerificationError("headers", `The webhook-${name} header was sent several times.`);
  }
  return value;
}

async function verifier(secret: string): Promise<Verifier> {
  if (secret.startsWith("whsec_")) {
    const key = await importKey(secret.slice(6), { name: "HMAC", hash: "SHA-256" }, "sign");
    if (key) return { version: "v1", matches: (content, signatures) => matchesHmac(key, content, signatures) };
  } else if (secret.startsWith("whpk_")) {
    const key = await importKey(secret.slice(5), { name: "Ed25519" }, "verify");
    if (key) return { version: "v1a", matches: (content, signatures) => matchesEd25519(key, content, signatures) };
  }
  const rule = "A secret is whsec_ or whpk_, followed by the key in base64.";
  throw new WebhookVerificationError("secret", rule);
}

async function importKey(
  text: string,
  algorithm: HmacImportParams | { name: string },
  usage: "sign" | "verify",
): Promise<CryptoKey | null> {
  const bytes = decodeBase64(text);
  if (!bytes?.length) return null;
  try {
    return await crypto.subtle.importKey("raw", bytes, algorithm, false, [usage]);
  } catch {
    return null;
  }
}

/** Compute the signature once, however many are received. Only its standard notation is accepted. */
async function matchesHmac(
  key: CryptoKey,
  content: Uint8Array<ArrayBuffer>,
  signatures: readonly string[],
): Promise<boolean> {
  const expected = encodeBase64(new Uint8Array(await crypto.subtle.sign("HMAC", key, content)));
  return signatures.some((signature) => isEqual(signature, expected));
}

/** Compare texts in a time that depends only on their lengths. */
function isEqual(text: string, expected: string): boolean {
  if (text.length !== expected.length) return false;
  let difference = 0;
  for (let index = 0; index < expected.length; index++) {
    difference |= text.charCodeAt(index) ^ expected.charCodeAt(index);
  }
  return difference === 0;
}

async function matchesEd25519(
  key: CryptoKey,
  content: Uint8Array<ArrayBuffer>,
  signatures: readonly string[],
): Promise<boolean> {
  for (const text of signatures) {
    const signature = decodeBase64(text);
    if (signature?.length !== ED25519_BYTES) continue;
    if (await crypto.subtle.verify({ name: "Ed25519" }, key, signature, content)) return true;
  }
  return false;
}

function concatenate(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}
