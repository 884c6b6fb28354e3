-- A row holds the lines that were written at once, the oldest first; it has one at least.
ALTER TABLE agent_log
  ALTER COLUMN at TYPE TIMESTAMPTZ[] USING ARRAY[at],
  ALTER COLUMN level TYPE TEXT[] USING ARRAY[level],
  ALTER COLUMN text TYPE TEXT[] USING ARRAY[text];
