// Runs the conformance table, and prints the number of cases and the failures. Its format: ../../conformance/README.md

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import {
  GatepostClient,
  GatepostError,
  TokenVerificationError,
  TokenVerifier,
  verifyWebhook,
  WebhookVerificationError,
} from "../dist/index.js";

const table = async (name) =>
  JSON.parse(await readFile(new URL(`../../conformance/${name}.json`, import.meta.url), "utf8"));

async function runWebhook({ secrets, headers, body, body_base64, now, expect }) {
  const raw = body === undefined ? new Uint8Array(Buffer.from(body_base64, "base64")) : new TextEncoder().encode(body);
  const pairs = Object.entries(headers).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  for (const form of [headers, new Headers(pairs)]) {
    const outcome = await verifyWebhook(secrets, form, raw, { now: () => now }).then(
      (event) => ({ event }),
      (error) => {
        assert(error instanceof WebhookVerificationError, error);
        return { check: error.check };
      },
    );
    assert.deepEqual(outcome, expect);
  }
}

async function runTokens({ options, key_sets, steps, fetches }, { key_sets: keySets }) {
  let now = 0;
  let fetched = 0;
  const fetcher = async (url) => {
    assert.equal(url, "https://gatepost.example/oauth/jwks");
    const name = key_sets[Math.min(fetched++, key_sets.length - 1)];
    return name === null ? new Response("", { status: 503 }) : Response.json(keySets[name]);
  };
  const verifier = new TokenVerifier({ ...options, fetch: fetcher, now: () => now });
  for (const step of steps) {
    now = step.now;
    const { method, url, authorization, dpop } = step.request;
    const check = async () => {
      const outcome = await verifier.verify({ method, url, headers: { authorization, dpop } }, step.scopes).then(
        (claims) => ({ claims }),
        (error) => {
          assert(error instanceof TokenVerificationError, error);
          const { check, status, message, wwwAuthenticate } = error;
          const token = authorization[0]?.split(" ")[1];
          assert(!token || token.length < 8 || !JSON.stringify([error.stack, error]).includes(token));
          return { check, status, message, www_authenticate: wwwAuthenticate };
        },
      );
      assert.deepEqual(outcome, step.expect);
    };
    await Promise.all(Array.from({ length: step.times ?? 1 }, check));
  }
  assert.equal(fetched, fetches);
}

async function runOperations({ options, calls, exchanges, waits }) {
  let now = 0;
  let wrong;
  const waited = [];
  const left = [...exchanges];
  const matcher = new Matcher();
  const client = new GatepostClient({
    url: options.url,
    clientId: options.client_id,
    ...(options.client_secret === undefined ? {} : { clientSecret: options.client_secret }),
    ...(options.private_key === undefined ? {} : { privateKey: options.private_key }),
    ...(options.events_url === undefined ? {} : { eventsUrl: options.events_url }),
    ...(options.scope === undefined ? {} : { scope: options.scope }),
    fetch: async (url, init) => {
      assert.equal(init.redirect, "manual");
      const { request, answer } = left.shift() ?? { answer: { connection: "failed" } };
      try {
        assert(request, `an unexpected request to ${url}`);
        matcher.request(request, url, init);
      } catch (error) {
        wrong ??= error; // the client would take it for an error of the connection
      }
      if (answer.connection) throw new TypeError("fetch failed");
      return new Response(answer.json === undefined ? answer.text : JSON.stringify(answer.json), answer);
    },
    now: () => now,
    sleep: async (seconds) => void waited.push(seconds),
  });
  for (const call of calls) {
    now = call.now;
    matcher.startCall();
    const check = async () => {
      const outcome = await perform(client, call);
      if (wrong) throw wrong;
      if (call.expect.error && outcome.error) {
        assert(outcome.error instanceof GatepostError, outcome.error);
        const { status, code, message, requestId: request_id, errors, retryAfter: retry_after } = outcome.error;
        const found = { status, code, message, request_id, errors, retry_after };
        outcome.error = Object.fromEntries(Object.keys(call.expect.error).map((name) => [name, found[name]]));
      }
      assert.deepEqual(outcome, call.expect, outcome.error);
    };
    await Promise.all(Array.from({ length: call.times ?? 1 }, check));
  }
  assert.equal(left.length, 0, "requests that were not sent");
  assert.equal(waited.length, waits.length, `waited ${waited}`);
  waits.forEach(([least, most], number) => assert(waited[number] >= least && waited[number] <= most, `${waited}`));
}

