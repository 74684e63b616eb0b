// What an application that uses openid-client does, through discovery alone.
// What must come of it is in every_client.py.
import * as client from "openid-client";
import { authentication, browse, header, kept, refusal, run } from "./talk.mjs";

// The issuer of a test is http on loopback. Signatures of ID tokens are verified too, which is not the default.
const execute = [client.allowInsecureRequests, client.enableNonRepudiationChecks];

async function configured(asked) {
  const { issuer, client_id, metadata, discovery: algorithm } = asked;
  const auth = await authentication(client, asked);
  return client.discovery(new URL(issuer), client_id, metadata, auth, { algorithm, execute });
}

// One key for all; a new handle of it knows no nonce of the server yet.
async function proofs(config, asked) {
  if (!asked.dpop) return {};
  kept.pair ??= await client.randomDPoPKeyPair(asked.dpop);
  return { DPoP: client.getDPoPHandle(config, kept.pair) };
}

// Sends the browser off, and gives the request it comes back with and what must hold for it.
async function authorized(config, asked, options) {
  const checks = { pkceCodeVerifier: client.randomPKCECodeVerifier(), expectedState: client.randomState() };
  const parameters = {
    redirect_uri: asked.redirect_uri,
    scope: asked.scope,
    state: checks.expectedState,
    code_challenge: await client.calculatePKCECodeChallenge(checks.pkceCodeVerifier),
    code_challenge_method: "S256",
    ...asked.parameters,
  };
  if (asked.scope.split(" ").includes("openid")) {
    Object.assign(checks, { expectedNonce: client.randomNonce(), maxAge: 600, idTokenExpected: true });
    Object.assign(parameters, { nonce: checks.expectedNonce, max_age: "600" });
  }
  if (options.DPoP && !asked.par) parameters.dpop_jkt = await options.DPoP.calculateThumbprint();
  if (asked.verifier) checks.pkceCodeVerifier = asked.verifier;
  const url = asked.par
    ? await client.buildAuthorizationUrlWithPAR(config, parameters, options)
    : client.buildAuthorizationUrl(config, parameters);
  return { request: await browse(url), checks };
}

async function tokens(config, asked, options) {
  const { request, checks } = await authorized(config, asked, options);
  return client.authorizationCodeGrant(config, request, checks, undefined, options);
}

await run({
  async discovered(asked) {
    return (await configured(asked)).serverMetadata();
  },

  async registered(asked) {
    const options = { algorithm: asked.discovery, execute, initialAccessToken: asked.token };
    const config = await client.dynamicClientRegistration(new URL(asked.issuer), asked.metadata, undefined, options);
    const made = await tokens(config, asked, {});
    return { client: config.clientMetadata(), claims: made.claims() };
  },

  async signed_in(asked) {
    const config = await configured(asked);
    const options = await proofs(config, asked);
    const first = await tokens(config, asked, options);
    const claims = first.claims();
    const told = { first, claims, header: header(first.id_token) };
    const asks = async (token) => (asked.method === "none" ? undefined : client.tokenIntrospection(config, token));
    if (claims) told.userinfo = await client.fetchUserInfo(config, first.access_token, claims.sub, options);
    told.introspected = await asks(first.access_token);
    told.second = await client.refreshTokenGrant(config, first.refresh_token, undefined, options);
    told.introspected_refresh_token = await asks(told.second.refresh_token);
    await client.tokenRevocation(config, told.second.refresh_token);
    told.introspected_later = await asks(told.second.access_token);
    if (claims) {
      const token = told.second.access_token;
      told.userinfo_later = await refusal(() => client.fetchUserInfo(config, token, claims.sub, options));
    }
    told.refreshed_later = await refusal(() =>
      client.refreshTokenGrant(config, told.second.refresh_token, undefined, options),
    );
    return told;
  },

  async machine(asked) {
    const config = await configured(asked);
    const options = await proofs(config, asked);
    const made = await client.clientCredentialsGrant(config, { scope: asked.scope }, options);
    return { made, introspected: await client.tokenIntrospection(config, made.access_token) };
  },

  async exchanged(asked) {
    const config = await configured(asked);
    const grant = "urn:ietf:params:oauth:grant-type:token-exchange";
    return client.genericGrantRequest(config, grant, asked.parameters);
  },

  // A token of an operation of the service's own, used there.
  async operated(asked) {
    const config = await configured(asked);
    const given = { scope: asked.scope };
    const { access_token } = await client.clientCredentialsGrant(config, given, await proofs(config, asked));
    const options = await proofs(config, asked);
    const url = new URL(config.serverMetadata().registration_endpoint);
    const headers = new Headers({ "content-type": "application/json" });
    const body = JSON.stringify(asked.body);
    const response = await client.fetchProtectedResource(config, access_token, url, "POST", body, headers, options);
    const bare = client.fetchProtectedResource.bind(null, config, access_token, url, "POST", body, headers);
    return { status: response.status, unbound: asked.dpop ? await refusal(bare) : undefined };
  },

  async machine_refused(asked) {
    const config = await configured(asked);
    return refusal(() => client.clientCredentialsGrant(config, { scope: asked.scope }));
  },

  async sign_in_refused(asked) {
    const config = await configured(asked);
    return refusal(async () => tokens(config, asked, await proofs(config, asked)));
  },

  async reuse_refused(asked) {
    const config = await configured(asked);
    const { request, checks } = await authorized(config, asked, {});
    const first = await client.authorizationCodeGrant(config, request.clone(), checks);
    const second = await client.refreshTokenGrant(config, first.refresh_token);
    return {
      refresh_token: await refusal(() => client.refreshTokenGrant(config, first.refresh_token)),
      successor: await refusal(() => client.refreshTokenGrant(config, second.refresh_token)),
      code: await refusal(() => client.authorizationCodeGrant(config, request, checks)),
    };
  },
});
