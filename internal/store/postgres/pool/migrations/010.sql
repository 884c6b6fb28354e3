-- The policy for commands that leave the sandbox, what an approval is asked for, and who answered.
-- A step that asks a person has not begun with its intent.
CREATE TABLE exec_policy (one INT PRIMARY KEY CHECK (one = 1), version BIGINT NOT NULL, body TEXT NOT NULL); -- JSON
ALTER TABLE approval
  ADD COLUMN kind TEXT NOT NULL DEFAULT '', ADD COLUMN tool TEXT NOT NULL DEFAULT '', ADD COLUMN summary TEXT NOT NULL DEFAULT '',
  ADD COLUMN patterns TEXT NOT NULL DEFAULT '', ADD COLUMN external BOOLEAN NOT NULL DEFAULT false,
  ADD COLUMN decision TEXT NOT NULL DEFAULT '', ADD COLUMN decided_by TEXT NOT NULL DEFAULT '';
ALTER TABLE step ADD COLUMN asks BOOLEAN NOT NULL DEFAULT false;
