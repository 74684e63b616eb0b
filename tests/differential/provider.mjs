// node oidc-provider in memory, as strict as its settings go, with the paths and clients of a Gatepost account.
// Arguments: port, and a JSON object of clients, scopes and the one resource there is.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import Provider, { errors } from 'oidc-provider';

const [port, told] = process.argv.slice(2);
const { clients, scopes, resource } = JSON.parse(told);
const algorithms = ['ES256', 'RS256', 'PS256', 'EdDSA', 'Ed25519'];
const key = (type, options, alg) => {
  const { privateKey } = generateKeyPairSync(type, options);
  return { ...privateKey.export({ format: 'jwk' }), kid: alg, use: 'sig', alg };
};
const ownClient = (_ctx, client, token) => token.clientId === client.clientId;

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients,
  scopes,
  claims: { profile: ['name'] },
  jwks: { keys: [key('rsa', { modulusLength: 2048 }, 'RS256'), key('ec', { namedCurve: 'P-256' }, 'ES256')] },
  cookies: { keys: [randomBytes(32).toString('hex')], long: { sameSite: 'none' } },
  enableHttpPostMethods: true,
  responseTypes: ['code'],
  allowOmittingSingleRegisteredRedirectUri: false,
  acceptQueryParamAccessTokens: false,
  pkce: { required: () => true },
  rotateRefreshToken: true,
  clientAuthMethods: ['client_secret_basic', 'client_secret_post', 'private_key_jwt', 'none'],
  enabledJWA: { clientAuthSigningAlgValues: algorithms, dPoPSigningAlgValues: algorithms },
  routes: {
    authorization: '/oauth/authorize',
    introspection: '/oauth/introspect',
    pushed_authorization_request: '/oauth/par',
    revocation: '/oauth/revoke',
    token: '/oauth/tokens',
    userinfo: '/oauth/userinfo',
  },
  features: {
    claimsParameter: { enabled: true },
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true },
    introspection: { enabled: true, allowedPolicy: ownClient },
    pushedAuthorizationRequests: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_ctx, indicator) => {
        if (indicator !== resource.uri) throw new errors.InvalidTarget();
        return { audience: resource.uri, scope: resource.scope, accessTokenFormat: 'opaque' };
      },
    },
    revocation: { enabled: true },
    rpInitiatedLogout: { enabled: false },
  },
  findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => ({ sub, name: 'Ada Lovelace' }) }),
  renderError: (ctx, out) => {
    ctx.type = 'json';
    ctx.body = out;
  },
});

// The one person there is signs in and agrees to everything.
provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith('/interaction/')) return next();
  const { params } = await provider.interactionDetails(ctx.req, ctx.res);
  const grant = new provider.Grant({ accountId: 'ada', clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  for (const each of [params.resource ?? []].flat()) grant.addResourceScope(each, params.scope);
  const consent = { grantId: await grant.save() };
  ctx.redirect(await provider.interactionResult(ctx.req, ctx.res, { login: { accountId: 'ada' }, consent }));
  ctx.status = 303;
  return undefined;
});

provider.listen(Number(port), '127.0.0.1');
