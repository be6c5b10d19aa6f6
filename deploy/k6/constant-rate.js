// Requests at a constant rate, whether those before have been answered or not, as
// `myriad-bench load --qps RATE` sends them.
//
//   k6 run -e URL=https://www.example.com/ -e RATE=1000 -e DURATION=30s constant-rate.js
import http from 'k6/http';
import { check } from 'k6';

const setting = (name, fallback) => __ENV[name] || fallback;
const number = (name, fallback) => parseInt(setting(name, fallback), 10);

const url = setting('URL', 'http://127.0.0.1:8080/');
const host = setting('HOST', '');
const connections = number('VUS', 64);

export const options = {
  scenarios: {
    requests: {
      executor: 'constant-arrival-rate',
      rate: number('RATE', 1000),
      timeUnit: '1s',
      duration: setting('DURATION', '30s'),
      preAllocatedVUs: connections,
      maxVUs: connections,
    },
  },
  insecureSkipTLSVerify: setting('INSECURE', '') !== '',
  thresholds: {
    checks: ['rate==1'],
    http_req_failed: ['rate==0'],
    // A user that was not free for a request is one that was not sent.
    dropped_iterations: ['count==0'],
    http_req_duration: [`p(99)<${number('P99_MS', 60000)}`],
  },
  summaryTrendStats: ['avg', 'med', 'p(90)', 'p(99)', 'max'],
};

export default function () {
  const answer = http.get(url, { headers: host ? { Host: host } : {}, tags: { name: 'requests' } });
  check(answer, { 'it was answered': (it) => it.status === 200 });
}
