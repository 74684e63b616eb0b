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
  (SELECT account, caller, operation, id FROM answers WHERE expires_at < :before /*reachable: account */ ORDER BY expires_at LIMIT 200)
  /*reachable: account */ RETURNING 1
