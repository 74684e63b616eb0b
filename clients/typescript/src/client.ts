/** The operations of Gatepost, and the tokens that they need. */

import { GatepostError } from "./errors.js";
import { requireWebCrypto, signJwt, type Jwk } from "./jose.js";
import { send, type Request } from "./send.js";
import type * as types from "./types.js";

export { GatepostError };

export interface ClientOptions {
  /** The base URL of Gatepost. */
  url: string;
  clientId: string;
  /** For a client with `client_secret_basic`. */
  clientSecret?: string;
  /** For a client with `private_key_jwt`: the private key, with its `kid` if the client has several. */
  privateKey?: Jwk;
  /** The scopes of the tokens for operations. By default each operation uses a token with only its own scope. */
  scope?: string;
  /** The URL of the operations plane, for publishing events. */
  eventsUrl?: string;
  fetch?: typeof fetch;
  /** The current time in seconds since 1970. */
  now?: () => number;
  /** Waits for a number of seconds. */
  sleep?: (seconds: number) => Promise<void>;
}

export interface CallOptions {
  /** By default a new key for each call, which its retries share. */
  idempotencyKey?: string;
}

export interface TokenOptions {
  scope: string;
  /** Needed if the scopes are for several resources. */
  resource?: string;
}

/** An event to publish. */
export interface PublishEvent {
  /** A dotted lower-case name. */
  type: string;
  /** A URI reference that names the publisher. */
  source: string;
  /** Unique within its source, so that the event can be published again without harm. By default a new one. */
  id?: string;
  subject?: string;
  data?: unknown;
}

/** An event that was published. */
export interface PublishedEvent {
  id: string;
  type: string;
  at: string;
  /** The number of deliveries. */
  matched: number;
  deliveries: string[];
  /** Whether the same event was published before. */
  again: boolean;
}

interface CachedToken {
  access: Promise<string>;
  renewAt: number;
}

const MARGIN = 60;
const ASSERTION_LIFETIME = 60;
const ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/** Calls the operations with the credentials of one client. */
export class GatepostClient {
  readonly #options: ClientOptions;
  readonly #url: string;
  readonly #now: () => number;
  readonly #tokens = new Map<string, CachedToken>();

  constructor(options: ClientOptions) {
    requireWebCrypto();
    if (!/^https?:\/\//.test(options.url)) throw new TypeError("url must begin with https:// or http://");
    if (!options.clientId) throw new TypeError("clientId is missing");
    if ((options.clientSecret === undefined) === (options.privateKey === undefined)) {
      throw new TypeError("either clientSecret or privateKey is needed");
    }
    this.#options = options;
    this.#url = options.url.replace(/\/$/, "");
    this.#now = options.now ?? (() => Date.now() / 1000);
  }

  /** Create a client, or change or read one (`client_id`). Needs the scope `gatepost:clients`. */
  defineClient(definition: types.ClientDefinition, options?: CallOptions): Promise<types.Client> {
    return this.#define("gatepost:clients", "/oauth/clients", definition, options);
  }

  /** Define a scope. Needs the scope `gatepost:scopes`. */
  defineScope(definition: types.ScopeDefinition, options?: CallOptions): Promise<types.Scope> {
    return this.#define("gatepost:scopes", "/oauth/scopes", definition, options);
  }

  /** Create a webhook endpoint, or change or read one (`id`). Needs the scope `gatepost:endpoints`. */
  defineWebhookEndpoint(definition: types.EndpointDefinition, options?: CallOptions): Promise<types.Endpoint> {
    return this.#define("gatepost:endpoints", "/webhooks/endpoints", definition, options);
  }

  /** Create a subscription, or change or read one (`id`). Needs the scope `gatepost:subscriptions`. */
  defineWebhookSubscription(
    definition: types.SubscriptionDefinition,
    options?: CallOptions,
  ): Promise<types.Subscription> {
    return this.#define("gatepost:subscriptions", "/webhooks/subscriptions", definition, options);
  }

  /** Read one page of deliveries, a summary, or the endpoints. Needs the scope `gatepost:deliveries`. */
  readWebhookDeliveries(query: types.DeliveryQuery & { view: "summary" }): Promise<types.DeliverySummary>;
  readWebhookDeliveries(query: types.DeliveryQuery & { view: "endpoints" }): Promise<types.EndpointPage>;
  readWebhookDeliveries(query?: types.DeliveryQuery & { view?: never }): Promise<types.DeliveryPage>;
  readWebhookDeliveries(query: types.DeliveryQuery = {}): Promise<types.Deliveries> {
    const parameters = formEncode(query);
    const url = `${this.#url}/webhooks/deliveries${parameters && "?"}${parameters}`;
    return this.#call("gatepost:deliveries", { method: "GET", url });
  }

  /** All deliveries that match, page by page. Needs the scope `gatepost:deliveries`. */
  async *deliveries(query: types.DeliveryQuery & { view?: never } = {}): AsyncGenerator<types.Delivery, void> {
    let cursor: string | null | undefined = query.cursor;
    do {
      const page: types.DeliveryPage = await this.readWebhookDeliveries({ ...query, ...(cursor ? { cursor } : {}) });
      yield* page.data;
      cursor = page.next_cursor;
    } while (cursor);
  }

  /** Publish an event. Needs the scope `gatepost:events`. */
  publishEvent(event: PublishEvent): Promise<PublishedEvent> {
    return this.#publish("application/cloudevents+json", cloudEvent(event));
  }

  /** Publish up to 100 events together or not at all. Needs the scope `gatepost:events`. */
  async publishEvents(events: readonly PublishEvent[]): Promise<PublishedEvent[]> {
    const body = events.map(cloudEvent);
    const { data } = await this.#publish<{ data: PublishedEvent[] }>("application/cloudevents-batch+json", body);
    return data;
  }

  /** Obtain a token by any grant type. Only requests with client credentials are repeated when they fail. */
  obtainToken(parameters: types.TokenRequest): Promise<types.Token> {
    const isRepeatable = parameters.grant_type === "client_credentials";
    return this.#send({ method: "POST", url: `${this.#url}/oauth/tokens`, isRepeatable }, () =>
      this.#authenticated(parameters),
    );
  }

