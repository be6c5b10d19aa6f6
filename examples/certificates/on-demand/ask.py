"""Says which names may have certificates: those of a file, one a line.

Usage: ask.py FILE PORT, as docs/certificates.md has it.
"""

import http.server
import sys
import urllib.parse


class Ask(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.urlsplit(self.path).query
        name = urllib.parse.parse_qs(query).get("domain", [""])[0]
        with open(sys.argv[1], encoding="ascii") as names:
            is_allowed = name in names.read().split()
        self.send_response(200 if is_allowed else 403)
        self.send_header("Content-Length", "0")
        self.end_headers()


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Ask).serve_forever()
