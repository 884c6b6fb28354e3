-- Media of agents, by the hash of their data, and the data in pieces of 256 KiB. at is in ms.
CREATE TABLE media (
  agent_id TEXT COLLATE "C" NOT NULL REFERENCES agent ON DELETE CASCADE, sha256 TEXT COLLATE "C" NOT NULL,
  mime TEXT NOT NULL, name TEXT NOT NULL, size BIGINT NOT NULL, at BIGINT NOT NULL,
  PRIMARY KEY (agent_id, sha256));
CREATE TABLE media_piece (
  agent_id TEXT COLLATE "C" NOT NULL, sha256 TEXT COLLATE "C" NOT NULL, n BIGINT NOT NULL, data BYTEA NOT NULL,
  PRIMARY KEY (agent_id, sha256, n), FOREIGN KEY (agent_id, sha256) REFERENCES media ON DELETE CASCADE);
