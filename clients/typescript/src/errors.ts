/** Errors of calls. They contain no token and no secret. */

export interface ErrorDetails {
  status?: number | undefined;
  requestId?: string | undefined;
  errors?: { pointer: string; detail: string }[] | undefined;
  retryAfter?: number | undefined;
  cause?: unknown;
}

/** Gatepost refused a request, or could not be reached. */
export class GatepostError extends Error {
  override readonly name = "GatepostError";
  /** The status of the response. Undefined if there was none. */
  readonly status: number | undefined;
  /** Identifies the request in the log of the service. */
  readonly requestId: string | undefined;
  /** The members of the body that are wrong. */
  readonly errors: { pointer: string; detail: string }[];
  /** The seconds after which the service asks to try again. */
  readonly retryAfter: number | undefined;

  constructor(
    /** The code of the error, or `connection_failed`, `unexpected_response` or `events_url_missing`. */
    readonly code: string,
    message: string,
    { status, requestId, errors, retryAfter, cause }: ErrorDetails = {},
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
    this.requestId = requestId;
    this.errors = errors ?? [];
    this.retryAfter = retryAfter;
  }
}
