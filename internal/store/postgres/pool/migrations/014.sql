-- Where receivers of channel accounts continue, and who asked to write to accounts: state is pending, approved, denied
-- or blocked. expires and at are in ms, expires is 0 without a code.
CREATE TABLE cursor (
  account TEXT COLLATE "C" NOT NULL, identity TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL, at BIGINT NOT NULL,
  PRIMARY KEY (account, identity, name));
CREATE TABLE pairing (
  account TEXT COLLATE "C" NOT NULL, peer TEXT COLLATE "C" NOT NULL, type TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL,
  owner BOOLEAN NOT NULL, code_hash TEXT NOT NULL, code_key TEXT NOT NULL, expires BIGINT NOT NULL, decided_by TEXT NOT NULL,
  at BIGINT NOT NULL, messages BIGINT NOT NULL,
  PRIMARY KEY (account, peer));
