/** Client of Gatepost. It needs fetch and WebCrypto, and nothing else. */

export { GatepostClient, GatepostError } from "./client.js";
export type { CallOptions, ClientOptions, PublishedEvent, PublishEvent, TokenOptions } from "./client.js";
export type { HeadersLike } from "./headers.js";
export type { Jwk } from "./jose.js";
export { TokenVerificationError, TokenVerifier } from "./verifier.js";
export type { AccessTokenClaims, HttpRequest, TokenCheck, TokenVerifierOptions } from "./verifier.js";
export { verifyWebhook, WebhookVerificationError } from "./webhooks.js";
export type { WebhookCheck, WebhookEvent, WebhookOptions } from "./webhooks.js";
export * from "./types.js";
