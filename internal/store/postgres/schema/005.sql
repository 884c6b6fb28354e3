-- An agent that is not in the database its id hashes to: where it is. The row is written
-- where the agent was, in the transaction that removes it there, and later in the
-- database of the hash; so from there the rows lead to it. Rows of agents that are gone
-- stay: who makes one of the name makes it there.
CREATE TABLE moved (agent_id TEXT COLLATE "C" PRIMARY KEY, shard INT NOT NULL, move TEXT NOT NULL);

-- A copy that nobody may use until a row of moved says so, with the tokens above which
-- those of its leases begin.
CREATE TABLE arriving (
  agent_id TEXT COLLATE "C" PRIMARY KEY REFERENCES agent ON DELETE CASCADE,
  move TEXT NOT NULL, run_token BIGINT NOT NULL DEFAULT 0, deliver_token BIGINT NOT NULL DEFAULT 0);
