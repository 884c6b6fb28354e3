-- Both tables are empty: earlier builds moved agents between databases, and a database in
-- which that left a row is refused (package pool). They cost nothing, and without them the
-- format would have to rise.
--
-- moved says where an agent went that was here.
CREATE TABLE moved (agent_id TEXT COLLATE "C" PRIMARY KEY, shard INT NOT NULL, move TEXT NOT NULL);

-- arriving is a copy that nobody may use until a row of moved says so.
CREATE TABLE arriving (
  agent_id TEXT COLLATE "C" PRIMARY KEY REFERENCES agent ON DELETE CASCADE,
  move TEXT NOT NULL, run_token BIGINT NOT NULL DEFAULT 0, deliver_token BIGINT NOT NULL DEFAULT 0);
