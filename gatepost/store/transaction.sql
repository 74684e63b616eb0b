-- name: bump_version
UPDATE counters SET value = value + 1 WHERE name = 'changes' RETURNING value
-- name: bump_ends
UPDATE counters SET value = value + 1 WHERE name = 'ends'
-- name: insert_change
INSERT INTO changes (version, at, thing) VALUES (:version, :at, :thing)
-- name: forget_changes
DELETE FROM changes WHERE version IN (SELECT version FROM changes WHERE at < :before ORDER BY version LIMIT 200) RETURNING 1
-- name: probe_write
INSERT INTO counters (name, value) VALUES ('write probe', :value)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value
