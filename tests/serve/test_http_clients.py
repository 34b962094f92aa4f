"""Clients of other makers against http_host: python's http.client and ssl, curl where it is there.

test_http_clients.py PROGRAM
"""
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile

program = sys.argv[1]
failures = 0


def check(what, good):
    global failures
    if not good:
        failures += 1
        print(f"FAILED: {what}")


def start(*arguments, **options):
    host = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True, **options)
    return host, [int(host.stdout.readline()) for argument in arguments if argument == "0"]


def stop(host):
    host.send_signal(signal.SIGTERM)
    check("it drains and ends well", host.wait() == 0)


def ask(connection, method, path, body=None, headers={}, **options):
    connection.request(method, path, body, headers, **options)
    answer = connection.getresponse()
    return answer.status, answer.read()


def talk(connection):
    """Each form of request on one connection."""
    body = os.urandom(300000)
    check("GET", ask(connection, "GET", "/hello") == (200, b"hello\n"))
    check("HEAD", ask(connection, "HEAD", "/hello") == (200, b""))
    check("a stream", ask(connection, "GET", "/stream") == (200, b"one\ntwo\nthree\n"))
    check("404", ask(connection, "GET", "/nowhere")[0] == 404)
    check("a body", ask(connection, "POST", "/echo", body) == (200, body))
    pieces = [body[i : i + 7777] for i in range(0, len(body), 7777)]
    check("chunks", ask(connection, "POST", "/echo", iter(pieces), encode_chunked=True) == (200, body))
    check("the connection is the same", connection.sock is not None)
    check("a field", ask(connection, "GET", "/field?X-A", headers={"x-a": "b c"}) == (200, b"b c"))
    check("refused at its head", ask(connection, "POST", "/early", body)[0] == 401)
    check("the next one", ask(connection, "GET", "/hello") == (200, b"hello\n"))
    connection.close()


def curl(what, expected, *arguments, **options):
    if shutil.which("curl") is None:
        return
    got = subprocess.run(["curl", "-sS", "--max-time", "60", *arguments], stdout=subprocess.PIPE, **options)
    check(f"curl: {what}: {got.stdout[:200]}", got.returncode == 0 and got.stdout == expected)


def test_plain():
    host, (port,) = start("0")
    talk(http.client.HTTPConnection("127.0.0.1", port))
    url = f"http://127.0.0.1:{port}"
    body = os.urandom(3000000)
    curl("GET twice", b"hello\nhello\n", f"{url}/hello", f"{url}/hello")
    curl("HTTP/1.0", b"one\ntwo\nthree\n", "--http1.0", f"{url}/stream")
    curl("an upgrade to HTTP/2 offered", b"hello\n", "--http2", f"{url}/hello")
    curl("100-continue", body, "-H", "Expect: 100-continue", "--data-binary", "@-", f"{url}/echo", input=body)
    curl("chunks", body, "-H", "Transfer-Encoding: chunked", "--data-binary", "@-", f"{url}/echo", input=body)
    curl("much to one who answers early", b"no\n", "--data-binary", "@-", f"{url}/early", input=body)
    stop(host)


def certificate(folder):
    certificate, key = os.path.join(folder, "certificate"), os.path.join(folder, "key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, stderr=subprocess.DEVNULL)
    return certificate, key


def wait_with_tls(files):
    """Between the handshake and the first request there is as much time as between two requests."""
    host, (port,) = start("--head", "2000", "--tls", *files, "0")
    with socket.create_connection(("127.0.0.1", port)) as raw:
        with ssl.create_default_context(cafile=files[0]).wrap_socket(raw, server_hostname="localhost") as own:
            own.settimeout(3)
            try:
                check("TLS before the first request", own.recv(1) is None)  # its end
            except TimeoutError:
                own.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                own.settimeout(None)
                answer = b""
                while piece := own.recv(1000):
                    answer += piece
                check("TLS behind a while", answer.endswith(b"hello\n"))
    stop(host)


def test_tls(folder):
    if shutil.which("openssl") is None:
        return
    files = certificate(folder)
    try:
        host, (port,) = start("--tls", *files, "0", stderr=subprocess.DEVNULL)
    except ValueError:
        print("built without OpenSSL")
        return
    for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
        context = ssl.create_default_context(cafile=files[0])
        context.minimum_version = context.maximum_version = version
        talk(http.client.HTTPSConnection("localhost", port, context=context))
    url = f"https://localhost:{port}"
    body = os.urandom(3000000)
    curl("TLS", body, "--cacert", files[0], "--data-binary", "@-", f"{url}/echo", input=body)
    with socket.create_connection(("127.0.0.1", port)) as plain:  # no TLS: an end, and no answer of HTTP
        plain.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b""
        while piece := plain.recv(1000):
            answer += piece
        check("plain text to TLS", b"HTTP/" not in answer)
    with socket.create_connection(("127.0.0.1", port)) as raw:  # leaves in the middle of a body
        with ssl.create_default_context(cafile=files[0]).wrap_socket(raw, server_hostname="localhost") as own:
            own.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nhello")
    curl("TLS after that", b"hello\n", "--cacert", files[0], f"{url}/hello")
    stop(host)
    wait_with_tls(files)
    wrong = subprocess.run([program, "--tls", files[1], files[1], "0"], stderr=subprocess.PIPE, text=True)
    check(f"no certificate: {wrong.stderr}", wrong.returncode == 1 and files[1] in wrong.stderr)


def test_sockets(folder):
    path = os.path.join(folder, "socket")
    host, _ = start("--unix", path, "0")
    curl("unix", b"hello\n", "--unix-socket", path, "http://runnel/hello")
    stop(host)
    check("its path is gone", not os.path.exists(path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, _ = start("--fd", str(listener.fileno()), "0", pass_fds=[listener.fileno()])
        talk(http.client.HTTPConnection(*listener.getsockname()))
        stop(host)


with tempfile.TemporaryDirectory() as folder:
    test_plain()
    test_tls(folder)
    test_sockets(folder)
sys.exit(failures > 0)
