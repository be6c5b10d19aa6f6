"""An origin of the differential tests: Python's http.server. It tells of each request when its
head was read, and again with the length of its body. What http.server leaves to handlers, the
body, is read as its documentation says."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def tell(text):
    # http.server reads each byte of a target as a letter, so that each letter is a byte again. A
    # line is one write: others write at the same time.
    os.write(1, (text + "\n").encode("latin-1"))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def seen(self):
        tell(f"head {self.command} {self.path}")
        length = 0
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                self.rfile.read(size)
                length += size
                if size == 0:
                    break
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            expected = int(self.headers.get("Content-Length", "0"))
            length = len(self.rfile.read(expected))
            if length != expected:
                self.close_connection = True
                return
        tell(f"whole {self.command} {self.path} {length}")
        self.send_response(200)
        self.send_header("Content-Length", "4" if self.command != "HEAD" else "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"seen")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = seen

    def log_message(self, *_):
        pass


# With the five that wait by default, connections that come together wait a second.
ThreadingHTTPServer.request_queue_size = 128
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
tell(f"listens 127.0.0.1:{server.server_address[1]}")
server.serve_forever()
