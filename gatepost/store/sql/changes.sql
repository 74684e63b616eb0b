-- name: version
SELECT (SELECT value FROM counters WHERE name = 'changes'), (SELECT value FROM counters WHERE name = 'ends')
-- name: bump_version
UPDATE counters SET value = value + 1 WHERE name = 'changes' RETURNING value
-- name: bump_ends
UPDATE counters SET value = value + 1 WHERE name = 'ends'
-- name: insert_change
INSERT INTO changes (version, at, thing) VALUES (:version, :at, :thing)
-- name: changes_after
SELECT version, thing FROM changes WHERE version > :version ORDER BY version LIMIT 1001
-- name: forget_changes
DELETE FROM changes WHERE version IN (SELECT version FROM changes WHERE at < :before ORDER BY version LIMIT 200) RETURNING 1
-- name: answer
SELECT body_hash, status, answer FROM answers
  WHERE account = :account AND caller = :caller AND operation = :operation AND id = :id AND expires_at > :at
-- name: insert_answer
INSERT INTO answers (account, caller, operation, id, body_hash, status, answer, expires_at)
  VALUES (:account, :caller, :operation, :id, :body_hash, :status, :answer, :expires_at)
  ON CONFLICT (account, caller, operation, id) DO UPDATE SET body_hash = excluded.body_hash, status = excluded.status,
    answer = excluded.answer, expires_at = excluded.expires_at WHERE answers.expires_at <= :at RETURNING 1
-- name: forget_answers
DELETE FROM answers WHERE (account, caller, operation, id) IN
  (SELECT account, caller, operation, id FROM answers WHERE expires_at < :before ORDER BY expires_at LIMIT 200) RETURNING 1
-- name: probe_write
INSERT INTO counters (name, value) VALUES ('write probe', :value)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value
