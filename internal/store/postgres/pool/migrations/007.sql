-- How far our own consumer of a thread has come is acked; a reader is shown that, unless
-- somebody has moved it from outside since: then a row of progress, while its beside is
-- thread.acked still. Of any other consumer the row of progress is shown.
ALTER TABLE thread ADD COLUMN acked_at TEXT NOT NULL DEFAULT '';    -- when acked last moved
ALTER TABLE progress ADD COLUMN beside BIGINT NOT NULL DEFAULT 0;   -- thread.acked when the row was written

-- What was shown until now, the absence of a row too, is shown until acked moves.
UPDATE progress p SET beside = t.acked FROM thread t
  WHERE t.agent_id = p.agent_id AND t.thread_id = p.thread_id AND t.acked > 0
  AND p.consumer = CASE t.thread_id WHEN 'inbox' THEN 'inbox' ELSE 'outbound' END;
INSERT INTO progress(agent_id, thread_id, consumer, acked, updated_at, beside)
  SELECT agent_id, thread_id, CASE thread_id WHEN 'inbox' THEN 'inbox' ELSE 'outbound' END, 0, '', acked FROM thread WHERE acked > 0
  ON CONFLICT DO NOTHING;
