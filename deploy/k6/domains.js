// Requests to random ones of many TLS domains at one gateway, each on a connection that its user
// keeps, or on a new one each (`NEW=1`): the live traffic of `myriad-bench activate`.
//
//   k6 run -e GATEWAY=127.0.0.1:8443 -e PATTERN=www.d#.custom.test -e DOMAINS=1000 domains.js
//
// In PATTERN, `#` is the number of the domain: STRIDE times 0 to DOMAINS, of WIDTH digits. The
// defaults are the names that the bench generates.
import http from 'k6/http';
import { check } from 'k6';

const setting = (name, fallback) => __ENV[name] || fallback;
const number = (name, fallback) => parseInt(setting(name, fallback), 10);

const gateway = setting('GATEWAY', '127.0.0.1:8443');
const pattern = setting('PATTERN', 'www.d#.custom.test');
const domains = number('DOMAINS', 1000);
const stride = number('STRIDE', 2);
const width = number('WIDTH', 8);
const vus = number('VUS', 64);

// All names end as the pattern does behind its number.
const suffix = pattern.slice(pattern.indexOf('#') + 1);

export const options = {
  scenarios: {
    requests: {
      executor: 'constant-arrival-rate',
      rate: number('RATE', 200),
      timeUnit: '1s',
      duration: setting('DURATION', '30s'),
      preAllocatedVUs: vus,
      maxVUs: vus,
    },
  },
  // No name server knows the hosts; their certificates are of an authority of their own.
  hosts: { [`*${suffix}`]: gateway },
  insecureSkipTLSVerify: true,
  noConnectionReuse: setting('NEW', '') !== '',
  thresholds: { checks: ['rate==1'], http_req_failed: ['rate==0'] },
  summaryTrendStats: ['avg', 'med', 'p(90)', 'p(99)', 'max'],
};

export default function () {
  const chosen = stride * Math.floor(Math.random() * domains);
  const host = pattern.replace('#', String(chosen).padStart(width, '0'));
  const answer = http.get(`https://${host}/`, { tags: { name: 'requests' } });
  check(answer, { 'the endpoint answered': (it) => it.status === 200 });
}
