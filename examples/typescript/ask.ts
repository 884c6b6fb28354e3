// Ask an agent and print its answer while it is written.
//
//     node ask.js AGENT KEY TEXT
//
// The key names the task: a second call with the same key and text stores nothing, starts
// nothing, and prints the same answer. The home is $THECLAW_HOME.
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import * as grpc from "@grpc/grpc-js";
import * as loader from "@grpc/proto-loader";

const home = process.env.THECLAW_HOME ?? path.join(os.homedir(), ".theclaw");

// The services as `npm run generate` describes them.
const services = grpc.loadPackageDefinition(
  loader.loadFileDescriptorSetFromBuffer(fs.readFileSync(path.join(__dirname, "services.binpb")), { enums: String, longs: String, defaults: true }),
) as any;

// The token of the home's owner, which changes whenever the registry starts.
function token(): grpc.Metadata {
  const m = new grpc.Metadata();
  m.set("authorization", "Bearer " + fs.readFileSync(path.join(home, "run", "token"), "utf8").trim());
  return m;
}

function client(service: any, socket: string): any {
  return new service("unix:" + path.join(home, "run", socket), grpc.credentials.createInsecure());
}

const mayPass = [grpc.status.UNAVAILABLE, grpc.status.UNAUTHENTICATED, grpc.status.RESOURCE_EXHAUSTED];
const pauses = [100, 500, 2000, 5000, 10_000, 0]; // milliseconds before a call is repeated

// Calls again while the services start, or the inbox is full: requests have keys.
async function call(on: any, method: string, request: object): Promise<any> {
  for (const pause of pauses) {
    try {
      return await new Promise((resolve, reject) =>
        on[method](request, token(), { deadline: Date.now() + 30_000 }, (e: grpc.ServiceError | null, r: any) => (e ? reject(e) : resolve(r))),
      );
    } catch (e) {
      if (!mayPass.includes((e as grpc.ServiceError).code) || pause === 0) throw e;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

// Shows the answer while it is written. After a lost connection the stream continues behind
// the last item that was received; what the run repeats is announced.
async function show(runner: any, agent: string, run: string): Promise<void> {
  let seq = "0"; // 64 bits are more than a number holds
  for (const pause of pauses) {
    try {
      for await (const item of runner.StreamRun({ agent_id: agent, run_id: run, after_seq: seq }, token(), { deadline: Date.now() + 600_000 })) {
        seq = item.seq;
        if (item.stream === "RUN_STREAM_ASSISTANT") process.stderr.write(item.text);
        else if (item.stream === "RUN_STREAM_LIFECYCLE" && item.phase === "restart") console.error("\nthe answer starts again");
      }
      console.error();
      return;
    } catch (e) {
      const { code, details } = e as grpc.ServiceError;
      if (!mayPass.includes(code) || pause === 0) return console.error("not streamed: " + details);
      console.error(`again in ${pause / 1000} s: ${grpc.status[code]}`);
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

async function ask(agent: string, key: string, text: string): Promise<string> {
  const threads = client(services.theclaw.registry.v1.ThreadService, "registry.sock");
  const turns = client(services.theclaw.registry.v1.TurnService, "registry.sock");
  const runner = client(services.theclaw.runner.v1.RunnerService, "runner.sock");
  try {
    const pushed = await call(threads, "PushEvents", {
      thread: { agent_id: agent, thread_id: "inbox" },
      idempotency_key: key,
      events: [{ source: "external:console:prog:dm:report:report", type: "message", content: JSON.stringify({ text }) }],
    });
    const id = pushed.event_ids[0];
    console.error(`message ${id}${pushed.duplicate ? ", as before" : ""}`);
    await show(runner, agent, pushed.run_ids[0]); // the reply below is what counts

    let turn: any;
    do {
      turn = (await call(turns, "GetTurn", { agent_id: agent, inbox_id: id, wait: { seconds: 20 } })).turn;
    } while (turn.fate === "FATE_UNSPECIFIED");
    if (turn.fate !== "FATE_REPLIED") throw new Error(`no reply: ${turn.fate} ${turn.error}`);
    const reply = await call(threads, "PeekEvents", {
      thread: { agent_id: agent, thread_id: turn.thread_id },
      after_id: String(Number(turn.reply_event_id) - 1),
      limit: 1,
    });
    return JSON.parse(reply.events[0].content).text;
  } finally {
    for (const c of [threads, turns, runner]) c.close();
  }
}

const [agent, key, text] = process.argv.slice(2);
if (text === undefined) {
  console.error("usage: node ask.js AGENT KEY TEXT");
  process.exit(1);
}
ask(agent, key, text).then(
  (reply) => console.log(reply),
  (e) => {
    console.error(e.code === undefined ? e.message : `${grpc.status[e.code]}: ${e.details}`);
    process.exitCode = 1;
  },
);
