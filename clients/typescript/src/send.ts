/** Sends requests, and sends them again if the connection failed or the service is busy. */

import { GatepostError } from "./errors.js";
import { VERSION, type OAuthError, type Problem } from "./types.js";

export interface Request {
  method: string;
  url: string;
  headers?: Record<string, string>;
  body?: string | undefined;
  /** Whether sending the request twice does no harm. True if absent. */
  isRepeatable?: boolean;
}

export interface Environment {
  fetch: typeof fetch;
  now: () => number;
  sleep: (seconds: number) => Promise<void>;
}

const RETRIES = 3;
const FIRST_DELAY = 0.5;
const MAX_RETRY_AFTER = 60;
const TIMEOUT = 30_000;

/** Return the JSON of the response, or throw a GatepostError. `prepare` is called for each attempt. */
export async function send<Result>(
  { method, url, isRepeatable = true }: Request,
  prepare: () => Promise<Pick<Request, "headers" | "body">>,
  { fetch, now, sleep }: Environment,
): Promise<Result> {
  for (let attempt = 0; ; attempt++) {
    const { headers, body } = await prepare();
    const result = await exchange(fetch, now, method, url, headers, body);
    if (!(result instanceof GatepostError)) return result as Result;
    const isTemporary = result.status === undefined || result.status === 429 || result.status === 503;
    const retryAfter = isTemporary ? result.retryAfter : undefined;
    if (!isTemporary || !isRepeatable || attempt >= RETRIES || (retryAfter ?? 0) > MAX_RETRY_AFTER) throw result;
    await sleep(retryAfter ?? FIRST_DELAY * 2 ** attempt * (0.5 + Math.random() / 2));
  }
}

async function exchange(
  fetcher: typeof fetch,
  now: () => number,
  method: string,
  url: string,
  headers: Record<string, string> | undefined,
  body: string | undefined,
): Promise<unknown> {
  let response: Response;
  let text: string;
  try {
    response = await fetcher(url, {
      method,
      headers: { accept: "application/json", "gatepost-version": VERSION, ...headers },
      body: body ?? null,
      redirect: "manual",
      signal: AbortSignal.timeout(TIMEOUT),
    });
    text = await response.text();
  } catch (cause) {
    return new GatepostError("connection_failed", `No response from ${new URL(url).origin}.`, { cause });
  }
  const json = parse(text);
  if (response.ok && json) return json;
  const { status } = response;
  const details = {
    status,
    requestId: response.headers.get("x-request-id") ?? undefined,
    retryAfter: parseRetryAfter(response.headers.get("retry-after"), now),
  };
  const oauth = json as Partial<OAuthError> | null;
  if (typeof oauth?.error === "string") {
    return new GatepostError(oauth.error, oauth.error_description ?? oauth.error, details);
  }
  const problem = json as Partial<Problem> | null;
  if (typeof problem?.code === "string") {
    return new GatepostError(problem.code, problem.detail ?? problem.code, { ...details, errors: problem.errors });
  }
  return new GatepostError("unexpected_response", `The response with status ${status} is not from Gatepost.`, details);
}

function parse(text: string): object | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** The seconds in Retry-After, which is a number of seconds or a date (RFC 9110, section 10.2.3). */
function parseRetryAfter(value: string | null, now: () => number): number | undefined {
  if (value === null) return undefined;
  if (/^[0-9]+$/.test(value)) return Number(value);
  const at = Date.parse(value) / 1000;
  return Number.isNaN(at) ? undefined : Math.max(0, at - now());
}
