"""A small HTTP server for download tests: serves bytes, knows ranges, and can be told to misbehave.

Main entry: serve(content), a context manager that gives the server.
"""

import contextlib
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, begin = self.server, 0
        asked = self.headers.get("Range")
        server.requests.append(asked)
        if server.status != 200:
            return self.send_error(server.status)
        if asked and server.ranges:
            begin = int(asked.split("=")[1].split("-")[0])
            if begin >= len(server.content):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(server.content) - 1}/{len(server.content)}")
        else:
            self.send_response(200)
        body = server.content[begin:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.cut_after is not None:  # the connection breaks, once
            body, server.cut_after = body[: server.cut_after], None
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def serve(content):
    """A server on a free port: .url, .requests (the Range header of each); switches .ranges, .status, .cut_after."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.content, server.requests, server.ranges, server.status, server.cut_after = content, [], True, 200, None
    server.url = f"http://127.0.0.1:{server.server_address[1]}/file"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
