// What an application that uses oauth4webapi does, through discovery alone.
// What must come of it is in every_client.py.
import * as oauth from "oauth4webapi";
import { authentication, browse, header, kept, refusal, run } from "./talk.mjs";

const insecure = { [oauth.allowInsecureRequests]: true }; // the issuer of a test is http on loopback

// One key for all; a new handle of it knows no nonce of the server yet.
async function proofs(client, asked) {
  if (!asked.dpop) return insecure;
  kept.pair ??= await oauth.generateKeyPair(asked.dpop);
  return { ...insecure, DPoP: oauth.DPoP(client, kept.pair) };
}

async function configured(asked) {
  const issuer = new URL(asked.issuer);
  const response = await oauth.discoveryRequest(issuer, { ...insecure, algorithm: asked.discovery });
  const as = await oauth.processDiscoveryResponse(issuer, response);
  const client = { client_id: asked.client_id, ...asked.metadata };
  const auth = asked.method && (await authentication(oauth, asked));
  return { as, client, auth, options: await proofs(client, asked) };
}

// A server that wants its nonce in a proof says so once; this library leaves it to the application to ask again.
async function withNonce(attempt) {
  try {
    return await attempt();
  } catch (error) {
    if (!oauth.isDPoPNonceError(error)) throw error;
    return attempt();
  }
}

async function pushed({ as, client, auth, options }, parameters) {
  const made = await withNonce(async () => {
    const response = await oauth.pushedAuthorizationRequest(as, client, auth, parameters, options);
    return oauth.processPushedAuthorizationResponse(as, client, response);
  });
  return { client_id: client.client_id, request_uri: made.request_uri };
}

// Sends the browser off, and gives what it comes back with and what must hold for it.
async function authorized(config, asked) {
  const { as, client, options } = config;
  const checks = { verifier: oauth.generateRandomCodeVerifier(), state: oauth.generateRandomState() };
  let parameters = {
    client_id: client.client_id,
    response_type: "code",
    redirect_uri: asked.redirect_uri,
    scope: asked.scope,
    state: checks.state,
    code_challenge: await oauth.calculatePKCECodeChallenge(checks.verifier),
    code_challenge_method: "S256",
    ...asked.parameters,
  };
  if (asked.scope.split(" ").includes("openid")) {
    checks.openid = { expectedNonce: oauth.generateRandomNonce(), maxAge: 600, requireIdToken: true };
    Object.assign(parameters, { nonce: checks.openid.expectedNonce, max_age: "600" });
  }
  if (options.DPoP && !asked.par) parameters.dpop_jkt = await options.DPoP.calculateThumbprint();
  if (asked.verifier) checks.verifier = asked.verifier;
  if (asked.par) parameters = await pushed(config, parameters);
  const url = new URL(as.authorization_endpoint);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const request = await browse(url);
  const posted = request.method === "POST";
  const answered = posted ? new URLSearchParams(await request.text()) : new URL(request.url).searchParams;
  return { answered, checks };
}

async function redeemed({ as, client, auth, options }, asked, { answered, checks }) {
  const callback = oauth.validateAuthResponse(as, client, answered, checks.state);
  return withNonce(async () => {
    const response = await oauth.authorizationCodeGrantRequest(
      as, client, auth, callback, asked.redirect_uri, checks.verifier, options,
    );
    const made = await oauth.processAuthorizationCodeResponse(as, client, response, checks.openid);
    if (made.id_token) await oauth.validateApplicationLevelSignature(as, response, insecure);
    return made;
  });
}

const refreshed = ({ as, client, auth, options }, token) =>
  withNonce(async () => {
    const response = await oauth.refreshTokenGrantRequest(as, client, auth, token, options);
    const made = await oauth.processRefreshTokenResponse(as, client, response);
    if (made.id_token) await oauth.validateApplicationLevelSignature(as, response, insecure);
    return made;
  });

const userinfo = ({ as, client, options }, token, subject) =>
  withNonce(async () =>
    oauth.processUserInfoResponse(as, client, subject, await oauth.userInfoRequest(as, client, token, options)),
  );

const introspected = async ({ as, client, auth }, token) =>
  oauth.processIntrospectionResponse(as, client, await oauth.introspectionRequest(as, client, auth, token, insecure));

const machine = ({ as, client, auth, options }, scope) =>
  withNonce(async () => {
    const response = await oauth.clientCredentialsGrantRequest(as, client, auth, { scope }, options);
    return oauth.processClientCredentialsResponse(as, client, response);
  });

