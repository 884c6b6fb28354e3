-- The attempts on a message that ended without an answer, as a bounded JSON list.
ALTER TABLE turn ADD COLUMN attempts TEXT NOT NULL DEFAULT '';
