// An Express application with @gatepost/client: a protected route that publishes an event, and verified webhooks.
// Its settings are the environment variables that it reads. RESOURCE is its own URL, as clients see it.

import express from "express";
import {
  GatepostClient,
  TokenVerificationError,
  TokenVerifier,
  verifyWebhook,
  WebhookVerificationError,
} from "@gatepost/client";

const { GATEPOST, EVENTS, CLIENT_ID, CLIENT_SECRET, RESOURCE, WEBHOOK_SECRET, PORT } = process.env;
const verifier = new TokenVerifier({ issuer: GATEPOST, audience: RESOURCE, baseUrl: RESOURCE });
const gatepost = new GatepostClient({
  url: GATEPOST,
  eventsUrl: EVENTS,
  clientId: CLIENT_ID,
  clientSecret: CLIENT_SECRET,
});

const requires = (...scopes) => async (request, response, next) => {
  const { method, originalUrl: url, headers } = request;
  response.locals.claims = await verifier.verify({ method, url, headers }, scopes);
  next();
};

const app = express();

app.post("/invoices/:number/pay", requires("invoices:pay"), async (request, response) => {
  const invoice = Number(request.params.number);
  const data = { invoice, by: response.locals.claims.sub };
  const event = await gatepost.publishEvent({ type: "invoice.paid", source: RESOURCE, id: `${invoice}-paid`, data });
  response.json({ paid: invoice, event: event.id });
});

app.post("/webhooks", express.raw({ type: "*/*", limit: "1mb" }), async (request, response) => {
  const event = await verifyWebhook(WEBHOOK_SECRET, request.headers, request.body);
  console.log("received", event.id, JSON.stringify(event.data)); // store the id: a webhook may arrive more than once
  response.status(204).end();
});

app.use((error, request, response, next) => {
  if (error instanceof TokenVerificationError) {
    if (error.wwwAuthenticate) response.set("WWW-Authenticate", error.wwwAuthenticate);
    response.status(error.status).json({ error: error.message });
  } else if (error instanceof WebhookVerificationError) {
    response.status(400).json({ error: error.message });
  } else {
    next(error);
  }
});

app.listen(PORT, "127.0.0.1", () => console.log(`serving ${RESOURCE}`));