/** What a call results in, in the form of `expect`. */
async function perform(client, { operation, arguments: given }) {
  const options = given.idempotency_key === undefined ? {} : { idempotencyKey: given.idempotency_key };
  const items = [];
  try {
    switch (operation) {
      case "define_client":
        return { result: await client.defineClient(given.definition, options) };
      case "define_scope":
        return { result: await client.defineScope(given.definition, options) };
      case "define_webhook_endpoint":
        return { result: await client.defineWebhookEndpoint(given.definition, options) };
      case "define_webhook_subscription":
        return { result: await client.defineWebhookSubscription(given.definition, options) };
      case "obtain_token":
        return { result: await client.obtainToken(given.parameters) };
      case "token":
        return { result: await client.token(given) };
      case "read_webhook_deliveries":
        return { result: await client.readWebhookDeliveries(given.query) };
      case "deliveries":
        for await (const delivery of client.deliveries(given.query)) items.push(delivery);
        return { items };
      case "publish_event":
        return { result: await client.publishEvent(given.event) };
      case "publish_events":
        return { result: await client.publishEvents(given.events) };
      default:
        return assert.fail(operation);
    }
  } catch (error) {
    return operation === "deliveries" && items.length ? { items, error } : { error };
  }
}

/** Compares requests. It remembers what was generated. */
class Matcher {
  #generated;
  #earlier = new Set();
  #assertions = new Set();

  startCall() {
    this.#earlier.add(this.#generated);
    this.#generated = undefined;
  }

  request(expected, url, { method, headers, body }) {
    const { search, origin, pathname, searchParams } = new URL(url);
    assert.equal(method, expected.method);
    assert.equal(origin + pathname, expected.url);
    assert.deepEqual(Object.fromEntries(searchParams), expected.query ?? {}, search);
    const sent = new Headers(headers);
    for (const [name, value] of Object.entries(expected.headers)) this.#equal(sent.get(name), value, name);
    if (expected.json !== undefined) this.#equal(JSON.parse(body), expected.json, "body");
    if (expected.form !== undefined) {
      const { client_assertion: assertion, ...form } = Object.fromEntries(new URLSearchParams(body));
      assert.deepEqual(form, expected.form);
      assert.equal(assertion === undefined, expected.assertion === undefined);
      if (assertion) this.#assertion(assertion, expected.assertion);
    }
  }

  #assertion(text, expected) {
    const [header, claims] = text.split(".").map((part) => Buffer.from(part, "base64url").toString());
    const { jti, ...others } = JSON.parse(claims);
    assert.deepEqual({ header: JSON.parse(header), claims: others }, expected);
    assert(jti && !this.#assertions.has(jti), "a new jti");
    this.#assertions.add(jti);
  }

  #equal(actual, expected, what) {
    if (expected === "$generated") {
      assert(typeof actual === "string" && actual && !this.#earlier.has(actual), what);
      assert.equal(actual, (this.#generated ??= actual), what);
    } else if (typeof expected === "object" && expected !== null) {
      assert.deepEqual(Object.keys(actual).sort(), Object.keys(expected).sort(), what);
      for (const name of Object.keys(expected)) this.#equal(actual[name], expected[name], name);
    } else {
      assert.equal(actual, expected, what);
    }
  }
}

const failures = [];
let count = 0;
for (const [name, run] of Object.entries({ webhooks: runWebhook, tokens: runTokens, operations: runOperations })) {
  const { cases, ...shared } = await table(name);
  for (const each of cases) {
    count += 1;
    await run(each, shared).catch((error) => failures.push(`${name}: ${each.name}: ${error.stack}`));
  }
}
console.log(failures.join("\n\n"));
console.log(`${count} cases, ${failures.length} failures`);
process.exit(failures.length || !count ? 1 : 0);
