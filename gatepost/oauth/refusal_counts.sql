-- name: count_failure
INSERT INTO failures (pair, since, count, account, client, source)
  VALUES (:pair, :since, 1, :account, :client, :source)
  ON CONFLICT (pair) DO UPDATE SET count = failures.count + 1 RETURNING count, since
-- name: end_failure
DELETE FROM failures WHERE pair = :pair AND since <= :before
  RETURNING pair, account, client, source, 'oauth.token.refused', 'too_many_failures', count, since
-- name: end_failures
DELETE FROM failures WHERE pair IN (SELECT pair FROM failures WHERE since <= :before /*reachable: account */ LIMIT 200)
  RETURNING pair, account, client, source, 'oauth.token.refused', 'too_many_failures', count, since
-- name: count_refusal
INSERT INTO refusals (pair, since, count, account, client, source, type, error)
  VALUES (:pair, :since, :count, :account, :client, :source, :type, :error)
  ON CONFLICT (pair) DO UPDATE SET count = refusals.count + excluded.count, error = excluded.error RETURNING count, since
-- name: end_refusal
DELETE FROM refusals WHERE pair = :pair AND since <= :before
  RETURNING pair, account, client, source, type, error, count, since
-- name: end_refusals
DELETE FROM refusals WHERE pair IN (SELECT pair FROM refusals WHERE since <= :before /*reachable: account */ LIMIT 200)
  RETURNING pair, account, client, source, type, error, count, since
