-- The newest snapshot of a working directory, and the pieces it is made of.
CREATE TABLE workdir (
  agent_id TEXT COLLATE "C" PRIMARY KEY REFERENCES agent ON DELETE CASCADE,
  hash TEXT NOT NULL, manifest BYTEA NOT NULL, updated_at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE workdir_piece (
  agent_id TEXT COLLATE "C" NOT NULL REFERENCES agent ON DELETE CASCADE,
  hash TEXT COLLATE "C" NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (agent_id, hash));
