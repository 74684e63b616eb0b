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
-- name: log_endpoint_counts
/*given: account bytea, id bytea, since bigint, counts text */
INSERT INTO endpoint_tally_log (account, id, since, counts) SELECT account, id, since, counts FROM given
-- name: logged_endpoint_counts
SELECT since, counts FROM endpoint_tally_log WHERE account = :account AND since >= :since AND since < :until
-- name: take_endpoint_counts
DELETE FROM endpoint_tally_log WHERE (account, id) IN (
    SELECT account, id FROM endpoint_tally_log WHERE true /*reachable: account */ ORDER BY account, id LIMIT :limit)
    /*reachable: account */
  RETURNING account, since, counts
-- name: add_endpoint_tallies
/*given: account bytea, endpoint bytea, since bigint, span integer, what text, count bigint */
INSERT INTO endpoint_tallies (account, endpoint, since, span, what, count)
  SELECT account, endpoint, since, span, what, count FROM given WHERE true
  ON CONFLICT (account, endpoint, since, span, what) DO UPDATE SET count = endpoint_tallies.count + excluded.count
-- name: endpoint_tallies_given
/*given: account bytea, endpoint bytea, since bigint, until bigint, period bigint */
SELECT t.endpoint, t.since / given.period * given.period, t.what, sum(t.count) FROM given JOIN endpoint_tallies t
    ON t.account = given.account AND t.endpoint = given.endpoint AND t.since >= given.since AND t.since < given.until
      AND t.span <= given.period
  GROUP BY 1, 2, 3
-- name: old_endpoint_minutes
DELETE FROM endpoint_tallies WHERE (account, endpoint, since, span, what) IN (
    SELECT account, endpoint, since, span, what FROM endpoint_tallies WHERE span = 60 AND since < :before
      /*reachable: account */ ORDER BY since LIMIT :limit) /*reachable: account */
  RETURNING account, endpoint, since, what, count
-- name: forget_endpoint_tallies
DELETE FROM endpoint_tallies WHERE (account, endpoint, since, span, what) IN (
    SELECT account, endpoint, since, span, what FROM endpoint_tallies WHERE span = 3600 AND since < :before
      /*reachable: account */ ORDER BY since LIMIT :limit) /*reachable: account */
  RETURNING 1
