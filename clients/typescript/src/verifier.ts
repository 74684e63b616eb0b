/** Verification of access tokens (RFC 9068) at a resource server, with the key set of the issuer. */

import { checkProof, PROOF_ALGORITHMS, UsedProofs } from "./dpop.js";
import { headerValues, type HeadersLike } from "./headers.js";
import { numericDate, parseJws, parseObject, requireWebCrypto, verifyJws } from "./jose.js";
import { KeySet } from "./keys.js";

/** The checks in their order: the status, the error code of the challenge, and the message. */
const CHECKS = {
  authorization: [401, "", "The request has no access token."],
  request: [400, "invalid_request", "Send one Authorization header with the scheme Bearer or DPoP and a token."],
  size: [401, "invalid_token", "The token is larger than 16384 bytes."],
  format: [401, "invalid_token", "The token is not a signed JWT."],
  typ: [401, "invalid_token", "The token is not an access token (typ at+jwt)."],
  alg: [401, "invalid_token", "The algorithm of the token is not allowed."],
  keys: [503, "", "The key set of the issuer is not available."],
  kid: [401, "invalid_token", "The key of the token is not in the key set of the issuer."],
  signature: [401, "invalid_token", "The signature of the token is not valid."],
  iss: [401, "invalid_token", "The token is from another issuer."],
  aud: [401, "invalid_token", "The token is for another audience."],
  exp: [401, "invalid_token", "The token has expired."],
  nbf: [401, "invalid_token", "The token is not valid yet."],
  account: [401, "invalid_token", "The token is of another account."],
  dpop_scheme: [401, "invalid_token", "A token that is bound to a key needs the scheme DPoP, any other Bearer."],
  dpop_proof: [401, "invalid_dpop_proof", "Send one DPoP proof that is signed with the public key in its header."],
  dpop_key: [401, "invalid_dpop_proof", "The token is bound to another key than that of the DPoP proof."],
  dpop_htm: [401, "invalid_dpop_proof", "The DPoP proof is for another method."],
  dpop_htu: [401, "invalid_dpop_proof", "The DPoP proof is for another URL."],
  dpop_ath: [401, "invalid_dpop_proof", "The DPoP proof is for another token."],
  dpop_iat: [401, "invalid_dpop_proof", "The DPoP proof is too old or too new."],
  dpop_jti: [401, "invalid_dpop_proof", "The DPoP proof has no jti or was used before, or too many proofs were used."],
  scope: [403, "insufficient_scope", "The token does not have the required scope."],
} as const satisfies Record<string, readonly [number, string, string]>;

export type TokenCheck = keyof typeof CHECKS;

/** The request has no token that is good for it. `check` is the check that failed. */
export class TokenVerificationError extends Error {
  override readonly name = "TokenVerificationError";
  /** The status to answer with. */
  readonly status: number;
  /** The value of the header WWW-Authenticate to answer with. Null if the token is not at fault. */
  readonly wwwAuthenticate: string | null;

  constructor(
    readonly check: TokenCheck,
    scheme: "Bearer" | "DPoP" = "Bearer",
    scopes: readonly string[] = [],
  ) {
    const [status, error, message] = CHECKS[check];
    super(message);
    this.status = status;
    const attributes = [
      ...(error ? [`error="${error}"`, `error_description="${message}"`] : []),
      ...(check === "scope" ? [`scope="${scopes.join(" ")}"`] : []),
      ...(scheme === "DPoP" ? [`algs="${PROOF_ALGORITHMS.join(" ")}"`] : []),
    ];
    this.wwwAuthenticate = check === "keys" ? null : `${scheme} ${attributes.join(", ")}`.trim();
  }
}

/** The claims of an access token. A client or an account may add others. */
export interface AccessTokenClaims {
  iss: string;
  sub: string;
  aud: string | string[];
  exp: number;
  iat: number;
  jti: string;
  client_id: string;
  scope: string;
  account: string;
  grant: string;
  cnf?: { jkt: string };
  act?: { sub: string };
  [claim: string]: unknown;
}

/** A request, for example a `Request`. Node has the URL without its origin: then set `baseUrl` of the verifier. */
export interface HttpRequest {
  method?: string | undefined;
  url?: string | undefined;
  headers: HeadersLike;
}

export interface TokenVerifierOptions {
  /** The base URL of Gatepost, with or without a slash at the end. */
  issuer: string;
  /** The `resource` of the scopes of this API. */
  audience: string;
  /** The only account whose tokens are accepted. Needed if several accounts share the API. If empty, no token is. */
  account?: string;
  /** The algorithms that are accepted, by default all that Gatepost signs access tokens with. */
  algorithms?: readonly string[];
  /** The URL of this API as clients see it, without the path of the request. DPoP proofs are for this URL. */
  baseUrl?: string;
  fetch?: typeof fetch;
  /** The current time in seconds since 1970. */
  now?: () => number;
}

const ALGORITHMS: readonly string[] = ["ES256", "RS256", "EdDSA"];
const MAX_SIZE = 16384;
const LEEWAY = 10;

