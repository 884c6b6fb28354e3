-- Processes in the background. Rows go with their agent, and 7 days after their end. There is no
-- foreign key, for the reason that origin has none.
CREATE TABLE process (
  agent_id TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL,
  thread TEXT COLLATE "C" NOT NULL, step_key TEXT COLLATE "C" NOT NULL, token BIGINT NOT NULL, state TEXT NOT NULL,
  exit BIGINT NOT NULL DEFAULT 0, tail TEXT NOT NULL DEFAULT '', seen BOOLEAN NOT NULL DEFAULT false,
  started_at BIGINT NOT NULL, ended_at BIGINT NOT NULL DEFAULT 0, -- ms
  session_key TEXT NOT NULL DEFAULT '', event TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (agent_id, id));
CREATE INDEX process_open ON process (agent_id, token) WHERE state IN ('starting', 'running');

-- The policy for commands that leave the sandbox, what an approval is asked for, and who answered.
-- A step that asks a person has not begun with its intent.
CREATE TABLE exec_policy (one INT PRIMARY KEY CHECK (one = 1), version BIGINT NOT NULL, body TEXT NOT NULL); -- JSON
ALTER TABLE approval
  ADD COLUMN kind TEXT NOT NULL DEFAULT '', ADD COLUMN tool TEXT NOT NULL DEFAULT '', ADD COLUMN summary TEXT NOT NULL DEFAULT '',
  ADD COLUMN patterns TEXT NOT NULL DEFAULT '', ADD COLUMN external BOOLEAN NOT NULL DEFAULT false,
  ADD COLUMN decision TEXT NOT NULL DEFAULT '', ADD COLUMN decided_by TEXT NOT NULL DEFAULT '';
ALTER TABLE step ADD COLUMN asks BOOLEAN NOT NULL DEFAULT false;

-- Questions of agents to the people they talk to. Times are in ms, ended is 0 while a question waits;
-- after_id is the newest inbox event when it was asked.
CREATE TABLE question (
  agent_id TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, thread TEXT NOT NULL, key TEXT COLLATE "C" NOT NULL,
  text TEXT NOT NULL, options TEXT NOT NULL, allow_text BOOLEAN NOT NULL, peer TEXT NOT NULL, after_id BIGINT NOT NULL,
  state TEXT NOT NULL, answer TEXT NOT NULL, answered_by TEXT NOT NULL,
  requested BIGINT NOT NULL, expires BIGINT NOT NULL, ended BIGINT NOT NULL,
  PRIMARY KEY (agent_id, id), UNIQUE (agent_id, key));
CREATE INDEX question_id ON question (id);
