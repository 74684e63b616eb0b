-- name: tally
/*given: account bytea, since bigint, span integer, slot integer, what text, count bigint */
INSERT INTO tallies (account, since, span, slot, what, count)
  SELECT account, since, span, slot, what, count FROM given WHERE true
  ON CONFLICT (account, since, span, slot, what) DO UPDATE SET count = tallies.count + excluded.count
-- name: tallied
SELECT since / :interval * :interval, what, sum(count) FROM tallies
  WHERE account = :account AND since >= :since AND since < :until AND span <= :interval GROUP BY 1, 2
-- name: old_minutes
DELETE FROM tallies WHERE (account, since, span, slot, what) IN (
    SELECT account, since, span, slot, what FROM tallies WHERE span = 60 AND since < :before
      /*reachable: account */ ORDER BY since LIMIT :limit) /*reachable: account */
  RETURNING account, since, what, count
-- name: forget_tallies
DELETE FROM tallies WHERE (account, since, span, slot, what) IN (
    SELECT account, since, span, slot, what FROM tallies WHERE span = 3600 AND since < :before
      /*reachable: account */ ORDER BY since LIMIT :limit) /*reachable: account */
  RETURNING 1
-- name: tally_endpoint
/*given: account bytea, endpoint bytea, since bigint, settled integer, slot integer, what text, count bigint */
INSERT INTO endpoint_minutes (account, endpoint, since, settled, slot, what, count)
  SELECT account, endpoint, since, settled, slot, what, count FROM given WHERE true
  ON CONFLICT (since, settled, account, endpoint, slot, what) DO UPDATE
    SET count = endpoint_minutes.count + excluded.count
-- name: endpoint_minutes_given
/*given: account bytea, endpoint bytea, since bigint, start bigint */
SELECT m.endpoint, given.start, m.what, sum(m.count) FROM given JOIN endpoint_minutes m
    ON m.since = given.since AND m.settled IN (0, 1) AND m.account = given.account AND m.endpoint = given.endpoint
  GROUP BY m.endpoint, given.start, m.what
-- name: endpoint_hours
SELECT since / :interval * :interval, what, sum(count) FROM endpoint_hours
  WHERE account = :account AND endpoint = :endpoint AND since >= :since AND since < :until GROUP BY 1, 2
-- name: old_endpoint_minutes
DELETE FROM endpoint_minutes WHERE (since, settled, account, endpoint, slot, what) IN (
    SELECT since, settled, account, endpoint, slot, what FROM endpoint_minutes WHERE since < :before
      /*reachable: account */ ORDER BY since LIMIT :limit) /*reachable: account */
  RETURNING account, endpoint, since, what, count
-- name: add_endpoint_hours
/*given: account bytea, endpoint bytea, since bigint, what text, count bigint */
INSERT INTO endpoint_hours (account, endpoint, since, what, count)
  SELECT account, endpoint, since, what, count FROM given WHERE true
  ON CONFLICT (account, endpoint, since, what) DO UPDATE SET count = endpoint_hours.count + excluded.count
-- name: forget_endpoint_hours
DELETE FROM endpoint_hours WHERE (account, endpoint, since, what) IN (
    SELECT account, endpoint, since, what FROM endpoint_hours WHERE since < :before
      /*reachable: account */ ORDER BY since LIMIT :limit) /*reachable: account */
  RETURNING 1