/** Verifies the tokens of requests. Create one verifier and keep it: it caches the key set. */
export class TokenVerifier {
  readonly #options: TokenVerifierOptions;
  readonly #issuer: string;
  readonly #algorithms: readonly string[];
  readonly #keys: KeySet;
  readonly #now: () => number;
  readonly #used = new UsedProofs();

  constructor(options: TokenVerifierOptions) {
    requireWebCrypto();
    this.#options = options;
    this.#algorithms = options.algorithms ?? ALGORITHMS;
    for (const name of ["issuer", "audience"] as const) {
      if (!options[name]) throw new TypeError(`${name} is missing`);
    }
    const unknown = this.#algorithms.find((each) => !ALGORITHMS.includes(each));
    if (unknown) throw new TypeError(`algorithms: ${unknown} is not one of ${ALGORITHMS.join(", ")}`);
    this.#now = options.now ?? (() => Date.now() / 1000);
    const fetcher = options.fetch ?? ((...request) => fetch(...request));
    this.#issuer = options.issuer.replace(/\/+$/, "");
    this.#keys = new KeySet(`${this.#issuer}/oauth/jwks`, fetcher, this.#now);
  }

  /** Return the claims of the token, if it is good for the request and has all of the scopes. */
  async verify(request: HttpRequest, scopes: readonly string[] = []): Promise<AccessTokenClaims> {
    const authorization = headerValues(request.headers, "authorization");
    if (!authorization.some((value) => /^(bearer|dpop)\b/i.test(value))) {
      throw new TokenVerificationError("authorization");
    }
    const match = /^(bearer|dpop) +([A-Za-z0-9._~+/-]+=*)$/i.exec(authorization[0]!);
    if (!match || authorization.length > 1) throw new TokenVerificationError("request");
    const token = match[2]!;
    const scheme = match[1]!.toLowerCase() === "dpop" ? "DPoP" : "Bearer";
    const fail = (check: TokenCheck): never => {
      throw new TokenVerificationError(check, check.startsWith("dpop_") ? "DPoP" : scheme, scopes);
    };
    const claims = await this.#signedClaims(token);
    if (typeof claims === "string") return fail(claims);
    const wrong = this.#wrongClaim(claims);
    if (wrong) return fail(wrong);
    const binding = claims["cnf"];
    if ((binding !== undefined) !== (scheme === "DPoP")) return fail("dpop_scheme");
    if (binding !== undefined) {
      const boundTo = (binding as { jkt?: unknown } | null)?.jkt ?? null;
      const proofs = headerValues(request.headers, "dpop");
      const received = { method: request.method ?? "GET", url: this.#url(request.url ?? "") };
      const failed = await checkProof(proofs, received, token, boundTo, this.#used, this.#now());
      if (failed) return fail(failed);
    }
    const granted = typeof claims["scope"] === "string" ? claims["scope"].split(" ") : [];
    if (!scopes.every((scope) => granted.includes(scope))) return fail("scope");
    return claims as AccessTokenClaims;
  }

  /** The claims of a token whose signature is valid, or the check that failed. */
  async #signedClaims(token: string): Promise<Record<string, unknown> | TokenCheck> {
    if (token.length > MAX_SIZE) return "size";
    const jws = parseJws(token);
    if (!jws) return "format";
    const { typ, alg, kid } = jws.header;
    if (typ !== "at+jwt" && typ !== "application/at+jwt") return "typ"; // RFC 9068, section 4
    if (typeof alg !== "string" || !this.#algorithms.includes(alg)) return "alg";
    const jwk = await this.#keys.find(kid).catch(() => "keys" as const);
    if (jwk === "keys") return "keys";
    if (!jwk) return "kid";
    const key = await this.#keys.import(jwk, alg);
    if (!key || !(await verifyJws(jws, alg, key))) return "signature";
    const claims = parseObject(jws.payload);
    const isComplete = typeof claims?.["sub"] === "string" && typeof claims["client_id"] === "string";
    return isComplete ? claims : "format"; // RFC 9068, section 2.2
  }

  #wrongClaim(claims: Record<string, unknown>): TokenCheck | null {
    const { audience, account } = this.#options;
    const { iss, aud, nbf } = claims;
    if (iss !== this.#issuer) return "iss";
    if (aud !== audience && !(Array.isArray(aud) && aud.includes(audience))) return "aud";
    const expires = numericDate(claims["exp"]);
    if (expires === null || this.#now() >= expires + LEEWAY) return "exp";
    const starts = numericDate(nbf === undefined ? 0 : nbf);
    if (starts === null || starts > this.#now() + LEEWAY) return "nbf";
    return account !== undefined && (!account || claims["account"] !== account) ? "account" : null;
  }

  /** The URL of a request as the client sees it. */
  #url(url: string): string {
    const { baseUrl } = this.#options;
    if (baseUrl === undefined) {
      if (url.startsWith("/")) throw new TypeError("baseUrl is missing: it is needed for tokens that are bound to keys");
      return url;
    }
    const path = url.startsWith("/") ? url : new URL(url).pathname;
    return baseUrl.replace(/\/$/, "") + path;
  }
}
