-- Everything belongs to one agent: its id leads its tables and keys, so that a distributed
-- PostgreSQL can spread agents by it. An index that begins otherwise is for a look at all
-- agents of a database (docs/decisions/018). Texts compare byte by byte.

-- Which of how many databases this is. It is 0 of 1: earlier builds spread agents over
-- several, and a database of those is refused (package pool).
CREATE TABLE shard (one INT PRIMARY KEY CHECK (one = 1), index INT NOT NULL, count INT NOT NULL);

CREATE TABLE agent (
  agent_id TEXT COLLATE "C" PRIMARY KEY,
  created_at TIMESTAMPTZ NOT NULL DEFAULT now());

-- Settings, identity and memory: what an agent directory holds on one machine.
CREATE TABLE agent_file (
  agent_id TEXT COLLATE "C" NOT NULL REFERENCES agent ON DELETE CASCADE,
  name TEXT COLLATE "C" NOT NULL, content BYTEA NOT NULL, version TEXT COLLATE "C" NOT NULL,
  updated_at TIMESTAMPTZ NOT NULL DEFAULT now(), PRIMARY KEY (agent_id, name));

-- One row for each thread, the inbox among them; whoever writes a thread holds it.
-- Of an inbox, desired says whether the agent shall work: '', started or stopped.
CREATE TABLE thread (
  agent_id TEXT COLLATE "C" NOT NULL REFERENCES agent ON DELETE CASCADE,
  thread_id TEXT COLLATE "C" NOT NULL,
  uuid TEXT NOT NULL, tuple TEXT NOT NULL DEFAULT '', desired TEXT NOT NULL DEFAULT '',
  head BIGINT NOT NULL DEFAULT 0,             -- greatest event id
  chain BYTEA NOT NULL DEFAULT '',            -- hash of that event
  acked BIGINT NOT NULL DEFAULT 0,            -- of our own consumer: inbox or outbound
  last_at TEXT NOT NULL DEFAULT '',           -- created_at of that event
  PRIMARY KEY (agent_id, thread_id)) WITH (fillfactor = 70);

-- Started agents with events without a fate, kept with the inbox's row. A grant sets
-- since, so that who was served stands behind those who wait; told is the inbox head
-- that the holder of the lease was told of. A table of its own: an index of thread by
-- what moves with each event would make each of its writes dearer.
CREATE TABLE due (
  agent_id TEXT COLLATE "C" PRIMARY KEY REFERENCES agent ON DELETE CASCADE,
  since TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), told BIGINT NOT NULL DEFAULT 0);
CREATE INDEX due_since ON due (since, agent_id);

CREATE TABLE event (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, id BIGINT NOT NULL,
  created_at TEXT NOT NULL, source TEXT NOT NULL, type TEXT NOT NULL, subtype TEXT, content TEXT NOT NULL,
  prev BYTEA NOT NULL, sha256 BYTEA NOT NULL,
  PRIMARY KEY (agent_id, thread_id, id),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);

CREATE TABLE subscription (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, consumer TEXT COLLATE "C" NOT NULL,
  handler TEXT NOT NULL, filter TEXT, made BIGINT GENERATED ALWAYS AS IDENTITY,
  PRIMARY KEY (agent_id, thread_id, consumer),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);

-- Progress as a foreign consumer moves it; what our own consumers rely on is thread.acked.
CREATE TABLE progress (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, consumer TEXT COLLATE "C" NOT NULL,
  acked BIGINT NOT NULL, updated_at TEXT NOT NULL,
  PRIMARY KEY (agent_id, thread_id, consumer),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);

CREATE TABLE dedupe (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
  event_id BIGINT NOT NULL, token BIGINT NOT NULL,
  PRIMARY KEY (agent_id, thread_id, key),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);

CREATE TABLE fence (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, resource TEXT COLLATE "C" NOT NULL,
  token BIGINT NOT NULL,
  PRIMARY KEY (agent_id, thread_id, resource),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);

-- Of an inbox.
CREATE TABLE route (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, from_id BIGINT NOT NULL,
  mode TEXT NOT NULL, encoding INT NOT NULL, PRIMARY KEY (agent_id, thread_id, from_id),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);
CREATE TABLE fate (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, inbox_id BIGINT NOT NULL,
  key TEXT NOT NULL, thread TEXT NOT NULL, fate TEXT NOT NULL, at BIGINT NOT NULL, -- ms
  error TEXT NOT NULL DEFAULT '', resolved TEXT NOT NULL DEFAULT '',               -- of a dead one
  PRIMARY KEY (agent_id, thread_id, inbox_id),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);
CREATE INDEX fate_dead ON fate (agent_id, thread_id, inbox_id) WHERE fate = 'dead';
CREATE TABLE outbox (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, thread TEXT COLLATE "C" NOT NULL,
  head BIGINT NOT NULL DEFAULT 0, acked BIGINT NOT NULL DEFAULT 0, dead BIGINT NOT NULL DEFAULT 0,
  since TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), -- of the last grant; see due
  told BIGINT NOT NULL DEFAULT 0,                       -- head that the holder of the lease was told of
  PRIMARY KEY (agent_id, thread_id, thread),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);
CREATE INDEX outbox_open ON outbox (agent_id, thread_id, thread) WHERE acked < head;
CREATE INDEX outbox_due ON outbox (since, agent_id) WHERE acked < head;

