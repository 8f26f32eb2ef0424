// node issuer.mjs FOLDER: the npm package oidc-provider of FOLDER as an issuer of signed tokens. The first line on
// standard output is its URL; it ends with its standard input.
import http from 'node:http'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const found = createRequire(`${process.argv[2]}/package.json`).resolve('oidc-provider')
const { Provider } = await import(pathToFileURL(found))
const server = http.createServer()
await new Promise((listening) => server.listen(0, '127.0.0.1', listening))
const issuer = `http://127.0.0.1:${server.address().port}`
const scopes = ['sessions:read', 'sessions:write', 'sessions:execute', 'admin']
const provider = new Provider(issuer, {
  scopes: ['openid', 'offline_access', ...scopes],
  cookies: { keys: ['of a test'] },
  features: {
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        scope: scopes.join(' '),
        audience: resource,
        accessTokenFormat: 'jwt',
        accessTokenTTL: 3600,
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
})
server.on('request', provider.callback())
console.log(issuer)
process.stdin.resume().on('end', () => process.exit(0))
