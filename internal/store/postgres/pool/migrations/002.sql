-- When the next message of one agent to another would be due, so that their rate holds
-- over all registries. A row whose time is past is as good as none.
CREATE TABLE pace (
  agent_id TEXT COLLATE "C" NOT NULL REFERENCES agent ON DELETE CASCADE,
  peer TEXT COLLATE "C" NOT NULL, at TIMESTAMPTZ NOT NULL, PRIMARY KEY (agent_id, peer));

-- What is said of an agent for people: logs/agent.log of one machine.
CREATE TABLE agent_log (
  agent_id TEXT COLLATE "C" NOT NULL REFERENCES agent ON DELETE CASCADE,
  id BIGINT GENERATED ALWAYS AS IDENTITY, at TIMESTAMPTZ NOT NULL, level TEXT NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (agent_id, id));