-- Of a conversation. Times are ms since 1970.
CREATE TABLE turn (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
  inbox_id BIGINT NOT NULL, state TEXT NOT NULL, fate TEXT NOT NULL DEFAULT '',
  crash_attempts INT NOT NULL DEFAULT 0, error_attempts INT NOT NULL DEFAULT 0,
  not_before BIGINT NOT NULL DEFAULT 0, waiting_since BIGINT NOT NULL DEFAULT 0,
  error TEXT NOT NULL DEFAULT '', leader TEXT NOT NULL DEFAULT '', reply_context TEXT NOT NULL DEFAULT '',
  inbound_id BIGINT NOT NULL DEFAULT 0, reply_id BIGINT NOT NULL DEFAULT 0, error_id BIGINT NOT NULL DEFAULT 0,
  claimed_at BIGINT NOT NULL DEFAULT 0, finished_at BIGINT NOT NULL DEFAULT 0,
  token BIGINT NOT NULL DEFAULT 0, -- of the lease under which it was last begun
  PRIMARY KEY (agent_id, thread_id, key),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE) WITH (fillfactor = 70);
CREATE INDEX turn_led ON turn (agent_id, thread_id, leader) WHERE leader <> '';
CREATE INDEX turn_open ON turn (agent_id, thread_id) WHERE state <> 'done';

CREATE TABLE step (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, turn TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
  seq INT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, class TEXT NOT NULL DEFAULT '',
  name TEXT NOT NULL DEFAULT '', call_id TEXT NOT NULL DEFAULT '', arguments TEXT NOT NULL DEFAULT '',
  request_sha256 BYTEA, result BYTEA,
  input BIGINT NOT NULL DEFAULT 0, output BIGINT NOT NULL DEFAULT 0, cached_input BIGINT NOT NULL DEFAULT 0,
  reasoning BIGINT NOT NULL DEFAULT 0, cache_write BIGINT NOT NULL DEFAULT 0,
  duration_us BIGINT NOT NULL DEFAULT 0, recorded_at BIGINT NOT NULL,
  PRIMARY KEY (agent_id, thread_id, turn, key),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);

CREATE TABLE delivery (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, event_id BIGINT NOT NULL,
  key TEXT NOT NULL, state TEXT NOT NULL, attempts INT NOT NULL DEFAULT 0, crashes INT NOT NULL DEFAULT 0,
  not_before BIGINT NOT NULL DEFAULT 0, channel TEXT NOT NULL DEFAULT '', provider_id TEXT NOT NULL DEFAULT '',
  boot_id TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '', maybe_duplicate BOOLEAN NOT NULL DEFAULT false,
  created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, resolved TEXT NOT NULL DEFAULT '',
  run TEXT NOT NULL DEFAULT '', parts INT NOT NULL DEFAULT 0, reach BIGINT NOT NULL DEFAULT 0, -- sent of a message in parts
  PRIMARY KEY (agent_id, thread_id, event_id),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE) WITH (fillfactor = 70);
CREATE INDEX delivery_open ON delivery (agent_id, thread_id, event_id) WHERE state IN ('pending', 'sending');
CREATE INDEX delivery_dead ON delivery (agent_id, thread_id, event_id) WHERE state = 'dead' AND resolved = '';

CREATE TABLE memory (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL, layer TEXT COLLATE "C" NOT NULL,
  n BIGINT NOT NULL DEFAULT 0, digested BIGINT NOT NULL DEFAULT 0, seen BIGINT NOT NULL DEFAULT 0,
  base TEXT NOT NULL DEFAULT '', text TEXT NOT NULL DEFAULT '', thread TEXT NOT NULL DEFAULT '', event TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (agent_id, thread_id, layer),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);

-- Who may act now: two rows for each agent, made with it. The database's clock alone
-- judges expiry.
CREATE TABLE lease (
  agent_id TEXT COLLATE "C" NOT NULL, resource TEXT COLLATE "C" NOT NULL, token BIGINT NOT NULL,
  holder TEXT NOT NULL, address TEXT NOT NULL, request_id TEXT NOT NULL, ttl_ms BIGINT NOT NULL,
  expires_at TIMESTAMPTZ NOT NULL, released BOOLEAN NOT NULL DEFAULT false, yield BOOLEAN NOT NULL DEFAULT false,
  PRIMARY KEY (agent_id, resource)) WITH (fillfactor = 70);
CREATE INDEX lease_out ON lease (holder) WHERE NOT released;

CREATE TABLE usage (
  agent_id TEXT COLLATE "C" NOT NULL, day TEXT COLLATE "C" NOT NULL, peer TEXT COLLATE "C" NOT NULL,
  messages BIGINT NOT NULL, tokens BIGINT NOT NULL, micros BIGINT NOT NULL, PRIMARY KEY (agent_id, day, peer));

CREATE TABLE approval (
  agent_id TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, thread TEXT NOT NULL, key TEXT COLLATE "C" NOT NULL,
  command TEXT NOT NULL, cwd TEXT NOT NULL, reason TEXT NOT NULL, digest TEXT NOT NULL, state TEXT NOT NULL,
  token BIGINT NOT NULL, requested BIGINT NOT NULL, expires BIGINT NOT NULL,
  PRIMARY KEY (agent_id, id), UNIQUE (agent_id, key));
CREATE INDEX approval_id ON approval (id);
