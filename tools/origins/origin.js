// An origin of the differential tests: Node's http. It tells of each request when its head was
// read, and again with the length of its body.
const fs = require('fs');
const http = require('http');

// Node reads each byte of a target as a letter, so that each letter is written as a byte again.
const tell = (text) => fs.writeSync(1, Buffer.from(text + '\n', 'latin1'));

const server = http.createServer((request, answer) => {
  tell(`head ${request.method} ${request.url}`);
  let length = 0;
  request.on('data', (bytes) => { length += bytes.length; });
  request.on('end', () => {
    tell(`whole ${request.method} ${request.url} ${length}`);
    answer.end('seen');
  });
  request.on('error', () => {});
});
server.listen(0, '127.0.0.1', () => tell(`listens 127.0.0.1:${server.address().port}`));
