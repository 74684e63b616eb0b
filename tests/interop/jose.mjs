// Verifies one access token against a key set, as a resource server would: `node jose.mjs ISSUER AUDIENCE TOKEN`.
import { createRemoteJWKSet, jwtVerify } from "jose";

const [issuer, audience, token] = process.argv.slice(2);
const keys = createRemoteJWKSet(new URL(`${issuer}/oauth/jwks`));
try {
  const { payload, protectedHeader } = await jwtVerify(token, keys, { issuer, audience, typ: "at+jwt" });
  console.log(JSON.stringify({ verified: true, payload, header: protectedHeader }));
} catch (error) {
  console.log(JSON.stringify({ verified: false, code: error.code ?? error.name }));
}