  /** An access token of this client, from the cache or by client credentials. Calls at the same time share a request. */
  token({ scope, resource }: TokenOptions): Promise<string> {
    const name = JSON.stringify([scope, resource]);
    const cached = this.#tokens.get(name);
    const now = this.#now();
    if (cached && now < cached.renewAt) return cached.access;
    const fresh: CachedToken = { access: Promise.resolve(""), renewAt: Infinity };
    this.#tokens.set(name, fresh);
    fresh.access = this.obtainToken({ grant_type: "client_credentials", scope, ...(resource ? { resource } : {}) }).then(
      (answer) => {
        if (!isBearerToken(answer)) {
          throw new GatepostError("unexpected_response", "The response of the token endpoint is not a token.");
        }
        fresh.renewAt = now + answer.expires_in - Math.min(MARGIN, answer.expires_in / 10);
        return answer.access_token;
      },
    );
    fresh.access.catch(() => {
      if (this.#tokens.get(name) === fresh) this.#tokens.delete(name);
    });
    return fresh.access;
  }

  #define<Result>(scope: string, path: string, definition: object, options: CallOptions = {}): Promise<Result> {
    return this.#call(scope, {
      method: "POST",
      url: this.#url + path,
      headers: {
        "content-type": "application/json",
        "idempotency-key": options.idempotencyKey ?? crypto.randomUUID(),
      },
      body: JSON.stringify(definition),
    });
  }

  async #publish<Result>(contentType: string, body: object): Promise<Result> {
    const { eventsUrl } = this.#options;
    if (!eventsUrl) throw new GatepostError("events_url_missing", "eventsUrl is missing: it is needed to publish events.");
    const url = `${eventsUrl.replace(/\/$/, "")}/events`;
    const request = { method: "POST", url, headers: { "content-type": contentType }, body: JSON.stringify(body) };
    return this.#call("gatepost:events", request);
  }

  /** Send a request with a token. If the token is refused, send it once more with a new one. */
  async #call<Result>(scope: string, request: Request): Promise<Result> {
    const options = { scope: this.#options.scope ?? scope };
    const name = JSON.stringify([options.scope, undefined]);
    for (let isFirst = true; ; isFirst = false) {
      const token = await this.token(options);
      const cached = this.#tokens.get(name);
      try {
        const headers = { ...request.headers, authorization: `Bearer ${token}` };
        return await this.#send(request, async () => ({ headers, body: request.body }));
      } catch (error) {
        if (!isFirst || !(error instanceof GatepostError) || error.status !== 401) throw error;
        if (this.#tokens.get(name) === cached) this.#tokens.delete(name);
      }
    }
  }

  #send<Result>(
    request: Request,
    prepare: () => Promise<Pick<Request, "headers" | "body">>,
  ): Promise<Result> {
    return send<Result>(request, prepare, {
      fetch: this.#options.fetch ?? ((...parameters) => fetch(...parameters)),
      now: this.#now,
      sleep: this.#options.sleep ?? ((seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000))),
    });
  }

  /** A token request with the authentication of the client. Each assertion can be used only once. */
  async #authenticated(parameters: object): Promise<Pick<Request, "headers" | "body">> {
    const { clientId, clientSecret, privateKey } = this.#options;
    const headers: Record<string, string> = { "content-type": "application/x-www-form-urlencoded" };
    if (!privateKey) {
      // RFC 6749, section 2.3.1
      const credentials = [clientId, clientSecret!].map((text) => formEncode({ "": text }).slice(1)).join(":");
      return { headers: { ...headers, authorization: `Basic ${btoa(credentials)}` }, body: formEncode(parameters) };
    }
    const iat = Math.floor(this.#now());
    const jti = crypto.randomUUID();
    const claims = { iss: clientId, sub: clientId, aud: this.#url, iat, exp: iat + ASSERTION_LIFETIME, jti };
    const client_assertion = await signJwt(privateKey, claims);
    const authentication = { client_id: clientId, client_assertion_type: ASSERTION_TYPE, client_assertion };
    return { headers, body: formEncode({ ...parameters, ...authentication }) };
  }
}

function isBearerToken({ access_token, token_type, expires_in }: Partial<Record<keyof types.Token, unknown>>): boolean {
  const isBearer = typeof token_type === "string" && token_type.toLowerCase() === "bearer";
  const hasLifetime = Number.isInteger(expires_in) && (expires_in as number) > 0 && (expires_in as number) < 2 ** 31;
  return isBearer && hasLifetime && typeof access_token === "string" && access_token !== "";
}

function cloudEvent(event: PublishEvent): object {
  return { specversion: "1.0", ...event, id: event.id ?? crypto.randomUUID() };
}

function formEncode(parameters: object): string {
  const defined = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null);
  return new URLSearchParams(defined.map(([name, value]) => [name, String(value)])).toString();
}
