// A provider of OpenID Connect for stories: oidc-provider with its own forms for development, by
// which anybody signs in under any name. Listens on a port of 127.0.0.1 that the system chooses,
// and says where. Arguments: the id and the secret of its one client, and where that is called back.

import { createServer } from 'node:http';

import { Provider } from 'oidc-provider';

const [id, secret, callback] = process.argv.slice(2);
const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: id, client_secret: secret, redirect_uris: [callback] }],
    claims: { openid: ['sub'], email: ['email'] },
    // What the client gets for the code tells who it is.
    conformIdTokenClaims: false,
    cookies: { keys: ['stories'] },
    features: { devInteractions: { enabled: true } },
    findAccount: (_, sub) => ({
      accountId: sub,
      claims: () => ({ sub, email: `${sub}@staff.test` }),
    }),
  });
  server.on('request', provider.callback());
  console.log(`listening at ${issuer}`);
});
