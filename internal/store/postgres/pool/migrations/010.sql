-- Questions of agents to the people they talk to. Times are in ms, ended is 0 while a question waits;
-- after_id is the newest inbox event when it was asked.
CREATE TABLE question (
  agent_id TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, thread TEXT NOT NULL, key TEXT COLLATE "C" NOT NULL,
  text TEXT NOT NULL, options TEXT NOT NULL, allow_text BOOLEAN NOT NULL, peer TEXT NOT NULL, after_id BIGINT NOT NULL,
  state TEXT NOT NULL, answer TEXT NOT NULL, answered_by TEXT NOT NULL,
  requested BIGINT NOT NULL, expires BIGINT NOT NULL, ended BIGINT NOT NULL,
  PRIMARY KEY (agent_id, id), UNIQUE (agent_id, key));
CREATE INDEX question_id ON question (id);
