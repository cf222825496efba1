# A lenient web server: it takes every method, reads no body, keeps the
# connection open, and lets header fields change method, path and host, as
# frameworks do. It prints each request that it acts on.
import http.server, json, socketserver, sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.act
        raise AttributeError(name)

    def act(self):
        h = self.headers
        tell({
            "method": h.get("X-HTTP-Method-Override", self.command),
            "path": h.get("X-Original-URL", self.path),
            "host": h.get("X-Forwarded-Host", h.get("Host", "")),
        })
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def finish(self):
        try:
            super().finish()
        finally:
            tell({"closed": True})

    def log_message(self, *args):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True

    def handle_error(self, *args):
        pass


def tell(what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


with Server(("127.0.0.1", 0), Handler) as server:
    tell({"port": server.server_address[1]})
    server.serve_forever()