await run({
  async discovered(asked) {
    return (await configured(asked)).as;
  },

  async resource_discovered(asked) {
    const resource = new URL(asked.issuer);
    return oauth.processResourceDiscoveryResponse(resource, await oauth.resourceDiscoveryRequest(resource, insecure));
  },

  async registered(asked) {
    const { as, options } = await configured(asked);
    const given = { ...insecure, initialAccessToken: asked.token };
    const response = await oauth.dynamicClientRegistrationRequest(as, asked.metadata, given);
    const client = await oauth.processDynamicClientRegistrationResponse(response);
    const config = { as, client, auth: oauth.ClientSecretPost(client.client_secret), options };
    const made = await redeemed(config, asked, await authorized(config, asked));
    return { client, claims: oauth.getValidatedIdTokenClaims(made) };
  },

  async signed_in(asked) {
    const config = await configured(asked);
    const { as, client, auth } = config;
    const first = await redeemed(config, asked, await authorized(config, asked));
    const claims = oauth.getValidatedIdTokenClaims(first);
    const told = { first, claims, header: header(first.id_token) };
    const asks = async (token) => (asked.method === "none" ? undefined : introspected(config, token));
    if (claims) told.userinfo = await userinfo(config, first.access_token, claims.sub);
    told.introspected = await asks(first.access_token);
    told.second = await refreshed(config, first.refresh_token);
    told.introspected_refresh_token = await asks(told.second.refresh_token);
    await oauth.processRevocationResponse(
      await oauth.revocationRequest(as, client, auth, told.second.refresh_token, insecure),
    );
    told.introspected_later = await asks(told.second.access_token);
    if (claims) told.userinfo_later = await refusal(() => userinfo(config, told.second.access_token, claims.sub));
    told.refreshed_later = await refusal(() => refreshed(config, told.second.refresh_token));
    return told;
  },

  async machine(asked) {
    const config = await configured(asked);
    const made = await machine(config, asked.scope);
    return { made, introspected: await introspected(config, made.access_token) };
  },

  // The other side: an API that this library guards takes the token, from the request that brings it.
  async guarded(asked) {
    const config = await configured(asked);
    const { access_token } = await machine(config, asked.scope);
    const sent = new Headers();
    const url = new URL("/things", asked.audience);
    await oauth.protectedResourceRequest(access_token, "GET", url, undefined, null, {
      ...config.options,
      [oauth.customFetch]: async (_, { headers }) => {
        for (const [name, value] of Object.entries(headers)) sent.set(name, value);
        return new Response();
      },
    });
    const guard = (audience, headers = sent) =>
      oauth.validateJwtAccessToken(config.as, new Request(url, { headers }), audience, insecure);
    const stolen = new Headers({ authorization: `Bearer ${access_token}` });
    return {
      claims: await guard(asked.audience),
      elsewhere: await refusal(() => guard("https://other.example")),
      stolen: asked.dpop ? await refusal(() => guard(asked.audience, stolen)) : undefined,
    };
  },

  async exchanged(asked) {
    const { as, client, auth, options } = await configured(asked);
    const grant = "urn:ietf:params:oauth:grant-type:token-exchange";
    const response = await oauth.genericTokenEndpointRequest(as, client, auth, grant, asked.parameters, options);
    return oauth.processGenericTokenEndpointResponse(as, client, response);
  },

  // A token of an operation of the service's own, used there.
  async operated(asked) {
    const config = await configured(asked);
    const { access_token } = await machine(config, asked.scope);
    const url = new URL(config.as.registration_endpoint);
    const send = (options) => {
      const headers = new Headers({ "content-type": "application/json" });
      return oauth.protectedResourceRequest(access_token, "POST", url, headers, JSON.stringify(asked.body), options);
    };
    const options = await proofs(config.client, asked);
    const response = await withNonce(() => send(options));
    return { status: response.status, unbound: asked.dpop ? await refusal(() => send(insecure)) : undefined };
  },

  async machine_refused(asked) {
    const config = await configured(asked);
    return refusal(() => machine(config, asked.scope));
  },

  async sign_in_refused(asked) {
    const config = await configured(asked);
    return refusal(async () => redeemed(config, asked, await authorized(config, asked)));
  },

  async reuse_refused(asked) {
    const config = await configured(asked);
    const back = await authorized(config, asked);
    const first = await redeemed(config, asked, back);
    const second = await refreshed(config, first.refresh_token);
    return {
      refresh_token: await refusal(() => refreshed(config, first.refresh_token)),
      successor: await refusal(() => refreshed(config, second.refresh_token)),
      code: await refusal(() => redeemed(config, asked, back)),
    };
  },
});
