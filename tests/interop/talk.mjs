// How a script and the test that runs it speak: one JSON object a line.
// The test says what to do; the script says {"open": url} and is told where the browser ended: {"url", "form"};
// in the end it says {"done": what came of it}, or {"failed": why}.
import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const heard = async () => {
  const { value, done } = await lines.next();
  if (done) process.exit();
  return JSON.parse(value);
};
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

// What a scenario keeps from one of its steps to the next.
export const kept = {};

// Does what tests ask by name, one after the other.
export async function run(scenarios) {
  for (;;) {
    const asked = await heard();
    for (const name of Object.keys(kept)) delete kept[name];
    try {
      say({ done: await scenarios[asked.scenario](asked) });
    } catch (error) {
      say({ failed: `${error.stack} ${JSON.stringify(described(error))}` });
    }
  }
}

// Sends the browser somewhere, and gives the request with which it comes back to the client's redirect URI.
export async function browse(url) {
  say({ open: url.href });
  const { url: back, form } = await heard();
  return new Request(back, form ? { method: "POST", body: new URLSearchParams(form) } : {});
}

// The error that the library makes of a refusal: there must be one.
export async function refusal(attempt) {
  let made;
  try {
    made = await attempt();
  } catch (error) {
    return described(error);
  }
  throw new Error(`not refused: ${JSON.stringify(made)}`);
}

function described(error) {
  const told = { type: error.constructor.name, message: error.message };
  for (const name of ["code", "error", "error_description", "status"]) told[name] = error[name];
  if (Array.isArray(error.cause)) told.challenges = error.cause;
  return told;
}

// How the client proves who it is. Both libraries have the same names for it.
export async function authentication(library, { method, secret, key }) {
  switch (method) {
    case "client_secret_basic":
      return library.ClientSecretBasic(secret);
    case "client_secret_post":
      return library.ClientSecretPost(secret);
    case "private_key_jwt":
      return library.PrivateKeyJwt({ key: await privateKey(key), kid: key.jwk.kid });
    case "none":
      return library.None();
  }
  throw new Error(`no such method: ${method}`);
}

const ALGORITHMS = {
  ES256: { name: "ECDSA", namedCurve: "P-256" },
  PS256: { name: "RSA-PSS", hash: "SHA-256" },
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  Ed25519: { name: "Ed25519" },
};

const privateKey = ({ alg, jwk }) => crypto.subtle.importKey("jwk", jwk, ALGORITHMS[alg], false, ["sign"]);

// The header of a JWT, to see which algorithm the library accepted.
export const header = (jwt) => jwt && JSON.parse(Buffer.from(jwt.split(".")[0], "base64url"));
