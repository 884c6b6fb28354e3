"""Ask an agent and print its answer while it is written.

    python3 ask.py AGENT KEY TEXT

The key names the task: a second call with the same key and text stores nothing, starts
nothing, and prints the same answer. The home is $THECLAW_HOME.
"""

import json
import os
import sys
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "gen"))
from theclaw.registry.v1 import thread_pb2, thread_pb2_grpc, turn_pb2, turn_pb2_grpc
from theclaw.runner.v1 import runner_pb2, runner_pb2_grpc

HOME = os.environ.get("THECLAW_HOME", os.path.expanduser("~/.theclaw"))
MAY_PASS = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED)
PAUSES = (0.1, 0.5, 2, 5, 10, None)  # seconds before a call is repeated


def token():
    """The token of the home's owner, which changes whenever the registry starts."""
    with open(os.path.join(HOME, "run", "token")) as f:
        return [("authorization", "Bearer " + f.read().strip())]


def call(method, request):
    """Call again while the services start, or the inbox is full: requests have keys."""
    for pause in PAUSES:
        try:
            return method(request, metadata=token(), timeout=30)
        except grpc.RpcError as e:
            if e.code() not in MAY_PASS or pause is None:
                raise
            time.sleep(pause)


def show(runner, agent, run):
    """Print the answer while it is written. After a lost connection the stream continues
    behind the last item that was received; what the run repeats is announced."""
    seq = 0
    for pause in PAUSES:
        try:
            for item in runner.StreamRun(runner_pb2.StreamRunRequest(agent_id=agent, run_id=run, after_seq=seq), metadata=token(), timeout=600):
                seq = item.seq
                if item.stream == runner_pb2.RUN_STREAM_ASSISTANT:
                    print(item.text, end="", file=sys.stderr, flush=True)
                elif item.stream == runner_pb2.RUN_STREAM_LIFECYCLE and item.phase == "restart":
                    print("\nthe answer starts again", file=sys.stderr)
            print(file=sys.stderr)
            return
        except grpc.RpcError as e:
            if e.code() not in MAY_PASS or pause is None:
                print("not streamed: " + e.details(), file=sys.stderr)
                return
            print("again in %g s: %s" % (pause, e.code().name), file=sys.stderr)
            time.sleep(pause)


def ask(agent, key, text):
    registry = grpc.insecure_channel("unix:" + os.path.join(HOME, "run", "registry.sock"))
    threads, turns = thread_pb2_grpc.ThreadServiceStub(registry), turn_pb2_grpc.TurnServiceStub(registry)
    pushed = call(threads.PushEvents, thread_pb2.PushEventsRequest(
        thread=thread_pb2.ThreadRef(agent_id=agent, thread_id="inbox"),
        idempotency_key=key,
        events=[thread_pb2.NewEvent(source="external:console:prog:dm:report:report", type="message", content=json.dumps({"text": text}))],
    ))
    print("message %d%s" % (pushed.event_ids[0], ", as before" if pushed.duplicate else ""), file=sys.stderr)

    # Shown while it is written; the reply below is what counts.
    runner = runner_pb2_grpc.RunnerServiceStub(grpc.insecure_channel("unix:" + os.path.join(HOME, "run", "runner.sock")))
    show(runner, agent, pushed.run_ids[0])

    while True:
        turn = call(turns.GetTurn, turn_pb2.GetTurnRequest(agent_id=agent, inbox_id=pushed.event_ids[0], wait={"seconds": 20})).turn
        if turn.fate != turn_pb2.FATE_UNSPECIFIED:
            break
    if turn.fate != turn_pb2.FATE_REPLIED:
        raise SystemExit("no reply: %s %s" % (turn_pb2.Fate.Name(turn.fate), turn.error))
    reply = call(threads.PeekEvents, thread_pb2.PeekEventsRequest(
        thread=thread_pb2.ThreadRef(agent_id=agent, thread_id=turn.thread_id), after_id=turn.reply_event_id - 1, limit=1))
    return json.loads(reply.events[0].content)["text"]


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    try:
        print(ask(*sys.argv[1:]))
    except grpc.RpcError as e:
        raise SystemExit("%s: %s" % (e.code().name, e.details()))
