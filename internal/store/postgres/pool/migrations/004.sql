-- What stands for the content of an event that was erased: the key it had, which was
-- made of the content, and a proof over its link, the key and what is there now.
ALTER TABLE event ADD COLUMN erased_key TEXT, ADD COLUMN erased_proof BYTEA;
