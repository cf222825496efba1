// A web server with Node's lenient parser, which reads no body, and lets header
// fields change method, path and host, as frameworks do. It prints each request
// that it acts on.
const http = require('http');

function tell(what) { process.stdout.write(JSON.stringify(what) + '\n'); }

const server = http.createServer({ insecureHTTPParser: true, requireHostHeader: false }, (req, res) => {
  const h = req.headers;
  tell({
    method: h['x-http-method-override'] || req.method,
    path: h['x-original-url'] || req.url,
    host: h['x-forwarded-host'] || h.host || '',
  });
  res.end('ok');
});
server.on('connection', (socket) => socket.on('close', () => tell({ closed: true })));
server.listen(0, '127.0.0.1', () => tell({ port: server.address().port }));
