// Checks what the client does at most for one request, and how much it remembers. Prints "ok".

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { TokenVerifier, verifyWebhook } from "../dist/index.js";
import { UsedProofs } from "../dist/dpop.js";

const NOW = 1_800_000_000;

/** How often a method of WebCrypto is called meanwhile. */
async function calls(method, run) {
  const { subtle } = globalThis.crypto;
  let count = 0;
  subtle[method] = (...given) => {
    count += 1;
    return Object.getPrototypeOf(subtle)[method].apply(subtle, given);
  };
  try {
    await run();
  } finally {
    delete subtle[method];
  }
  return count;
}

async function oneHmacForEachSecret() {
  const secrets = ["first", "second"].map((text) => `whsec_${btoa(text)}`);
  const refused = (signature, times, message = /No signature matches/) => {
    const signatures = Array(times).fill(signature).join(" ");
    const headers = { "webhook-id": "evt_1", "webhook-timestamp": `${NOW}`, "webhook-signature": signatures };
    return assert.rejects(verifyWebhook(secrets, headers, "{}", { now: () => NOW }), { check: "signature", message });
  };
  const wrong = `v1,${"A".repeat(43)}=`;
  assert.equal(await calls("sign", () => refused(wrong, 16)), 2);
  assert.equal(await calls("verify", () => refused(wrong, 16)), 0);
  assert.equal(await calls("sign", () => refused("v9,abc", 16)), 0);
  await refused(wrong, 17, /more than 16 signatures/);
}

async function usedProofsAreRememberedUntilTheyExpire() {
  const used = new UsedProofs(3, 2);
  assert(used.add("key", "a", NOW, NOW));
  assert(used.add("key", "b", NOW + 60, NOW));
  assert(!used.add("key", "c", NOW, NOW), "the key has used as many as it may");
  assert(used.add("other", "d", NOW, NOW));
  assert(!used.add("third", "e", NOW, NOW), "no more are remembered");
  assert(!used.add("key", "a", NOW, NOW + 60), "none of them was forgotten");
  assert(!used.add("key", "b", NOW + 60, NOW + 120));
  assert(used.add("third", "e", NOW + 120, NOW + 120), "two have expired");
  assert(used.add("key", "a", NOW + 120, NOW + 120));
  assert(!used.add("key", "c", NOW + 120, NOW + 120));
  assert(used.add("key", "b", NOW + 400, NOW + 400), "all have expired");
  assert(used.add("key", "c", NOW + 400, NOW + 400));
}

/** An empty account is another account. It is not the absence of the option. */
async function anEmptyAccountIsNotAbsent() {
  const { cases, key_sets } = JSON.parse(await readFile(new URL("../../conformance/tokens.json", import.meta.url), "utf8"));
  const { options, steps } = cases.find(({ name }) => name === "signed with ES256");
  const fetcher = async () => Response.json(key_sets.current);
  const verifier = new TokenVerifier({ ...options, account: "", fetch: fetcher, now: () => NOW });
  await assert.rejects(verifier.verify({ headers: steps[0].request }), { check: "account" });
}

for (const test of [oneHmacForEachSecret, usedProofsAreRememberedUntilTheyExpire, anEmptyAccountIsNotAbsent]) {
  await test();
}
console.log("ok");
