// As many requests as so many users can make one after the other, for a time or a number of them,
// as `myriad-bench load --qps 0` sends them.
//
//   k6 run -e URL=https://www.example.com/ -e VUS=64 -e DURATION=30s saturate.js
//   k6 run -e URL=https://www.example.com/ -e VUS=64 -e ITERATIONS=100000 saturate.js
import http from 'k6/http';
import { check } from 'k6';

const setting = (name, fallback) => __ENV[name] || fallback;
const number = (name, fallback) => parseInt(setting(name, fallback), 10);

const url = setting('URL', 'http://127.0.0.1:8080/');
const host = setting('HOST', '');
const iterations = number('ITERATIONS', 0);
// How many of them are this process's, where it has a segment of the run.
const expected = number('EXPECTED', 0);

const lasting = { executor: 'constant-vus', duration: setting('DURATION', '30s') };
const counted = { executor: 'shared-iterations', iterations: iterations, maxDuration: '1h' };
const requests = Object.assign({ vus: number('VUS', 64) }, iterations > 0 ? counted : lasting);

export const options = {
  scenarios: { requests: requests },
  insecureSkipTLSVerify: setting('INSECURE', '') !== '',
  thresholds: {
    checks: ['rate==1'],
    http_req_failed: ['rate==0'],
    http_reqs: [expected > 0 ? `count==${expected}` : 'count>0'],
  },
  summaryTrendStats: ['avg', 'med', 'p(90)', 'p(99)', 'max'],
};

export default function () {
  const answer = http.get(url, { headers: host ? { Host: host } : {}, tags: { name: 'requests' } });
  check(answer, { 'it was answered': (it) => it.status === 200 });
}
