// The scenario of the published test, for k6: random hosts and paths of the generated setup.
//
//   k6 run -e MODE=nofilters -e GATEWAY=127.0.0.1:8443 k6.js
//
// MODE says what lies between k6 and the endpoint (README.md); `list` prints what there is.
import http from 'k6/http';
import exec from 'k6/execution';
import { check } from 'k6';

const setting = (name, fallback) => __ENV[name] || fallback;
const number = (name, fallback) => parseInt(setting(name, fallback), 10);

// The objects of a mode are those that the generator writes with `--mode`.
const MODES = {
  nofilters: { target: 'gateway', does: 'TLS, the routes and nothing else' },
  onlyextauth: { target: 'gateway', does: 'a service is asked for each request (ext_authz)' },
  all: { target: 'gateway', does: 'a service, a token, a policy and a rate limit', bears: true },
  direct: { target: 'endpoint', does: 'the endpoint itself, without a gateway' },
};

const mode = setting('MODE', 'nofilters');
const gateway = setting('GATEWAY', '127.0.0.1:8443');
const endpoint = setting('ENDPOINT', '127.0.0.1:9080');
const token = setting('TOKEN', '');
const workspaces = number('WORKSPACES', 10);
const domains = number('DOMAINS', 100);
const paths = number('PATHS', 100);
const rate = number('RATE', 0);
const vus = number('VUS', 50);
const duration = setting('DURATION', '30s');

// As many requests as `VUS` users can make one after the other, or `RATE` of them per second.
const paced = {
  executor: 'constant-arrival-rate',
  rate: rate,
  timeUnit: '1s',
  duration: duration,
  preAllocatedVUs: vus,
  maxVUs: vus * 10,
};
const unpaced = { executor: 'constant-vus', vus: vus, duration: duration };

export const options = {
  scenarios: { requests: rate > 0 ? paced : unpaced },
  // No name server knows the hosts; their certificates are of an authority of their own.
  hosts: { '*.scale.test': gateway },
  insecureSkipTLSVerify: true,
  thresholds: { checks: ['rate==1'], http_req_failed: ['rate==0'] },
  summaryTrendStats: ['med', 'p(90)', 'p(99)', 'max'],
};

export function setup() {
  const chosen = MODES[mode];
  if (chosen && chosen.bears && !token) {
    exec.test.abort(`${mode} needs TOKEN, which the generator writes into the file token`);
  }
  if (chosen) {
    console.log(`${mode}: ${chosen.does}`);
    return;
  }
  for (const [name, it] of Object.entries(MODES)) {
    console.log(`${name}: ${it.does}`);
  }
  exec.test.abort('choose one of these by MODE');
}

const below = (limit) => Math.floor(Math.random() * limit);

export default function () {
  const host = `d${below(domains)}.w${below(workspaces)}.scale.test`;
  // The gateway rewrites every path to `/`, which is all that the endpoint has.
  const url = MODES[mode].target === 'gateway'
    ? `https://${host}/path-${below(paths)}`
    : `http://${endpoint}/`;
  // One name for all, or k6 keeps figures of each of 100,000 addresses.
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = http.get(url, { headers: headers, tags: { name: mode } });
  check(answer, { 'the endpoint answered': (it) => it.status === 200 });
}
