-- What a call of a tool is, in one line; whether its result says why nothing was done; and whether it holds what
-- neither the owner nor this runtime wrote.
ALTER TABLE step
  ADD COLUMN summary TEXT NOT NULL DEFAULT '', ADD COLUMN is_error BOOLEAN NOT NULL DEFAULT false,
  ADD COLUMN external BOOLEAN NOT NULL DEFAULT false;
