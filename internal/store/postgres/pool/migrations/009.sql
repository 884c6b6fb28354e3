-- What was decided about an inbox event when it was pushed. A row is never moved, and goes with
-- its agent. It has no foreign key: the pusher holds the thread's row, and one of the agent's,
-- which a removal locks first, would let the two wait for each other.
CREATE TABLE origin (
  agent_id TEXT COLLATE "C" NOT NULL, inbox_id BIGINT NOT NULL,
  thread TEXT COLLATE "C" NOT NULL, session_key TEXT COLLATE "C" NOT NULL,
  account TEXT NOT NULL DEFAULT '', provider_id TEXT NOT NULL DEFAULT '', rev BIGINT NOT NULL DEFAULT 0,
  command TEXT NOT NULL DEFAULT '', sent_at BIGINT NOT NULL DEFAULT 0, -- ms
  cause TEXT NOT NULL DEFAULT '', task TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (agent_id, inbox_id));

-- The session of a conversation; thread.last_at says when it was last active. What is empty is as
-- the settings say.
CREATE TABLE session (
  agent_id TEXT COLLATE "C" NOT NULL, thread_id TEXT COLLATE "C" NOT NULL,
  key TEXT COLLATE "C" NOT NULL, key_folded TEXT COLLATE "C" NOT NULL,
  epoch TEXT COLLATE "C" NOT NULL DEFAULT '', epoch_from BIGINT NOT NULL DEFAULT 0, started_at BIGINT NOT NULL DEFAULT 0, -- ms
  pending TEXT NOT NULL DEFAULT '', pending_by TEXT NOT NULL DEFAULT '',
  model TEXT NOT NULL DEFAULT '', thinking TEXT NOT NULL DEFAULT '', "verbose" TEXT NOT NULL DEFAULT '',
  reasoning TEXT NOT NULL DEFAULT '', queue_mode TEXT NOT NULL DEFAULT '', usage_footer TEXT NOT NULL DEFAULT '',
  elevated TEXT NOT NULL DEFAULT '', title TEXT NOT NULL DEFAULT '', archived BOOLEAN NOT NULL DEFAULT false,
  PRIMARY KEY (agent_id, thread_id),
  FOREIGN KEY (agent_id, thread_id) REFERENCES thread ON DELETE CASCADE);
CREATE INDEX session_folded ON session (agent_id, key_folded);

-- Of the installation: the states of the bindings, and what a single machine has as files of
-- its home.
CREATE TABLE binding_rev (rev BIGINT PRIMARY KEY, at BIGINT NOT NULL, body BYTEA NOT NULL); -- ms
CREATE TABLE home_file (
  name TEXT COLLATE "C" PRIMARY KEY, data BYTEA NOT NULL, version TEXT COLLATE "C" NOT NULL,
  updated_at TIMESTAMPTZ NOT NULL DEFAULT now());
