-- Tools of MCP servers: what each server reported last, and what of it the owner has decided. Descriptions are
-- JSON, empty where there is none; decided_at is in ms, 0 before the first decision.
CREATE TABLE mcp_pin (
  server TEXT COLLATE "C" NOT NULL, tool TEXT COLLATE "C" NOT NULL,
  reported TEXT NOT NULL, reported_sha TEXT NOT NULL, approved TEXT NOT NULL, approved_sha TEXT NOT NULL, denied_sha TEXT NOT NULL,
  class TEXT NOT NULL, decided_by TEXT NOT NULL, decided_at BIGINT NOT NULL,
  PRIMARY KEY (server, tool));
