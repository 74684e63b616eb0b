// Uses a running service. The environment variable GATEPOST says where it is, and with which credentials.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";
import { GatepostClient, TokenVerifier, verifyWebhook } from "../dist/index.js";

const { url, eventsUrl, clientId, clientSecret, resource } = JSON.parse(process.env.GATEPOST);
const admin = new GatepostClient({ url, eventsUrl, clientId, clientSecret });

// A client with a key obtains a token, which the API verifies.
await admin.defineScope({ name: "things:read", resource });
const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
const publicKey = { ...(await crypto.subtle.exportKey("jwk", pair.publicKey)), kid: "key-1" };
const { kty, crv, x, y, kid } = publicKey;
const robot = await admin.defineClient({
  client_name: "Robot",
  grant_types: ["client_credentials"],
  scope: "things:read",
  token_endpoint_auth_method: "private_key_jwt",
  jwks: { keys: [{ kty, crv, x, y, kid }] },
});
const privateKey = { ...(await crypto.subtle.exportKey("jwk", pair.privateKey)), kid };
const client = new GatepostClient({ url, clientId: robot.client_id, privateKey });
const token = await client.token({ scope: "things:read" });
const verifier = new TokenVerifier({ issuer: url, audience: resource, account: robot.account });
const request = new Request(`${resource}/things`, { headers: { authorization: `Bearer ${token}` } });
const claims = await verifier.verify(request, ["things:read"]);
assert.equal(claims.sub, robot.client_id);
await assert.rejects(verifier.verify(request, ["things:write"]), { check: "scope", status: 403 });

// An event is published, delivered, verified and listed.
let endpoint;
const received = [];
const server = createServer(async (incoming, outgoing) => {
  const body = Buffer.concat(await incoming.toArray());
  received.push(await verifyWebhook(endpoint.secret, incoming.headers, body).catch((error) => error));
  outgoing.writeHead(204).end();
  server.emit("webhook");
}).listen(0, "127.0.0.1");
await once(server, "listening");
endpoint = await admin.defineWebhookEndpoint({ url: `http://127.0.0.1:${server.address().port}`, signing: "v1a" });
await admin.defineWebhookSubscription({ endpoint_id: endpoint.id, events: ["invoice.*"] });
const event = { type: "invoice.paid", source: "/billing", id: "17-paid", data: { invoice: 17 } };
const [published] = await Promise.all([admin.publishEvent(event), once(server, "webhook")]);
assert.equal(received[0].id, published.id, received[0]);
assert.deepEqual(received[0].data, event.data);
assert.deepEqual(await admin.publishEvents([event]), [{ ...published, again: true }]);
for (;;) {
  const deliveries = [];
  for await (const each of admin.deliveries({ event_id: published.id, include: "payload" })) deliveries.push(each);
  assert.equal(deliveries.length, 1);
  if (deliveries[0].status === "succeeded") break;
  await setTimeout(20); // the delivery ends after the receiver has responded
}
server.close();
server.closeAllConnections();
console.log("ok");
