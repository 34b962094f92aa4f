#!/usr/bin/env python3
"""A 1 ms timer on the loop that serves 500 connections of which half vanish in the middle.

    bench/uv_timer.py [BUILD/bin/example_uv_server] [--clients N] [--tokens N] [--runs N]

Prints, for each run, how late the timer ever was and how long the busiest turn of the loop took; and, to
tell the machine's part, the same with clients that connect and say nothing. Loopback only."""
import argparse
import selectors
import signal
import socket
import subprocess
import sys
import time

MODEL = "examples/models/runnel-tiny-Q8_0.gguf"


def serve(program, clients, tokens, ask):
    server = subprocess.Popen([program, MODEL, "--max-tokens", str(tokens), "--watch", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    port = int(server.stdout.readline().split()[-1])
    selector = selectors.DefaultSelector()
    begin = time.time()
    answered = vanished = 0
    for i in range(clients):
        client = socket.create_connection(("127.0.0.1", port))
        if ask:
            client.sendall(b"Once upon a time, number %d\n" % i)
        selector.register(client, selectors.EVENT_READ, i)
    while ask and selector.get_map():
        for key, _ in selector.select(60):
            data = key.fileobj.recv(256)
            gone = key.data % 2 == 1
            if gone or not data or data.endswith(b"\n"):
                answered += not gone
                vanished += gone
                selector.unregister(key.fileobj)
                key.fileobj.close()
    if not ask:
        time.sleep(2)
    took = time.time() - begin
    server.send_signal(signal.SIGINT)
    line = server.stderr.read().strip()
    if server.wait(60) != 0 or (ask and answered < clients // 2):
        sys.exit(f"failed: {answered} answers, {line}")
    print(f"{'asking' if ask else 'silent'}: {clients} clients, {answered} answers, {vanished} vanished, {took:.1f} s; {line}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default="build/release/bin/example_uv_server")
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for _ in range(options.runs):
        serve(options.program, options.clients, options.tokens, False)
        serve(options.program, options.clients, options.tokens, True)


if __name__ == "__main__":
    main()
