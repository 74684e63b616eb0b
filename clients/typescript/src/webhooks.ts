/** Verification of webhooks, as specified by Standard Webhooks. It works with any sender that follows it. */

import { decodeBase64, encodeBase64 } from "./base64.js";
import { headerValues, type HeadersLike } from "./headers.js";
import { requireWebCrypto } from "./jose.js";

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
const encoder = new TextEncoder();

type Verifier = (content: Uint8Array<ArrayBuffer>, version: string, signature: string) => Promise<boolean>;

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
  const raw = typeof body === "string" ? encoder.encode(body) : new Uint8Array(body);
  const content = concatenate(encoder.encode(`${id}.${timestamp}.`), raw);
  const received = signatures.split(" ").map((text) => {
    const comma = text.indexOf(",");
    return comma < 0 ? ([text, ""] as const) : ([text.slice(0, comma), text.slice(comma + 1)] as const);
  });
  const results = await Promise.all(
    verifiers.flatMap((isValid) => received.map(([version, signature]) => isValid(content, version, signature))),
  );
  if (!results.includes(true)) throw new WebhookVerificationError("signature", "No signature matches a secret.");
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(raw)) as Event;
  } catch {
    throw new WebhookVerificationError("body", "The body is signed but is not JSON.");
  }
}

function header(headers: HeadersLike, name: string): string {
  const value = headerValues(headers, `webhook-${name}`).join(", ");
  if (!value) throw new WebhookVerificationError("headers", `The webhook-${name} header is missing.`);
  return value;
}

async function verifier(secret: string): Promise<Verifier> {
  if (secret.startsWith("whsec_")) {
    const key = await importKey(secret.slice(6), { name: "HMAC", hash: "SHA-256" });
    if (key) return (content, version, signature) => verifyHmac(key, content, version, signature);
  } else if (secret.startsWith("whpk_")) {
    const key = await importKey(secret.slice(5), { name: "Ed25519" });
    if (key) return (content, version, signature) => verifyEd25519(key, content, version, signature);
  }
  const rule = "A secret is whsec_ or whpk_, followed by the key in base64.";
  throw new WebhookVerificationError("secret", rule);
}

async function importKey(text: string, algorithm: HmacImportParams | { name: string }): Promise<CryptoKey | null> {
  const bytes = decodeBase64(text);
  if (!bytes?.length) return null;
  try {
    return await crypto.subtle.importKey("raw", bytes, algorithm, false, ["verify"]);
  } catch {
    return null;
  }
}

async function verifyHmac(
  key: CryptoKey,
  content: Uint8Array<ArrayBuffer>,
  version: string,
  text: string,
): Promise<boolean> {
  const signature = decodeBase64(text);
  // Only the standard notation is accepted. WebCrypto compares in constant time.
  if (version !== "v1" || !signature || encodeBase64(signature) !== text) return false;
  return crypto.subtle.verify("HMAC", key, signature, content);
}

async function verifyEd25519(
  key: CryptoKey,
  content: Uint8Array<ArrayBuffer>,
  version: string,
  text: string,
): Promise<boolean> {
  const signature = decodeBase64(text);
  return version === "v1a" && signature !== null && crypto.subtle.verify({ name: "Ed25519" }, key, signature, content);
}

function concatenate(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}
