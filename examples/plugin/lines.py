"""A channel whose platform is a directory with two text files.

    python3 lines.py DIR

Each line `PEER TEXT` that is appended to DIR/in.txt is a message of PEER. A line of standard
input is appended there, too. Replies are appended to DIR/out.txt, each as a line of JSON with
its key, and printed. The account connects to DIR/lines.sock.

The program keeps no other state. Where the gateway was is the position that it sends: the
place in in.txt. What was sent already is in out.txt, by its key.
"""

import concurrent.futures
import json
import os
import sys
import threading
import time
import uuid

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "gen"))
from theclaw.channel.v1 import plugin_pb2, plugin_pb2_grpc

MAX_TEXT = 2000
POLL = 0.1  # seconds between two looks for new lines
MAX_READ = 1 << 20  # bytes of lines that are read at once; a line must be shorter


def identity(directory):
    """The name of these two files. Remove the file id together with them: the places in
    new files are those of other messages."""
    path = os.path.join(directory, "id")
    try:
        with open(path, "x") as f:
            f.write(uuid.uuid4().hex)
            os.fsync(f.fileno())
    except FileExistsError:
        pass
    with open(path) as f:
        return f.read()


class Lines(plugin_pb2_grpc.ChannelPluginServiceServicer):
    def __init__(self, directory):
        self.inbound = os.path.join(directory, "in.txt")
        self.identity = identity(directory)
        if not self.identity:
            raise SystemExit("%s/id is empty: remove it, in.txt and out.txt" % directory)
        open(self.inbound, "a").close()
        self.out = open(os.path.join(directory, "out.txt"), "a+b", buffering=0)
        self.lock = threading.Lock()
        self.sent = {}  # ids of messages by their keys
        self.out.seek(0)
        whole = 0
        for line in self.out:
            if not line.endswith(b"\n"):  # the machine stopped while it was written
                break
            message = json.loads(line)
            self.sent[message["key"]] = message["id"]
            whole += len(line)
        self.out.truncate(whole)

    def Describe(self, request, context):
        return plugin_pb2.DescribeResponse(
            identity=self.identity, name="lines", max_text=MAX_TEXT, guarantee=plugin_pb2.GUARANTEE_KEYED,
        )

    def Receive(self, requests, context):
        begin = next(requests)
        # The file keeps what is confirmed as well, so confirmations need nothing to be done.
        threading.Thread(target=self.confirmations, args=(requests,), daemon=True).start()
        place = int(begin.position or 0)
        with open(self.inbound, "rb") as f:
            while context.is_active():
                f.seek(place)
                lines = f.read(MAX_READ).split(b"\n")
                for line in lines[:-1]:  # what has no end yet is still being written
                    start, place = place, place + len(line) + 1
                    peer, _, text = line.decode("utf-8", "replace").strip().partition(" ")
                    if peer and text:
                        yield plugin_pb2.ReceiveResponse(
                            position=str(place), message_id=str(start), peer_id=peer, peer_name=peer, text=text,
                            conversation=plugin_pb2.Conversation(kind=plugin_pb2.KIND_DM, session_id=peer),
                        )
                if len(lines) == 1:
                    time.sleep(POLL)

    def confirmations(self, requests):
        try:
            for _ in requests:
                pass
        except grpc.RpcError:
            pass  # the gateway has gone away

    def Send(self, request, context):
        peer = request.target.conversation.session_id
        with self.lock:
            if request.key not in self.sent:
                message = {"id": "r%d" % (len(self.sent) + 1), "key": request.key, "to": peer, "text": request.text}
                self.out.write(json.dumps(message).encode() + b"\n")
                os.fsync(self.out.fileno())
                self.sent[request.key] = message["id"]
                print("%s: %s" % (peer, request.text), flush=True)
            return plugin_pb2.SendResponse(message_id=self.sent[request.key])

    def Probe(self, request, context):
        return plugin_pb2.ProbeResponse()


def main(directory):
    os.umask(0o077)  # the socket and the files are ours alone
    os.makedirs(directory, exist_ok=True)
    lines = Lines(directory)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=16))
    plugin_pb2_grpc.add_ChannelPluginServiceServicer_to_server(lines, server)
    address = "unix:" + os.path.join(os.path.abspath(directory), "lines.sock")
    if not server.add_insecure_port(address):
        raise SystemExit("cannot listen at " + address)
    server.start()
    print("listening at " + address, file=sys.stderr, flush=True)
    for line in sys.stdin:
        with open(lines.inbound, "a") as f:
            f.write(line.rstrip("\n") + "\n")
    server.wait_for_termination()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        pass
